// Draws what `samples_live.py` describes: `page` (one step's samples) and `now`. A long text is cut to a few lines until it is opened.

const HINT = "Page Up, Page Down: the step before, after   End: follow the newest";
const COLUMNS = ["prompt", "completion", "answer"];

/** The step to ask for, kept where there are samples; null: the newest, which is followed. */
function wanted(step, { first, last }) {
  if (!Number.isFinite(step) || step >= last) return null;
  return Math.max(first, Math.round(step));
}

/** What a sign says, also without colour. */
function sign(share) {
  return share > 0 ? "▲" : share < 0 ? "▼" : "·";
}

function layout(el) {
  const root = rooted(el, "samples", "Samples of a step");
  const out = { root, heading: headed(root) };
  out.tools = element(root, "div", "wb-turns");
  out.table = element(root, "table");
  const head = element(element(out.table, "thead"), "tr");
  for (const name of [...COLUMNS, "reward", "advantage"]) {
    const cell = element(head, "th");
    cell.scope = "col";
    say(cell, name);
  }
  out.body = element(out.table, "tbody");
  out.foot = element(root, "div", "wb-foot");
  out.foot.setAttribute("role", "status");
  return out;
}

/** A row; texts can be opened by a click or by Enter. */
function showRow(parent, i, row) {
  const root = parent.children[i] ?? element(parent, "tr");
  COLUMNS.forEach((name, k) => {
    const cell = root.children[k] ?? element(root, "td");
    const box = cell.firstElementChild ?? opened(element(cell, "div", "wb-text"));
    const text = row[name] || "(empty)";
    if (box.textContent !== text) box.removeAttribute("data-open"); // another step's
    say(box, text);
    box.toggleAttribute("data-empty", !row[name]);
  });
  const reward = root.children[3] ?? element(root, "td", "wb-number");
  say(reward, row.reward);
  const cell = root.children[4] ?? element(root, "td", "wb-number wb-advantage");
  const word = cell.children[0] ?? element(cell, "span");
  const bar = cell.children[1] ?? element(cell, "i");
  bar.style.setProperty("--share", Math.abs(row.share));
  bar.dataset.sign = row.share < 0 ? "down" : "up";
  say(word, `${sign(row.share)} ${row.advantage}`);
}

function opened(box) {
  const turn = () => box.toggleAttribute("data-open");
  box.tabIndex = 0;
  box.addEventListener("click", () => getSelection().isCollapsed && turn()); // a text that is being marked stays as it is
  box.addEventListener("keydown", ({ key }) => key === "Enter" && turn());
  return box;
}

function render({ model, el }) {
  const out = layout(el), asked = asking(model, out.foot);
  const page = () => model.get("page");
  const go = (step) => page().rows.length && asked.ask({ step: wanted(step, page()) });
  const earlier = button(out.tools, "‹", "The step before", () => go(page().step - 1));
  const label = element(out.tools, "label");
  label.append("step ");
  const box = element(label, "input", "wb-step");
  Object.assign(box, { type: "number", min: 1 });
  const of = element(out.tools, "span", "wb-of");
  const later = button(out.tools, "›", "The step after", () => go(page().step + 1));
  const newest = button(out.tools, "newest", "Follow the newest step", () => go(Infinity));
  box.addEventListener("change", () => (box.value ? go(Number(box.value)) : draw()));
  out.root.addEventListener("keydown", (event) => {
    const acts = { PageUp: () => go(page().step - 1), PageDown: () => go(page().step + 1), End: () => go(Infinity) };
    if (!acts[event.key] || (event.key === "End" && event.target === box)) return;
    event.preventDefault();
    acts[event.key]();
  });
  const draw = () => {
    const { step, first, last, follows, rows } = page();
    out.table.hidden = out.tools.hidden = !rows.length;
    say(out.foot, rows.length ? HINT : "no samples yet");
    if (el.ownerDocument.activeElement !== box) box.value = step || "";
    Object.assign(box, { min: first, max: last, disabled: !rows.length });
    say(of, rows.length ? `of ${last}${follows ? ", the newest" : ""}` : "");
    earlier.disabled = !rows.length || step <= first;
    later.disabled = !rows.length || step >= last;
    newest.disabled = follows;
    newest.setAttribute("aria-pressed", String(follows));
    rows.forEach((row, i) => showRow(out.body, i, row));
    while (out.body.children.length > rows.length) out.body.lastChild.remove();
  };
  const changed = () => (asked.answered(), draw());
  const now = () => heading(out, model.get("now"));
  now();
  draw();
  const leave = follow(out.root, model.get("palette"), () => {});
  model.on("change:page", changed);
  model.on("change:now", now);
  return () => {
    model.off("change:page", changed);
    model.off("change:now", now);
    asked.leave();
    leave();
  };
}

export default { render };
