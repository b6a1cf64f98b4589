// Draws what `topology.py` describes: `picture` (the machine, once for each placement), `roles` (who is where), and `now`
// (numbers, four times a second). What `heads.py` draws once is drawn here as it changes.

const PAD = 7, BAR = 7, BUSY = 31, FULL = 46; // pixels, as in heads.py
const ROOMY = 140, WIDE = 76, TIGHT = 32;
const SERVICE = "a service";
const ARROWS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };

/** The parts of a memory bar: [colour of a process's first role, share of the whole]; last what no role is known to hold. */
function parts(use, colours) {
  if (use.gib === null || !use.of) return [];
  const known = Object.entries(use.roles).map(([roles, gib]) => [colours[roles.split(", ")[0]], gib]).filter(([colour, gib]) => colour && gib > 0);
  const rest = use.gib - known.reduce((sum, [, gib]) => sum + gib, 0);
  return [...known.map(([colour, gib]) => [colour, gib / use.of]), ["wire", Math.max(0, rest) / use.of]];
}

/** What the processes of a role hold on all its devices, in words. */
function memoryOf(role, uses) {
  const mine = uses.flatMap((use) => Object.entries(use?.roles ?? {})).filter(([roles]) => roles.split(", ").includes(role));
  if (!mine.length) return "not told for this role";
  const others = [...new Set(mine.flatMap(([roles]) => roles.split(", ")))].filter((other) => other !== role);
  const gib = mine.reduce((sum, [, held]) => sum + held, 0).toFixed(1);
  return `${gib} GiB in ${mine.length > 1 ? `${mine.length} processes` : "one process"}${others.length ? `, shared with ${others.join(", ")}` : ""}`;
}

/** What the processes on a device hold, each by its roles; of others that there is more. */
function held(use) {
  if (!use || use.gib === null) return NONE;
  const known = Object.entries(use.roles).filter(([roles, gib]) => roles && gib > 0), rest = use.gib - known.reduce((sum, [, gib]) => sum + gib, 0);
  const words = known.map(([roles, gib]) => `${roles} ${gib.toFixed(1)} GiB`);
  return [memoryWords(use, true), ...words, ...(known.length && rest > 0.05 ? [`others ${rest.toFixed(1)} GiB`] : [])].join("; ");
}

/** What a screen reader is told of a device. */
function deviceWords(device, use, roles) {
  const numbers = use ? `busy ${percent(use.busy)}, memory ${memoryWords(use, true)}${[use.why, use.facts].map((text) => text && `, ${text}`).join("")}` : "no sample yet";
  return `${device}: ${numbers}; ${roles.join(", ") || "no role"}`;
}

/** The head of one tile. The bars are there from the beginning; an update sets widths and texts, and nothing else. */
class HeadView {
  constructor(parent, tile, colours, high) {
    this.colours = colours;
    this.roomy = tile.width >= ROOMY;
    this.room = tile.width - 2 * PAD - (this.roomy ? WIDE : TIGHT);
    this.x = tile.x + PAD;
    this.y = tile.y;
    const right = tile.x + tile.width - PAD;
    this.root = shape(parent, "g", { class: "wb-head", "data-device": tile.device, role: "button", tabindex: -1 });
    shape(this.root, "rect", { x: tile.x + 1.5, y: tile.y + 1.5, width: tile.width - 3, height: high - 3, rx: 3, class: "wb-ring" });
    this.hint = shape(this.root, "title", {});
    shape(this.root, "text", { x: this.x, y: tile.y + 17, class: "wb-gpu" }).textContent = tile.name;
    this.phase = this.roomy ? shape(this.root, "text", { x: right, y: tile.y + 17, "text-anchor": "end", class: "wb-small" }) : null;
    for (const y of [BUSY, FULL]) shape(this.root, "rect", { x: this.x, y: tile.y + y - BAR, width: this.room, height: BAR, rx: 2, class: "wb-rail" });
    this.busy = shape(this.root, "rect", { x: this.x, y: tile.y + BUSY - BAR, width: 0, height: BAR, rx: 2, class: "wb-busy" });
    this.full = shape(this.root, "g", {});
    this.texts = [BUSY, FULL].map((y) => shape(this.root, "text", { x: right, y: tile.y + y, "text-anchor": "end", class: "wb-small wb-ink" }));
  }

  show(use, words, phase) {
    say(this.hint, words);
    this.root.setAttribute("aria-label", words);
    if (this.phase) say(this.phase, phase);
    say(this.texts[0], use ? percent(use.busy) : NONE);
    say(this.texts[1], use ? memoryWords(use, this.roomy) : NONE);
    this.busy.setAttribute("width", this.room * Math.min(1, use?.busy ?? 0));
    const filled = use ? parts(use, this.colours) : [];
    while (this.full.children.length > filled.length) this.full.lastChild.remove();
    let x = this.x;
    filled.forEach(([colour, share], i) => {
      const box = this.full.children[i] ?? shape(this.full, "rect", { y: this.y + FULL - BAR, height: BAR });
      const width = this.room * Math.min(1, share);
      box.setAttribute("x", x);
      box.setAttribute("width", Math.max(0, width - 0.5));
      box.style.fill = `var(--wb-${colour})`;
      x += width;
    });
  }
}

function layout(el) {
  const root = rooted(el, "topology", "Machine of the run, live");
  const out = { root, heading: headed(root) };
  out.keys = element(root, "div", "wb-keys");
  out.keys.setAttribute("role", "group");
  out.keys.setAttribute("aria-label", "Roles");
  out.machine = element(root, "div", "wb-machine");
  out.about = element(root, "div", "wb-about");
  out.about.setAttribute("role", "region");
  return out;
}

/** One button a role: the key of the colours, and the way to its numbers. Arrows go from one to the next. */
function keys(parent, roles, choose) {
  parent.replaceChildren();
  return roles.map(({ role, colour, devices }, i) => {
    const button = element(parent, "button");
    button.type = "button";
    button.dataset.role = role;
    button.style.setProperty("--wb-key", `var(--wb-${colour})`);
    element(button, "i");
    say(element(button, "b"), role);
    say(element(button, "span"), devices.length > 2 ? `${devices[0]} … ${devices.at(-1)}` : devices.join(", ") || SERVICE);
    button.addEventListener("click", () => choose(role));
    button.addEventListener("keydown", ({ key }) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (move) parent.children[(i + move + roles.length) % roles.length].focus();
      if (key === "Escape") choose(null);
    });
    return button;
  });
}

/** Tab comes to one of `nodes`, arrows go on from there; Enter and a click choose, Escape lets go. */
function reached(nodes, choose) {
  nodes[0]?.setAttribute("tabindex", 0);
  nodes.forEach((node, i) => {
    const go = (to) => (nodes.forEach((one) => one.setAttribute("tabindex", one === to ? 0 : -1)), to.focus());
    node.addEventListener("click", () => choose(node.dataset.device));
    node.addEventListener("keydown", (event) => {
      const to = ARROWS[event.key] && nodes[(i + ARROWS[event.key] + nodes.length) % nodes.length];
      if (!to && event.key !== "Enter" && event.key !== " " && event.key !== "Escape") return;
      event.preventDefault();
      if (to) go(to);
      else choose(event.key === "Escape" ? null : node.dataset.device);
    });
  });
}

/** The numbers of the chosen device. */
function deviceRows(use, roles, now) {
  const phases = new Set(roles.flatMap(({ phases }) => phases));
  return [
    ["roles", roles.map(({ role }) => role).join(", ") || "none"],
    ["busy now", use ? `${percent(use.busy)}${use.why && `, ${use.why}`}` : "no sample yet"],
    ["memory", held(use)],
    ["phases", [...phases].map((phase) => `${phase} ${now.seconds[phase] ?? NONE}`).join(", ") || "none"],
    ...(use?.facts ? [["more", use.facts]] : []),
  ];
}

/** The numbers and routes of the chosen role. */
function roleRows(role, now) {
  const uses = role.devices.map((device) => [device, now.uses[device]]);
  const known = uses.filter(([, use]) => use && use.busy !== null);
  const mean = known.length ? percent(known.reduce((sum, [, use]) => sum + use.busy, 0) / known.length) : NONE;
  return [
    ["devices", role.devices.join(", ") || SERVICE],
    ["busy now", `${mean}${known.length > 1 ? `, mean of ${known.length} devices` : ""}${known.length ? "; what others do there counts too" : ""}`],
    ["memory", memoryOf(role.role, uses.map(([, use]) => use))],
    ["phases", role.phases.map((phase) => `${phase} ${now.seconds[phase] ?? NONE}`).join(", ") || "none"],
    ...role.routes,
  ];
}

/** What is said of the chosen one; nothing where none is. */
function about(parent, name, rows) {
  parent.hidden = !rows;
  if (!rows) return;
  parent.setAttribute("aria-label", name);
  if (!parent.children.length) (element(parent, "b", "wb-name"), element(parent, "dl"));
  say(parent.children[0], name);
  const list = parent.children[1];
  while (list.children.length > 2 * rows.length) list.lastChild.remove();
  rows.forEach(([name, text], i) => {
    say(list.children[2 * i] ?? element(list, "dt"), name);
    say(list.children[2 * i + 1] ?? element(list, "dd"), text);
  });
}

function render({ model, el }) {
  const out = layout(el);
  let chosen = null, heads = [], marks = [], buttons = [];
  const choose = (name) => {
    chosen = name === chosen ? null : name;
    update();
  };
  const draw = () => {
    const picture = model.get("picture"), roles = model.get("roles");
    if (!picture.svg) return;
    const colours = Object.fromEntries(roles.map(({ role, colour }) => [role, colour]));
    out.machine.innerHTML = picture.svg;
    const svg = out.machine.firstElementChild;
    svg.querySelector("style")?.remove(); // the colours are the view's, which knows the page's theme
    svg.removeAttribute("aria-labelledby");
    const layer = shape(svg, "g", { class: "wb-layer" });
    heads = picture.tiles.map((tile) => [tile.device, new HeadView(layer, tile, colours, picture.head)]);
    svg.setAttribute("role", heads.length ? "group" : "img"); // what is in a picture can't be reached
    reached(heads.map(([, head]) => head.root), choose);
    marks = picture.places.map(({ role, x, y, width, height }) => {
      const mark = shape(layer, "g", { class: "wb-place", "data-role": role });
      shape(mark, "rect", { x, y, width, height, rx: 3 });
      shape(mark, "path", { d: `M${x + 8} ${y + 5}v8l6.5 -4z` }); // at work, also where colours can't be told apart
      mark.addEventListener("click", () => choose(role));
      return mark;
    });
    buttons = keys(out.keys, roles, choose);
    update();
  };
  const update = () => {
    const now = model.get("now"), roles = model.get("roles");
    heading(out, now);
    const on = (device) => roles.filter(({ devices }) => devices.includes(device));
    for (const [device, head] of heads) {
      const here = on(device), running = now.phase.split(", ").filter((phase) => here.some(({ phases }) => phases.includes(phase)));
      head.show(now.uses[device], deviceWords(device, now.uses[device], here.map(({ role }) => role)), running.join(", "));
      head.root.setAttribute("aria-pressed", String(device === chosen));
    }
    out.machine.firstElementChild?.setAttribute("aria-label", now.status);
    const role = roles.find(({ role }) => role === chosen), isRole = role !== undefined;
    for (const mark of [...marks, ...buttons]) {
      mark.toggleAttribute("data-running", now.at_work.includes(mark.dataset.role));
      mark.toggleAttribute("data-dim", isRole && chosen !== mark.dataset.role);
    }
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.role === chosen));
    about(out.about, chosen, role ? roleRows(role, now) : chosen && deviceRows(now.uses[chosen], on(chosen), now));
  };
  update();
  draw();
  const leave = follow(out.root, model.get("palette"), () => {});
  model.on("change:picture", draw);
  model.on("change:roles", draw);
  model.on("change:now", update);
  return () => {
    model.off("change:picture", draw);
    model.off("change:roles", draw);
    model.off("change:now", update);
    leave();
  };
}

export default { render };
