// Shows what `timeline_live.py` describes: `window` (phases of some steps on every device) and `now`. The range that is seen is the
// browser's own: the wheel zooms where the view has the focus or Ctrl is held, a drag moves, and keys do both.

const HINT = "Zoom: wheel or + −   move: drag or ← →   all: 0   earlier, later steps: Page Up, Page Down";
const NOTHING_YET = "no phase has ended yet";
const CLOSER = 0.6; // of the range is left after zooming in

function layout(el) {
  const root = rooted(el, "timeline", "Phases of the run on every device, live");
  const out = { root, heading: headed(root) };
  out.bar = element(root, "div", "wb-tools");
  out.keys = element(out.bar, "span", "wb-legend");
  out.tools = element(out.bar, "span", "wb-turns");
  out.svg = document.createElementNS(SVG, "svg");
  out.svg.setAttribute("tabindex", "0");
  out.svg.setAttribute("role", "img");
  root.append(out.svg);
  out.foot = element(root, "div", "wb-foot");
  out.foot.setAttribute("role", "status");
  return out;
}

function legend(parent, data) {
  const used = new Set(data.rows.flatMap(({ bars }) => bars.map(([phase]) => phase)));
  const keys = [...used].sort((a, b) => a - b);
  if (parent.dataset.keys === String(keys)) return;
  parent.dataset.keys = String(keys);
  parent.replaceChildren();
  for (const phase of keys) {
    const key = element(parent, "span");
    element(key, "i").style.background = `var(--wb-${data.phases[phase].stroke})`;
    key.append(data.phases[phase].name);
  }
  const key = element(parent, "span");
  element(key, "i", "wb-idle-key");
  key.append("nothing to do");
}

/** The tracks and the range of time that is seen of them. `turn(by)` asks for windows before or after. */
class TracksView {
  constructor(out, data, turn) {
    Object.assign(this, { out, data, turn });
    this.name = `wb-${Math.random().toString(36).slice(2)}`;
    this.range = null; // null: all of it
    this.held = null; // the moment that a drag holds
    this.frame = 0;
    this.origin = 0; // of the window, on the driver's clock
    this.tools();
    this.listen();
  }

  get view() {
    return this.range ?? [0, this.data().seconds];
  }

  tools() {
    const { out } = this;
    out.earlier = button(out.tools, "‹", "Earlier steps", () => this.turn(-1));
    out.steps = element(out.tools, "span", "wb-steps");
    out.later = button(out.tools, "›", "Later steps", () => this.turn(1));
    button(out.tools, "+", "Zoom in", () => this.zoom(CLOSER));
    button(out.tools, "−", "Zoom out", () => this.zoom(1 / CLOSER));
    button(out.tools, "all", "Show all of these steps", () => this.set(null));
  }

  listen() {
    const { svg, foot } = this.out;
    svg.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    svg.addEventListener("pointerdown", (event) => {
      this.held = this.seconds(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointerup", () => (this.held = null));
    svg.addEventListener("pointermove", (event) => this.point(event));
    svg.addEventListener("pointerleave", () => say(foot, HINT));
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  /** The moment under a pointer. */
  seconds({ clientX }) {
    const { left, width } = this.out.svg.getBoundingClientRect(), [from, to] = this.view;
    return from + ((clientX - left - LEFT) / (width - LEFT - RIGHT)) * (to - from);
  }

  set(range) {
    this.range = range && range[1] - range[0] < this.data().seconds * 0.9999 ? range : null;
    this.frame ||= requestAnimationFrame(() => ((this.frame = 0), this.draw()));
  }

  zoom(factor, middle = (this.view[0] + this.view[1]) / 2) {
    this.set(zoomed(this.view, factor, middle, this.data().seconds));
  }

  move(by) {
    this.set(moved(this.view, by, this.data().seconds));
  }

  wheel(event) {
    const { svg } = this.out;
    if (!event.ctrlKey && svg.getRootNode().activeElement !== svg) return; // it is the page's
    event.preventDefault();
    this.zoom(Math.exp(Math.sign(event.deltaY) * 0.2), this.seconds(event));
  }

  point(event) {
    const moment = this.seconds(event), [from, to] = this.view;
    if (this.held !== null && this.range) return this.move(this.held - moment);
    const row = Math.floor((event.clientY - this.out.svg.getBoundingClientRect().top - TOP) / PITCH);
    const inside = this.data().rows?.[row] && moment >= from && moment <= to;
    say(this.out.foot, (inside && at(this.data(), row, moment)) || HINT);
  }

  key(event) {
    const [from, to] = this.view, part = (to - from) / 5;
    const acts = {
      "+": () => this.zoom(CLOSER), "=": () => this.zoom(CLOSER), "-": () => this.zoom(1 / CLOSER),
      "0": () => this.set(null), Home: () => this.set(null),
      ArrowLeft: () => this.move(-part), ArrowRight: () => this.move(part),
      PageUp: () => this.turn(-1), PageDown: () => this.turn(1),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  /** Another window: the same moments are seen, as far as they are still there. */
  changed() {
    const { origin, seconds } = this.data();
    if (this.range) this.range = moved(this.range, this.origin - origin, seconds);
    this.origin = origin ?? 0;
    this.draw();
  }

  draw() {
    const { out } = this, { rows, seconds, first, last, newest } = this.data(), width = out.svg.clientWidth;
    if (!out.foot.textContent || out.foot.textContent === NOTHING_YET) say(out.foot, rows ? HINT : NOTHING_YET);
    out.svg.style.display = rows ? "" : "none";
    out.bar.hidden = !rows;
    if (!rows || width <= LEFT + RIGHT + 40) return;
    const height = TOP + PITCH * rows.length - (PITCH - TRACK) + FOOT;
    out.svg.setAttribute("height", height);
    out.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    out.svg.innerHTML = drawing(this.data(), this.view, width, this.name);
    const words = rows.map(({ device, roles, busy }) => `${device} (${roles}) busy ${Math.round(100 * busy)}%`).join("; ");
    out.svg.setAttribute("aria-label", `Steps ${first} to ${last}, ${duration(seconds)}: ${words}`);
    legend(out.keys, this.data());
    say(out.steps, first === last ? `step ${first}` : `steps ${first}–${last}`);
    out.earlier.disabled = first <= 1;
    out.later.disabled = last >= newest;
  }
}

function render({ model, el }) {
  const out = layout(el), asked = asking(model, out.foot), data = () => model.get("window");
  const tracks = new TracksView(out, data, (by) => {
    const { last, newest, count, rows } = data();
    if (!rows) return;
    const to = last + by * count;
    tracks.range = null;
    asked.ask({ last: to >= newest ? null : Math.max(count, to) });
  });
  const changed = () => (asked.answered(), tracks.changed());
  const now = () => heading(out, model.get("now"));
  now();
  changed();
  const leave = follow(out.root, model.get("palette"), () => tracks.draw());
  model.on("change:window", changed);
  model.on("change:now", now);
  return () => {
    model.off("change:window", changed);
    model.off("change:now", now);
    cancelAnimationFrame(tracks.frame);
    asked.leave();
    leave();
  };
}

export default { render };
