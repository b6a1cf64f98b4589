"""A live view in a real chromium on a page as small as can be, and the logic of its module in node."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.views.live import Live, source

# What a widget manager gives to a view: a model with get, on, off and send.
HOST = """async ([esm, css, state, background]) => {
  document.head.insertAdjacentHTML("beforeend", `<style>body { margin: 16px; background: ${background} }${css}</style>`);
  document.body.innerHTML = "<div id=one></div>";
  const hooks = {}, sent = [];
  const model = {
    get: (name) => state[name],
    on: (name, hook) => (hooks[name] ??= []).push(hook),
    off: (name, hook) => (hooks[name] = hooks[name].filter((other) => other !== hook)),
    send: (content) => sent.push(content),
    set: (name, value) => {
      const same = JSON.stringify(state[name]) === JSON.stringify(value);
      state[name] = value;
      if (!same) hooks[`change:${name}`]?.forEach((hook) => hook());
    },
  };
  const module = await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })));
  window.host = { model, hooks, sent, stop: module.default.render({ model, el: document.getElementById("one") }) };
}"""


def logic(names: Sequence[str], expression: str) -> Any:
    """What ``expression`` comes to in the module made of the files ``names``; node knows nothing of a page."""
    module = source(*names).replace("export default { render };", "")
    run = ["node", "--input-type=module", "-e", f"{module}\nconsole.log(JSON.stringify({expression}))"]
    return json.loads(subprocess.run(run, capture_output=True, text=True, check=True, timeout=60).stdout)


class Shown:
    """A page that shows ``view``; ``pass_on`` plays the kernel."""

    def __init__(self, page: Any, view: Live, *, dark: bool) -> None:
        self.page, self.view = page, view
        self.traits = [
            name for name in view.traits(sync=True) if not name.startswith("_") and name not in ("tabbable", "tooltip", "layout")
        ]
        page.set_content("<!doctype html><html lang=en><body></body></html>")
        page.evaluate(HOST, [view._esm, view._css, self.state, "#111" if dark else "#fff"])
        page.wait_for_selector('#one [data-wb-view][data-ready="1"]')

    @property
    def state(self) -> dict[str, Any]:
        """What a front end gets of the view."""
        return {name: getattr(self.view, name) for name in self.traits}

    def pass_on(self) -> list[Any]:
        """Give what was sent to the view, and its traits to the page. Returns what was sent."""
        sent: list[Any] = self.page.evaluate("host.sent.splice(0)")
        for content in sent:
            self.view._handle_custom_msg(content, [])
        self.view.update()
        self.page.evaluate("(state) => Object.entries(state).forEach(([name, value]) => host.model.set(name, value))", self.state)
        return sent

    def one(self, selector: str) -> Any:
        """The only element that ``selector`` finds."""
        return self.page.locator(selector)

    def words(self, selector: str) -> list[str]:
        """The texts of all elements that ``selector`` finds."""
        return self.page.locator(selector).all_text_contents()  # type: ignore[no-any-return]

    def shoot(self, name: str) -> None:
        """A screenshot, where WORKBENCH_SCREENSHOTS names a folder."""
        if folder := os.environ.get("WORKBENCH_SCREENSHOTS"):
            self.page.locator("#one").screenshot(path=Path(folder) / f"{name}.png")
