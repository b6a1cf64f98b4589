// Draws what `load.py` describes: `chart` (the last minutes in stretches, whole percents) and `now` (numbers). One track for each
// device and each role: bars are how busy it was, in the colour of the role at work; the line is how full its memory was.

const TRACK = 28; // pixels

/** Bars of one colour as one path: [colour index, path]. A stretch without a sample has none. */
function barPaths(busy, who, width) {
  const wide = width / busy.length, paths = new Map();
  busy.forEach((value, i) => {
    if (!value) return;
    const high = (TRACK * Math.min(100, value)) / 100;
    paths.set(who[i], `${paths.get(who[i]) ?? ""}M${px(i * wide)} ${TRACK}v${px(-high)}h${px(Math.max(1, wide - 0.6))}v${px(high)}z`);
  });
  return [...paths];
}

/** A line through what is known, broken where nothing is. */
function linePath(values, width) {
  const wide = width / values.length;
  let path = "", pen = "M";
  values.forEach((value, i) => {
    if (value === null) pen = "M";
    else (path += `${pen}${px((i + 0.5) * wide)} ${px(TRACK * (1 - Math.min(100, value) / 100))}`), (pen = "L");
  });
  return path;
}

/** How long ago the stretch `at` of `count` was. */
function ago(at, count, seconds) {
  const past = (count - 1 - at) * seconds;
  if (past < 1) return "now";
  const minutes = Math.floor(past / 60), rest = Math.round(past % 60);
  return past < 60 ? `${Math.round(past)} s ago` : `${minutes} min ${rest ? `${String(rest).padStart(2, "0")} s ` : ""}ago`;
}

/** Who worked on a device at a stretch: in words, for who can't tell the colours apart. */
function worker({ who, busy }, names, at) {
  return busy[at] === null ? "no sample" : who[at] < 0 ? "no role alone" : `${names[who[at]]} at work`;
}

const px = (value) => Math.round(value * 10) / 10;
const whole = (value) => (value === null || value === undefined ? NONE : `${value}%`);

/** One track with its name and its two numbers. */
class TrackView {
  constructor(parent, hover) {
    this.root = element(parent, "div", "wb-track-row");
    const label = element(this.root, "div", "wb-who");
    this.name = element(label, "b");
    this.roles = element(label, "span");
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("height", TRACK);
    this.root.append(this.svg);
    shape(this.svg, "rect", { class: "wb-area", width: "100%", height: TRACK });
    this.bars = shape(this.svg, "g", {});
    this.full = shape(this.svg, "path", { class: "wb-full" });
    this.cross = shape(this.svg, "line", { class: "wb-here", y1: 0, y2: TRACK });
    this.numbers = [element(this.root, "span", "wb-busy-now"), element(this.root, "span", "wb-full-now")];
    this.svg.addEventListener("pointermove", ({ clientX }) => {
      const { left, width } = this.svg.getBoundingClientRect();
      hover(Math.max(0, Math.min(this.row.busy.length - 1, Math.floor(((clientX - left) / width) * this.row.busy.length))));
    });
    this.svg.addEventListener("pointerleave", () => hover(null));
  }

  /** `row`: {name, roles, busy, full, who}; `chart`: names and colours by the numbers in `who`. */
  draw(row, { names, colours }) {
    Object.assign(this, { row, names });
    const width = this.svg.clientWidth;
    say(this.name, row.name);
    say(this.roles, row.roles);
    if (!width) return;
    this.bars.innerHTML = barPaths(row.busy, row.who, width).map(([who, path]) => `<path d="${path}" style="fill:var(--wb-${colours[who] ?? "advantages"})"/>`).join("");
    this.full.setAttribute("d", row.full ? linePath(row.full, width) : "");
  }

  /** The numbers at a stretch, or those of now. */
  read(at, now) {
    const { row } = this;
    this.cross.style.display = at === null ? "none" : "";
    if (at !== null) {
      const x = px(((at + 0.5) * this.svg.clientWidth) / row.busy.length);
      this.cross.setAttribute("x1", x);
      this.cross.setAttribute("x2", x);
    }
    const full = row.full ? (at === null ? now.full : `memory ${whole(row.full[at])}`) : "";
    say(this.numbers[0], at === null ? now.busy : whole(row.busy[at]));
    say(this.numbers[1], full);
    say(this.roles, at === null || !row.full ? row.roles : worker(row, this.names, at));
    this.svg.setAttribute("aria-label", `${row.name}, ${row.roles}: busy ${this.numbers[0].textContent}${full && `, ${full}`}`);
  }
}

function layout(el) {
  const root = rooted(el, "load", "Load of the devices, live");
  const out = { root, heading: headed(root) };
  out.keys = element(root, "div", "wb-legend");
  out.devices = element(root, "div", "wb-tracks");
  out.devices.setAttribute("tabindex", "0");
  out.devices.setAttribute("role", "group");
  out.devices.setAttribute("aria-label", "Load over the last minutes; arrow keys read at an earlier time");
  out.between = element(root, "div", "wb-between");
  out.roles = element(root, "div", "wb-tracks");
  out.axis = element(root, "div", "wb-axis");
  for (const _ of "123") element(out.axis, "span");
  return out;
}

function legend(parent, chart) {
  const used = new Set(chart.devices.flatMap(({ who }) => who));
  const keys = [...chart.names.flatMap((name, i) => (used.has(i) ? [[name, chart.colours[i]]] : [])), ["no role alone", "advantages"]];
  if (parent.dataset.keys === String(keys)) return;
  parent.dataset.keys = String(keys);
  parent.replaceChildren();
  for (const [name, colour] of keys) {
    const key = element(parent, "span");
    element(key, "i").style.background = `var(--wb-${colour})`;
    key.append(name);
  }
  const key = element(parent, "span");
  element(key, "i", "wb-line");
  key.append("memory");
}

/** As many tracks in `parent` as there are rows. */
function fill(views, parent, count, hover) {
  while (views.length < count) views.push(new TrackView(parent, hover));
  while (views.length > count) views.pop().root.remove();
}

/** What the tracks of the chart are, devices first. */
function rowsOf(chart) {
  const devices = chart.devices.map((row) => ({ ...row, name: row.device, roles: row.roles.join(", ") }));
  const roles = chart.roles.map(({ role, busy }) => ({ name: role, roles: "", busy, full: null, who: busy.map(() => chart.names.indexOf(role)) }));
  return { devices, roles };
}

/** How busy a role is at a stretch; of now the last stretch with a sample. */
function latest(busy) {
  return busy.findLast((value) => value !== null);
}

function render({ model, el }) {
  const out = layout(el), devices = [], roles = [];
  let at = null;
  const hover = (to) => to !== at && ((at = to), read());
  const read = () => {
    const { uses } = model.get("now"), chart = model.get("chart");
    for (const view of devices) {
      const use = uses[view.row.name];
      view.read(at, { busy: use ? percent(use.busy) : NONE, full: use ? memoryWords(use, true) : NONE });
    }
    for (const view of roles) view.read(at, { busy: whole(latest(view.row.busy)) });
    const count = chart.devices[0]?.busy.length ?? 0;
    say(out.axis.children[0], count ? ago(-1, count, chart.seconds) : "");
    say(out.axis.children[1], at === null ? "" : ago(at, count, chart.seconds));
    say(out.axis.children[2], count ? "now" : "");
  };
  const draw = () => {
    const chart = model.get("chart");
    if (!chart.devices) return;
    const rows = rowsOf(chart);
    fill(devices, out.devices, rows.devices.length, hover);
    fill(roles, out.roles, rows.roles.length, hover);
    devices.forEach((view, i) => view.draw(rows.devices[i], chart));
    roles.forEach((view, i) => view.draw(rows.roles[i], chart));
    say(out.between, !rows.devices.length ? "no load was sampled yet" : rows.roles.length ? "By role: its devices, while its phases run" : "");
    out.keys.hidden = !rows.devices.length;
    legend(out.keys, chart);
    read();
  };
  const now = () => {
    heading(out, model.get("now"));
    read();
  };
  out.devices.addEventListener("keydown", ({ key }) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[key], count = devices[0]?.row.busy.length;
    if (key === "Escape") hover(null);
    if (move && count) hover(Math.max(0, Math.min(count - 1, (at ?? count) + move)));
  });
  out.devices.addEventListener("blur", () => hover(null));
  draw();
  now();
  const leave = follow(out.root, model.get("palette"), draw);
  model.on("change:chart", draw);
  model.on("change:now", now);
  return () => {
    model.off("change:chart", draw);
    model.off("change:now", now);
    leave();
  };
}

export default { render };
