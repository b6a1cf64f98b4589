// What the views of the machine, of its load and of its phases have in common: shapes, and numbers in words.

const SVG = "http://www.w3.org/2000/svg";
const NONE = "—";

const percent = (share) => (share === null ? "n/a" : `${Math.round(100 * share)}%`);

/** As `memory_words` in heads.py: long where there is room. */
function memoryWords(use, roomy) {
  if (use.gib === null) return "n/a";
  if (use.of === null) return roomy ? `${use.gib.toFixed(1)} GiB` : `${use.gib.toFixed(0)} G`;
  if (roomy) return `${use.gib.toFixed(1)} of ${use.of.toFixed(0)} GiB`;
  const short = `${use.gib.toFixed(0)}/${use.of.toFixed(0)}`;
  return short.length <= 5 ? short : use.gib.toFixed(0);
}

function shape(parent, tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent.append(made);
  return made;
}
