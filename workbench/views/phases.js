// Phases on devices as a drawing: ranges of time, gaps, what was waited for, and the text of the SVG. Knows no page.

const LEFT = 150, RIGHT = 60, TOP = 22, PITCH = 38, TRACK = 28, FOOT = 24; // pixels
const NARROWEST = 7; // of a bar with room for an outline
const LETTER = 6.2; // pixels of one, at 10.5 px

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
    const boxes = bars.filter((bar) => seen(bar[2], bar[2] + bar[3])).map((bar) => box(bar, data.phases, x, y, right)).join("");
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
function box([phase, step, begin, seconds], phases, x, y, right) {
  const left = Math.max(x(begin), LEFT - 4), wide = Math.min(x(begin + seconds), right + 4) - left; // the name stays in what is seen
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
