// Draws what `curves.py` describes: `head` (words) and `chart` (panels of lines). All numbers, ticks and sentences come from
// there; here is only geometry, the theme, and the read-out under the pointer. No history, no library, no network.

function layout(el) {
  const root = rooted(el, "curves", "Training run, live");
  const top = element(root, "div", "wb-top");
  const parts = { root };
  for (const name of ["state", "title", "badge", "subtitle", "count", "clock"]) parts[name] = element(top, "span", `wb-${name}`);
  parts.state.setAttribute("role", "status");
  parts.bar = element(root, "div", "wb-bar");
  parts.bar.setAttribute("role", "progressbar");
  parts.fill = element(parts.bar, "i");
  parts.status = element(element(root, "div", "wb-status"), "span");
  parts.facts = element(root, "div", "wb-facts");
  parts.panels = element(root, "div", "wb-panels");
  parts.samples = element(root, "div", "wb-excerpt");
  parts.more = element(root, "details", "wb-more"); // last, so that it moves nothing when it comes
  parts.fold = element(parts.more, "summary");
  parts.folded = element(parts.more, "div", "wb-panels");
  parts.error = element(root, "pre", "wb-error");
  return parts;
}

function showFacts(parent, facts) {
  facts.forEach((fact, i) => {
    const cell = parent.children[i] ?? element(parent, "div", "wb-fact");
    cell.toggleAttribute("data-empty", fact.value === "—");
    cell.title = fact.note;
    ["label", "value", "note"].forEach((name, k) => say(cell.children[k] ?? element(cell, "div", `wb-${name}`), fact[name]));
  });
}

function showSamples(parent, head, rows) {
  const heading = head.samples.length ? `Samples of step ${head.samples_step}` : "Samples";
  const table = [[heading, "completion", "answer", "reward"]];
  for (let i = 0; i < rows; i++) {
    const sample = head.samples[i];
    table.push(sample ? [sample.prompt, sample.completion, sample.answer, sample.reward] : ["", "", "", ""]);
  }
  table.forEach((cells, i) => {
    const row = parent.children[i] ?? element(parent, "div", "wb-row");
    cells.forEach((text, k) => {
      const cell = row.children[k] ?? element(row, i && k < 3 ? "code" : "span");
      say(cell, text);
      if (i) cell.title = text;
    });
  });
}

function showHead(parts, head) {
  parts.root.dataset.state = head.state;
  for (const name of ["state", "title", "badge", "subtitle", "count", "clock"]) say(parts[name], head[name]);
  parts.bar.toggleAttribute("data-moving", head.fraction === null && head.waited !== null);
  const percent = Math.round(100 * (head.fraction ?? 0));
  parts.fill.style.width = `${percent}%`;
  parts.bar.setAttribute("aria-label", head.status || head.count);
  if (head.fraction === null) parts.bar.removeAttribute("aria-valuenow");
  else parts.bar.setAttribute("aria-valuenow", percent);
  showFacts(parts.facts, head.facts);
  showSamples(parts.samples, head, 4);
  parts.error.hidden = !head.error;
  say(parts.error, head.error);
}

/** As many views in `parent` as there are panels. */
function fill(views, parent, panels, hover) {
  while (views.length < panels.length) views.push(new PanelView(parent, hover));
  while (views.length > panels.length) views.pop().svg.remove();
}

function drawn(views, data, panels) {
  views.forEach((view, i) => {
    const width = view.svg.clientWidth; // 0 on a fold that is closed
    if (width > LEFT + RIGHT + 20) view.draw(data, panels[i], width);
  });
}

function render({ model, el }) {
  const parts = layout(el);
  let at = null, arrived = 0;
  const hover = (point) => {
    if (point === at) return;
    at = point;
    read();
  };
  const views = [], more = [];
  const read = () => [...views, ...more].forEach((view) => view.chart && view.svg.clientWidth && view.read(at));
  const status = () => {
    const { status: text, waited } = model.get("head");
    const seconds = waited === null ? 0 : Math.round(waited + (performance.now() - arrived) / 1000);
    say(parts.status, waited === null || seconds < 1 ? text : `${text} · ${seconds} s`);
    parts.status.title = text;
  };
  const head = () => {
    arrived = performance.now();
    showHead(parts, model.get("head"));
    status();
  };
  const chart = () => {
    const data = model.get("chart");
    fill(views, parts.panels, data.panels, hover);
    fill(more, parts.folded, data.more, hover);
    parts.more.hidden = !data.fold;
    say(parts.fold, data.fold);
    drawn(views, data, data.panels);
    drawn(more, data, data.more);
    if (at !== null && at >= data.first.length) at = null; // merged away
    if (at !== null) read();
  };
  const clock = setInterval(status, 1000);

  head();
  chart();
  parts.more.addEventListener("toggle", chart);
  const leave = follow(parts.root, model.get("palette"), chart);
  model.on("change:head", head);
  model.on("change:chart", chart);
  return () => {
    model.off("change:head", head);
    model.off("change:chart", chart);
    clearInterval(clock);
    leave();
  };
}

export default { render };
