// The line above a view of the machine, of its load, of phases and of samples.

const HEADING = [["what", "wb-what"], ["state", "wb-state"], ["title", "wb-run"], ["badge", "wb-badge"], ["status", "wb-where"]];
const WHAT = { topology: "Machine", load: "Load", timeline: "Phases", samples: "Samples" };

/** The line above a view: the state, which run, how far it is, and whether it is no live one. */
function headed(root) {
  const top = element(root, "div", "wb-heading");
  const out = {};
  for (const [name, className] of HEADING) out[name] = element(top, "span", className);
  out.state.setAttribute("role", "status");
  say(out.what, WHAT[root.dataset.wbView]); // seen where several views stand together
  return out;
}

/** Fills what `headed` made. */
function heading({ root, heading }, head) {
  root.dataset.state = head.state;
  for (const name of ["state", "title", "badge", "status"]) say(heading[name], head[name] ?? "");
}
