// What a person asks of the kernel, which answers when no cell runs.

const PATIENCE = 600; // ms until an unanswered question is spoken of
const BUSY = "The kernel is busy with a cell; the answer comes when that ends.";

/** Sends questions; says in `foot` that the kernel is busy where one is not answered soon. */
function asking(model, foot) {
  let waiting = null;
  return {
    ask(content) {
      model.send(content);
      clearTimeout(waiting);
      waiting = setTimeout(() => say(foot, BUSY), PATIENCE);
    },
    answered() {
      clearTimeout(waiting);
      if (foot.textContent === BUSY) say(foot, "");
    },
    leave: () => clearTimeout(waiting),
  };
}

/** A button with words, for a pointer and for keys. */
function button(parent, text, words, press) {
  const made = element(parent, "button", "wb-button");
  made.type = "button";
  made.setAttribute("aria-label", words);
  made.title = words;
  say(made, text);
  made.addEventListener("click", press);
  return made;
}
