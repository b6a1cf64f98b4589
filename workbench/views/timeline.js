// Draws what `timeline_live.py` describes: `window` (phases of some steps on every device) and `now`. The range that is seen is the
// browser's own: the wheel zooms where the view has the focus or Ctrl is held, a drag moves, and keys do both.

const LEFT = 150, RIGHT = 60, TOP = 22, PITCH = 38, TRACK = 28, FOOT = 24; // pixels
const NARROWEST = 7; // of a bar with room for an outline
const LETTER = 6.2; // pixels of one, at 10.5 px
const HINT = "Zoom: wheel or + −   move: drag or ← →   all: 0   earlier, later steps: Page Up, Page Down";

/** The range after zooming by `factor` around `middle`, within 0 .. `all`. */
function zoomed([from, to], factor, middle, all) {
  const span = Math.min(all, Math.max(all / 2000, (to - from) * factor));
  return moved([middle - ((middle - from) / (to - from)) * span, middle - ((middle - from) / (to - from)) * span + span], 0, all);
}

/** The range moved by `by` seconds, kept within 0 .. `all`. */
function moved([from, to], by, all) {
  const span = Math.min(to - from, all);
  const begin = Math.min(Math.max(0, from + by), all - span);
  return [begin, begin + span];
}

/** Times of a row without any work: [begin, end]. `bars`: [phase, step, begin, seconds]. */
function gaps(bars, all) {
  const found = [];
  let reached = 0;
  for (const [, , begin, seconds] of [...bars].sort((a, b) => a[2] - b[2])) {
    if (begin > reached + 1e-6) found.push([reached, begin]);
    reached = Math.max(reached, begin + seconds);
  }
  if (all > reached + 1e-6) found.push([reached, all]);
  return found;
}

/** What went on elsewhere in a gap, the longest first: what the device waited for. */
function waits([from, to], rows, phases) {
  const spent = new Map();
  const seen = new Set();
  for (const { bars } of rows)
    for (const bar of bars) {
      const overlap = Math.min(to, bar[2] + bar[3]) - Math.max(from, bar[2]);
      if (overlap <= 1e-6 || seen.has(String(bar))) continue;
      seen.add(String(bar));
      spent.set(bar[0], (spent.get(bar[0]) ?? 0) + overlap);
    }
  return [...spent].sort((a, b) => b[1] - a[1]).map(([phase]) => phases[phase].name);
}

/** A time as `duration` in text.py says it, of seconds and below. */
function duration(seconds) {
  if (seconds < 0.1) return seconds > 0 ? `${Number((seconds * 1e3).toPrecision(2))} ms` : "0 s";
  return seconds < 10 ? `${seconds.toFixed(2)} s` : `${Math.round(seconds)} s`;
}

/** `text` with at most `most` letters. */
function cut(text, most) {
  const short = text.length > most ? text.replace("reference", "ref") : text;
  return short.length > most ? `${short.slice(0, most - 1)}…` : short;
}

/** Some round moments in a range. */
function ticks([from, to], most) {
  const raw = (to - from) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to + 1e-9; at++) found.push([at * step, (at * step).toFixed(digits)]);
  return found;
}

const px = (value) => Math.round(value * 10) / 10;
const safe = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

/** The drawing as text of SVG. `x`: seconds to pixels. */
function drawing(data, range, width, name) {
  const right = width - RIGHT, x = (seconds) => LEFT + ((seconds - range[0]) / (range[1] - range[0])) * (right - LEFT);
  const seen = (begin, end) => end > range[0] && begin < range[1];
  const bottom = TOP + PITCH * data.rows.length - (PITCH - TRACK);
  const rows = data.rows.map(({ device, roles, busy, bars }, i) => {
    const y = TOP + PITCH * i;
    const boxes = bars.filter((bar) => seen(bar[2], bar[2] + bar[3])).map((bar) => box(bar, data.phases, x, y)).join("");
    return `<text class="wb-device" x="0" y="${y + 12}">${safe(cut(device, 18))}</text>
      <text class="wb-roles" x="0" y="${y + 25}"><title>${safe(roles)}</title>${safe(cut(roles, 26))}</text>
      <text class="wb-share" x="${width - 1}" y="${y + 19}" text-anchor="end">${Math.round(100 * busy)}%</text>
      <g clip-path="url(#${name}-clip)"><rect x="${px(x(0))}" y="${y}" width="${px(x(data.seconds) - x(0))}" height="${TRACK}" fill="url(#${name}-idle)" class="wb-idle"/>${boxes}</g>`;
  });
  let before = 0;
  const ends = data.ends.map(([step, at]) => {
    const middle = x((Math.max(before, range[0]) + Math.min(at, range[1])) / 2), room = x(Math.min(at, range[1])) - x(Math.max(before, range[0]));
    before = at;
    const label = room > 44 ? `step ${step}` : room > 18 ? step : "";
    const line = at > range[0] && at < range[1] + 1e-9 ? `<path class="wb-end" d="M${px(x(at))} ${TOP - 16}V${bottom + 4}"/>` : "";
    return line + (label ? `<text x="${px(middle)}" y="${TOP - 8}" text-anchor="middle">${label}</text>` : "");
  });
  const axis = ticks(range, Math.max(2, (right - LEFT) / 110)).map(([at, label]) => `<path class="wb-tick" d="M${px(x(at))} ${bottom}v4"/>
    <text x="${px(x(at))}" y="${bottom + 17}" text-anchor="middle">${label} s</text>`);
  return `<defs><clipPath id="${name}-clip"><rect x="${LEFT}" y="0" width="${right - LEFT}" height="${bottom + 2}"/></clipPath>
    <pattern id="${name}-idle" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="7" height="7" class="wb-ground"/><path d="M0 0V7" class="wb-hatch"/></pattern></defs>
    <text x="${width - 1}" y="${TOP - 8}" text-anchor="end">busy</text>${rows.join("")}${ends.join("")}${axis.join("")}`;
}

/** One phase: an outline with its name where there is room, else a stripe. */
function box([phase, step, begin, seconds], phases, x, y) {
  const left = Math.max(x(begin), LEFT - 4), wide = Math.min(x(begin + seconds), 1e5) - left;
  const { name, fill, stroke } = phases[phase];
  if (wide < NARROWEST) return `<rect x="${px(left)}" y="${y}" width="${px(Math.max(1, wide))}" height="${TRACK}" style="fill:var(--wb-${stroke})"/>`;
  const label = [`${name} ${step}`, name, String(step)].find((text) => text.length * LETTER < wide - 6) ?? "";
  return `<rect x="${px(left + 0.5)}" y="${y + 0.5}" width="${px(wide - 1)}" height="${TRACK - 1}" rx="2" style="fill:var(--wb-${fill});stroke:var(--wb-${stroke})"/>
    ${label && `<text class="wb-bar" x="${px(left + wide / 2)}" y="${y + 18}" text-anchor="middle">${label}</text>`}`;
}

/** What is at a moment in a row, in words. */
function at(data, row, seconds) {
  const { device, bars } = data.rows[row];
  const here = bars.filter(([, , begin, long]) => begin <= seconds && seconds < begin + long);
  if (here.length) return here.map(([phase, step, , long]) => `${device}: ${data.phases[phase].name} of step ${step}, ${duration(long)}`).join("; ");
  const gap = gaps(bars, data.seconds).find(([from, to]) => from <= seconds && seconds < to);
  if (!gap) return "";
  const cause = waits(gap, data.rows, data.phases);
  return `${device}: nothing to do for ${duration(gap[1] - gap[0])}${cause.length ? `, while elsewhere: ${cause.join(", ")}` : ", nothing runs anywhere"}`;
}

function layout(el) {
  const root = rooted(el, "timeline", "Phases of the run on every device, live");
  const out = { root, heading: headed(root) };
  const bar = element(root, "div", "wb-tools");
  out.keys = element(bar, "span", "wb-legend");
  out.tools = element(bar, "span", "wb-turns");
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

function render({ model, el }) {
  const out = layout(el), name = `wb-${Math.random().toString(36).slice(2)}`;
  const asked = asking(model, out.foot);
  let range = null; // null: all of it
  let frame = 0, drag = null, origin = 0;
  const data = () => model.get("window");
  const view = () => range ?? [0, data().seconds];
  const turn = (by) => {
    const { last, newest, count, rows } = data();
    if (!rows) return;
    const to = last + by * count;
    range = null;
    asked.ask({ last: to >= newest ? null : Math.max(count, to) });
  };
  const draw = () => {
    const { rows, seconds, first, last, newest } = data(), width = out.svg.clientWidth;
    say(out.foot, out.foot.textContent || HINT);
    out.svg.style.display = rows ? "" : "none";
    if (!rows || width <= LEFT + RIGHT + 40) return;
    const height = TOP + PITCH * rows.length - (PITCH - TRACK) + FOOT;
    out.svg.setAttribute("height", height);
    out.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    out.svg.innerHTML = drawing(data(), view(), width, name);
    const words = rows.map(({ device, roles, busy }) => `${device} (${roles}) busy ${Math.round(100 * busy)}%`).join("; ");
    out.svg.setAttribute("aria-label", `Steps ${first} to ${last}, ${duration(seconds)}: ${words}`);
    legend(out.keys, data());
    say(out.steps, first === last ? `step ${first}` : `steps ${first}–${last}`);
    out.earlier.disabled = first <= 1;
    out.later.disabled = last >= newest;
  };
  const soon = () => (frame ||= requestAnimationFrame(() => ((frame = 0), draw())));
  const set = (next) => {
    const all = data().seconds;
    range = next && next[1] - next[0] < all * 0.9999 ? next : null;
    soon();
  };
  const seconds = ({ clientX }) => {
    const { left, width } = out.svg.getBoundingClientRect(), [from, to] = view();
    return from + ((clientX - left - LEFT) / (width - LEFT - RIGHT)) * (to - from);
  };
  out.earlier = button(out.tools, "‹", "Earlier steps", () => turn(-1));
  out.steps = element(out.tools, "span", "wb-steps");
  out.later = button(out.tools, "›", "Later steps", () => turn(1));
  button(out.tools, "+", "Zoom in", () => set(zoomed(view(), 0.6, (view()[0] + view()[1]) / 2, data().seconds)));
  button(out.tools, "−", "Zoom out", () => set(zoomed(view(), 1 / 0.6, (view()[0] + view()[1]) / 2, data().seconds)));
  button(out.tools, "all", "Show all of these steps", () => set(null));
  out.svg.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && document.activeElement !== out.svg && el.getRootNode().activeElement !== out.svg) return; // the page's
      event.preventDefault();
      set(zoomed(view(), Math.exp(Math.sign(event.deltaY) * 0.2), seconds(event), data().seconds));
    },
    { passive: false },
  );
  out.svg.addEventListener("pointerdown", (event) => {
    drag = { at: seconds(event), view: view() };
    out.svg.setPointerCapture(event.pointerId);
  });
  out.svg.addEventListener("pointerup", () => (drag = null));
  out.svg.addEventListener("pointermove", (event) => {
    if (drag && range) return set(moved(view(), drag.at - seconds(event), data().seconds));
    const row = Math.floor((event.clientY - out.svg.getBoundingClientRect().top - TOP) / PITCH), moment = seconds(event);
    const inside = data().rows?.[row] && moment >= view()[0] && moment <= view()[1];
    say(out.foot, (inside && at(data(), row, moment)) || HINT);
  });
  out.svg.addEventListener("pointerleave", () => say(out.foot, HINT));
  out.svg.addEventListener("keydown", (event) => {
    const [from, to] = view(), all = data().seconds, middle = (from + to) / 2;
    const acts = {
      "+": () => set(zoomed(view(), 0.6, middle, all)), "=": () => set(zoomed(view(), 0.6, middle, all)),
      "-": () => set(zoomed(view(), 1 / 0.6, middle, all)), "0": () => set(null), Home: () => set(null),
      ArrowLeft: () => set(moved(view(), (from - to) / 5, all)), ArrowRight: () => set(moved(view(), (to - from) / 5, all)),
      PageUp: () => turn(-1), PageDown: () => turn(1),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    acts[event.key]();
  });
  const changed = () => {
    const next = data();
    if (range) range = moved(range, origin - next.origin, next.seconds); // the same moments, as far as they are still here
    origin = next.origin ?? 0;
    asked.answered();
    draw();
  };
  const now = () => heading(out, model.get("now"));
  now();
  changed();
  const leave = follow(out.root, model.get("palette"), draw);
  model.on("change:window", changed);
  model.on("change:now", now);
  return () => {
    model.off("change:window", changed);
    model.off("change:now", now);
    cancelAnimationFrame(frame);
    asked.leave();
    leave();
  };
}

export default { render };
