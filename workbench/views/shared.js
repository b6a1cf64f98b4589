// What every view has; `live.py` puts it before the module of the view.

const NARROW = 620; // pixels; below: one column

function element(parent, tag, className) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  parent.append(made);
  return made;
}

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Dark or light, by the first background that is painted behind the view; else by what the system prefers. */
function theme(root) {
  for (let node = root.parentElement; node; node = node.parentElement) {
    const [r, g, b, a = 1] = getComputedStyle(node).backgroundColor.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0, 0];
    if (a > 0.5) return 0.2126 * r + 0.7152 * g + 0.0722 * b < 128 ? "dark" : "light";
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** The element that holds a view. Arrows and Enter are the view's: JupyterLab takes them for its cells, and keeps a browser from obeying. */
function rooted(el, name, words) {
  const root = element(el, "section", `wb-view wb-${name}`);
  root.dataset.wbView = name;
  root.setAttribute("aria-label", words);
  root.addEventListener("keydown", (event) => event.stopPropagation());
  return root;
}

/** Keeps the colours and the width of a view those of the page around it; `resized` draws anew. Gives the way out. */
function follow(root, palette, resized) {
  const colours = () => {
    const now = theme(root);
    if (root.dataset.theme === now) return;
    root.dataset.theme = now;
    for (const [name, colour] of Object.entries(palette[now])) root.style.setProperty(`--wb-${name}`, colour);
  };
  const watch = new ResizeObserver(() => {
    colours(); // only now is the view in the page, with a background behind it
    root.toggleAttribute("data-narrow", root.clientWidth < NARROW);
    resized();
    root.dataset.ready = "1";
  });
  const clock = setInterval(colours, 1000); // the theme may change at any time, without an event
  watch.observe(root);
  return () => (clearInterval(clock), watch.disconnect());
}
