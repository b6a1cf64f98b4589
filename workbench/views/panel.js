// One small chart of those that `chart.py` describes: geometry, and the read-out under the pointer.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 42, RIGHT = 136, TOP = 53, BOTTOM = 24, HEIGHT = 201; // pixels around and of one panel
const ROWS = [TOP - 8, 29, 14]; // where the words of flags stand, from the plot up
const ROOMY = 200; // pixels of a plot: in a narrower one flags would cover each other
const FAINT = 0.65;

/** Three digits that matter, as `number` in text.py. */
function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "—";
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  if (size >= 0.1) return value.toFixed(size >= 10 ? 1 : 2);
  return size >= 1e-3 ? String(Number(value.toPrecision(2))) : value.toExponential(1).replace(".0e", "e");
}

const safe = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const paint = ({ colour, mark }) => `fill="var(--wb-${colour})" fill-opacity="${mark === "faint" ? FAINT : 1}"`;
/** As `when` in marks.py. */
const stepsOf = (first, last) => (first % 1 ? `after step ${Math.floor(first)}` : first === last ? `step ${first}` : `steps ${first}–${last}`);
const px = (value) => Math.round(value * 10) / 10;

/** One small chart. `draw` builds it, `read` shows the values at point `at` (null: the last). */
class PanelView {
  constructor(parent, hover) {
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("role", "img");
    this.svg.setAttribute("tabindex", "0");
    this.svg.setAttribute("height", HEIGHT);
    parent.append(this.svg);
    this.svg.addEventListener("pointermove", (event) => hover(this.pointAt(event)));
    this.svg.addEventListener("pointerleave", () => hover(null));
    this.svg.addEventListener("blur", () => hover(null));
    this.svg.addEventListener("keydown", (event) => this.key(event, hover));
  }

  key(event, hover) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const last = this.chart.first.length - 1;
    if (!move || last < 0) return;
    event.preventDefault();
    hover(Math.min(last, Math.max(0, (this.at ?? last + 1) + move)));
  }

  x(step) {
    const { low, high } = this.chart.axis;
    return LEFT + ((step - low) / (high - low)) * (this.width - LEFT - RIGHT);
  }

  y(value) {
    const { low, high } = this.panel.axis;
    return this.height((value - low) / (high - low));
  }

  height(share) {
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP);
  }

  middle(i) {
    return this.x((this.chart.first[i] + this.chart.last[i]) / 2);
  }

  pointAt(event) {
    const place = event.clientX - this.svg.getBoundingClientRect().left;
    let best = null;
    for (let i = 0; i < this.chart.first.length; i++)
      if (best === null || Math.abs(this.middle(i) - place) < Math.abs(this.middle(best) - place)) best = i;
    return best;
  }

  draw(chart, panel, width) {
    Object.assign(this, { chart, panel, width });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.tops = chart.first.map(() => 0); // of the stacks
    const marks = panel.kind === "stack" ? this.stack() : panel.lines.map((line) => this.line(line)).join("");
    const clip = `<clipPath id="${this.clip ??= `wb-${Math.random().toString(36).slice(2)}`}">
      <rect x="${LEFT}" y="${TOP - 1}" width="${px(width - LEFT - RIGHT)}" height="${HEIGHT - TOP - BOTTOM + 2}"/></clipPath>`;
    this.svg.innerHTML = `${clip}${this.frame()}<g clip-path="url(#${this.clip})">${this.marks()}${marks}</g>${this.flags()}${this.held()}<g class="wb-read"></g>`;
    this.svg.setAttribute("aria-label", this.words());
    this.read(null);
  }

  frame() {
    const { panel, chart, width } = this;
    const right = width - RIGHT, base = HEIGHT - BOTTOM;
    const unit = panel.note ? `${panel.unit} · ${panel.note}` : panel.unit;
    const rows = panel.axis.ticks.map(([at, label], i) => `<text x="${LEFT - 7}" y="${px(this.y(at) + 4)}" text-anchor="end">${safe(label)}</text>
      <line class="${i ? "wb-grid" : "wb-base"}" x1="${LEFT}" x2="${px(right)}" y1="${px(this.y(at))}" y2="${px(this.y(at))}"/>`);
    const steps = chart.axis.ticks.map(([at, label]) => `<text x="${px(this.x(at))}" y="${base + 16}" text-anchor="middle">${safe(label)}</text>`);
    return `<text x="0" y="14"><tspan class="wb-name">${safe(panel.title)}</tspan><tspan dx="7">${safe(unit)}</tspan></text>
      ${rows.join("")}${steps.join("")}<text x="${px(right + 25)}" y="${base + 16}">step</text>`;
  }

  /** What changed while it ran: a line, on a schedule a band. Its words appear under the pointer too. */
  marks() {
    return this.chart.marks.map(({ first, last, texts }) => {
      const left = px(this.x(first)), wide = px(this.x(last) - this.x(first));
      const words = `${stepsOf(first, last)}: ${texts.join(", ")}`;
      return `<g class="wb-mark" stroke-opacity="${0.75 * this.chart.strength}"><title>${safe(words)}</title><rect x="${left}" y="${TOP}" width="${wide}" height="${HEIGHT - BOTTOM - TOP}"/>
        <path d="M${left} ${TOP}V${HEIGHT - BOTTOM}"/><path class="wb-hit" d="M${left} ${TOP}V${HEIGHT - BOTTOM}"/></g>`;
    }).join("");
  }

  flags() {
    const { chart, panel, width } = this;
    const plot = width - LEFT - RIGHT;
    if (panel !== chart.panels[0] || plot < ROOMY) return "";
    return chart.flags.map(({ step, row, text, shift }) => {
      const x = this.x(step);
      return `<g class="wb-flag"><path d="M${px(x)} ${TOP}V${ROWS[row] - 8}"/>
        <text x="${px(x + (shift ? -shift * plot : 4))}" y="${ROWS[row]}">${safe(text)}</text></g>`;
    }).join("");
  }

  line(line) {
    let path = "", pen = "M";
    line.values.forEach((value, i) => {
      if (value === null) pen = "M";
      else (path += `${pen}${px(this.middle(i))} ${px(this.y(value))}`), (pen = "L");
    });
    const alone = line.values.length === 1 ? 5 : line.faint ? 1.1 : 2;
    return `<path d="${path}${line.values.length === 1 ? "h0.01" : ""}" fill="none" stroke="var(--wb-${line.colour})" stroke-width="${alone}"
      stroke-opacity="${line.faint ? FAINT : 1}" stroke-linejoin="round" stroke-linecap="round"/>`;
  }

  stack() {
    const { chart, panel } = this;
    const half = this.x(chart.last[0] + 1) - this.x(chart.first[0]) < 3 ? 0.5 : 0.43; // no gaps between hairlines
    const bars = panel.lines.map((line) => {
      let path = "";
      line.values.forEach((value, i) => {
        const low = this.tops[i], high = (this.tops[i] += value ?? 0);
        const left = this.x(chart.first[i] - half), wide = this.x(chart.last[i] + half) - left;
        if (high > low) path += `M${px(left)} ${px(this.y(low))}h${px(wide)}V${px(this.y(high))}h${px(-wide)}z`;
      });
      return `<path d="${path}" fill="var(--wb-${line.colour})"/>`;
    });
    const cut = this.tops.map((top, i) => top <= panel.axis.high ? ""
      : `<text class="wb-cut" x="${px(this.x(chart.last[i] + 0.43) + 3)}" y="${TOP + 10}">▲ ${number(top)} s</text>`);
    return bars.join("") + cut.join("");
  }

  held() {
    return this.panel.points.map(({ step, mean, stderr }) => `<path class="wb-held" d="M${px(this.x(step))} ${px(this.y(mean - stderr))}V${px(this.y(mean + stderr))}"/>
      <circle class="wb-held" r="3.6" cx="${px(this.x(step))}" cy="${px(this.y(mean))}"/>`).join("");
  }

  /** Names and values at the right, and the crosshair at a point. The labels stay where they are, only their values change. */
  read(at) {
    this.at = at;
    const { panel } = this;
    const right = this.width - RIGHT;
    const rows = panel.labels.map((label, i) => {
      const y = px(this.height(label.place) + 0.5);
      const line = panel.lines[i]; // after the labels of the lines come the sum and the held-out point
      const text = at === null ? label.text : line ? number(line.values[at]) : label.mark ? label.text : number(this.tops[at]);
      const key = label.mark === "point" ? `<circle class="wb-held" r="3.4" cx="${px(right + 16)}" cy="${y}"/>`
        : `<rect x="${px(right + 12)}" y="${y - 4}" width="8" height="8" rx="1.5" ${label.mark ? paint(label) : 'fill="none"'}/>`;
      return `${key}<text x="${px(right + 25)}" y="${y + 4}">${safe(label.name)}</text>
        <text class="wb-number" x="${px(this.width - 1)}" y="${y + 4}" text-anchor="end">${safe(text)}</text>`;
    });
    this.svg.lastElementChild.innerHTML = rows.join("") + (at === null ? "" : this.cross(at));
  }

  cross(at) {
    const { panel, chart } = this;
    const x = px(this.middle(at));
    const first = chart.first[at], last = chart.last[at];
    const dots = panel.kind === "stack" ? [] : panel.lines.filter((line) => line.values[at] !== null).map((line) =>
      `<circle r="3.2" cx="${x}" cy="${px(this.y(line.values[at]))}" fill="var(--wb-${line.colour})"/>`);
    return `<line class="wb-cross" x1="${x}" x2="${x}" y1="${TOP}" y2="${HEIGHT - BOTTOM}"/>${dots.join("")}
      <text class="wb-here" x="${x}" y="${HEIGHT - BOTTOM + 16}" text-anchor="middle">${first === last ? first : `${first}–${last}`}</text>`;
  }

  words() {
    const { panel, chart } = this;
    if (!chart.first.length) return `${panel.title}: no step yet`;
    const lines = panel.lines.map((line) => `${line.name} from ${number(line.values[0])} to ${number(line.values.at(-1))}`);
    const points = panel.points.map((point) => `held out ${number(point.mean)} at step ${point.step}`);
    const marks = panel === chart.panels[0] ? chart.marks.map(({ first, last, texts }) => `${texts.join(", ")}, ${stepsOf(first, last)}`) : [];
    return `${panel.title}${panel.unit && `, ${panel.unit}`}, steps ${chart.first[0]} to ${chart.last.at(-1)}: ${[...lines, ...points, ...marks].join("; ")}`;
  }
}
