// Draws what `knobs.py` describes and sends what a person turned. All values, stops and sentences come from there; here are
// only places on a slider, the theme, and what waits for the kernel.

const PATIENCE = 600; // ms until an unanswered message is spoken of
const HINT = "A change acts at the next step. In code: run.knobs.NAME = value";
const BUSY = "The kernel is busy with a cell; the change arrives when that ends.";

/** Where on the ladder a value stands, as an index; between two stops in proportion. */
function place(ladder, value) {
  const above = ladder.findIndex((stop) => stop >= value);
  if (above < 1) return above < 0 ? ladder.length - 1 : 0;
  const low = ladder[above - 1];
  return above - 1 + (value - low) / (ladder[above] - low);
}

/** As `exact` in dials.py. */
function exact(value) {
  return value !== 0 && Math.abs(value) < 0.01 ? value.toExponential() : String(value);
}

/** A knob: name and unit, slider, the number to read and to type, and when it acts. `turn(key, value)` sends a change. */
class RowView {
  constructor(parent, turn) {
    this.root = element(parent, "div", "wb-knob");
    const label = element(this.root, "div", "wb-label");
    this.name = element(label, "code");
    this.unit = element(label, "span");
    const track = element(this.root, "div", "wb-track");
    this.mark = element(track, "i");
    this.slider = element(track, "input");
    Object.assign(this.slider, { type: "range", min: 0, step: 1 });
    this.box = element(this.root, "input", "wb-box");
    Object.assign(this.box, { type: "text", inputMode: "decimal", spellcheck: false, autocomplete: "off" });
    this.note = element(this.root, "span", "wb-note");
    this.turn = turn;
    this.held = false; // by a hand: what arrives meanwhile moves it not
    this.slider.addEventListener("input", () => this.slide());
    this.slider.addEventListener("change", () => this.send(this.row.ladder[this.slider.value]));
    this.box.addEventListener("input", () => (this.held = true));
    this.box.addEventListener("change", () => this.type());
    this.box.addEventListener("keydown", ({ key }) => key === "Escape" && this.release());
    this.box.addEventListener("blur", () => this.held && this.type());
  }

  slide() {
    this.held = true;
    this.box.value = exact(this.row.ladder[this.slider.value]);
    this.slider.setAttribute("aria-valuetext", this.box.value);
  }

  type() {
    const text = this.box.value.trim();
    const value = Number(text);
    if (!text) this.release();
    else this.send(Number.isFinite(value) ? value : text); // what is no number is refused there, with the reason
  }

  send(value) {
    this.held = false;
    if (value === this.row.value) this.show(this.row);
    else this.turn(this.row.key, value);
  }

  release() {
    this.held = false;
    this.show(this.row);
  }

  show(row) {
    this.row = row;
    if (this.held) return;
    const { key, label, unit, ladder, value, text, mark, note } = row;
    this.root.dataset.knob = key;
    this.root.toggleAttribute("data-pending", row.used !== text);
    say(this.name, label);
    say(this.unit, unit);
    say(this.note, note);
    this.slider.max = ladder.length - 1;
    this.slider.value = Math.round(place(ladder, value));
    this.slider.setAttribute("aria-valuetext", text);
    this.slider.setAttribute("aria-label", `${label}, ${unit}`);
    this.box.value = text;
    this.box.setAttribute("aria-label", `${label}, ${unit}, as a number`);
    this.root.title = `run.knobs.${key.split(".")[0]}: slider from ${exact(ladder[0])} to ${exact(ladder.at(-1))}; other values can be typed`;
    this.mark.hidden = mark === null;
    if (mark !== null) this.mark.style.setProperty("--at", place(ladder, mark) / (ladder.length - 1));
  }

  disable(off) {
    this.slider.disabled = this.box.disabled = off;
  }
}

function layout(el, press) {
  const root = rooted(el, "knobs", "Knobs of the run");
  const top = element(root, "div", "wb-top");
  const parts = { root, buttons: {} };
  parts.state = element(top, "span", "wb-state");
  parts.state.setAttribute("role", "status");
  parts.badge = element(top, "span", "wb-badge");
  parts.status = element(top, "span", "wb-status");
  const group = element(top, "span", "wb-buttons");
  for (const [call, name] of [["pause", "Pause"], ["resume", "Resume"], ["stop", "Stop"]]) {
    const button = (parts.buttons[call] = element(group, "button"));
    button.type = "button";
    say(button, name);
    button.addEventListener("click", () => press(call));
  }
  parts.knobs = element(root, "div", "wb-rows");
  parts.foot = element(root, "div", "wb-foot");
  parts.foot.setAttribute("role", "status");
  return parts;
}

function render({ model, el }) {
  let waiting = null; // a timer, while a message is not answered
  const send = (content) => {
    model.send(content);
    clearTimeout(waiting);
    waiting = setTimeout(() => foot(BUSY, "busy"), PATIENCE);
  };
  const parts = layout(el, (call) => send({ call }));
  const foot = (text, kind) => {
    parts.foot.dataset.kind = kind;
    say(parts.foot, text);
  };
  const views = [];
  const rows = () => {
    const described = model.get("rows");
    while (views.length > described.length) views.pop().root.remove();
    while (views.length < described.length) views.push(new RowView(parts.knobs, (key, to) => send({ turn: key, to })));
    views.forEach((view, i) => view.show(described[i]));
  };
  const head = () => {
    const { state, status, badge, buttons } = model.get("head");
    parts.root.dataset.state = state;
    say(parts.state, state);
    say(parts.badge, badge);
    say(parts.status, status);
    for (const [call, on] of Object.entries(buttons)) parts.buttons[call].disabled = !on;
    views.forEach((view) => view.disable(state === "closed"));
  };
  const draw = () => (rows(), head());
  const answered = () => {
    clearTimeout(waiting);
    const { error } = model.get("answer");
    foot(error || HINT, error ? "error" : "hint");
    draw(); // a slider whose value was refused goes back
  };
  foot(HINT, "hint");
  draw();
  const leave = follow(parts.root, model.get("palette"), () => {});
  model.on("change:rows", draw);
  model.on("change:head", head);
  model.on("change:answer", answered);
  return () => {
    model.off("change:rows", draw);
    model.off("change:head", head);
    model.off("change:answer", answered);
    clearTimeout(waiting);
    leave();
  };
}

export default { render };
