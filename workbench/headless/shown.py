"""Outputs of cells as a code host shows them, and as an offline page does: no widget, no script, pictures as pictures."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_output

from workbench.headless.pictures import Picture, parts

WIDGET = "application/vnd.jupyter.widget-view+json"
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/svg+xml")
SHOWN = (*PICTURES, "text/html", "text/markdown", "text/latex", "text/plain")
_LOST = {
    "script": "needs JavaScript, of which a code host and an offline page show nothing",
    "svg": "has a drawing in SVG, which code hosts take out, and no picture beside it",
}


@dataclass(frozen=True)
class Shown:
    """What takes the place of one output: often one, none where nothing of it can be shown. ``remarks``: what was lost."""

    outputs: tuple[NotebookNode, ...]
    remarks: tuple[str, ...] = ()


def on_a_host(output: NotebookNode) -> Shown:
    """One output for GitHub, GitLab, and notebooks that are not trusted. Pictures in HTML, which these take out, become outputs."""
    if "data" not in output:
        return Shown((output,))
    data = _kept(output.data)
    cut = parts(data["text/html"]) if "text/html" in data else None
    if cut is None or not cut.parts:
        remarks = tuple(_LOST[name] for name in cut.lost) if cut else ()
        rest = _without(data, "text/html")
        return _one(output, rest, remarks if not _has_picture(rest) else ())
    if any(isinstance(part, Picture) for part in cut.parts):
        data = _without(data, *PICTURES)  # of the same
    lost = () if _has_picture(data) else tuple(_LOST[name] for name in cut.lost)
    made = [{"text/html": part} if isinstance(part, str) else {part.mime: part.data, "text/plain": part.alt} for part in cut.parts]
    first = {**_without(data, "text/html"), **made[0]}
    return Shown((_like(output, first), *(new_output("display_data", data=rest) for rest in made[1:])), lost)


def on_a_page(output: NotebookNode) -> Shown:
    """One output for a page that runs no script: drawings stay SVG, which follows the page's colours."""
    if "data" not in output:
        return Shown((output,))
    data = _kept(output.data)
    html = data.get("text/html", "")
    remarks = (_LOST["script"],) if re.search(r"<script\b", html, re.IGNORECASE) else ()
    if html:
        data["text/html"] = _unscripted(html)
    return _one(output, data, remarks)


def _unscripted(html: str) -> str:
    """Without scripts, and without the pictures that stand for a drawing where SVG is taken out."""
    html = re.sub(r"<script\b.*?</script\s*>", "", html, flags=re.IGNORECASE | re.DOTALL)
    return re.sub(r'(<svg\b[^>]*class="wb-machine".*?</svg>)<img\b[^>]*>', r"\1", html, flags=re.DOTALL)


def _kept(data: Mapping[str, Any]) -> dict[str, Any]:
    """What can be shown without a widget manager. An SVG goes where a picture of another kind is there: it is shown everywhere."""
    kept = {mime: content for mime, content in data.items() if mime in SHOWN}
    if any(mime in kept for mime in PICTURES[:3]):
        kept.pop("image/svg+xml", None)
    return kept


def _one(output: NotebookNode, data: dict[str, Any], remarks: tuple[str, ...]) -> Shown:
    if not data:
        kinds = ", ".join(output.data) or "no kind"
        return Shown((), (*remarks, f"is of {kinds} alone, of which a code host shows nothing: it is left out"))
    if WIDGET in output.data and not set(data) - {"text/plain"}:
        remarks = (*remarks, "is a widget without a static twin: its text stands there")
    return Shown((_like(output, data),), remarks)


def _like(output: NotebookNode, data: dict[str, Any]) -> NotebookNode:
    """An output of the same kind; of its metadata the sizes of pictures."""
    sizes = {mime: said for mime, said in output.metadata.items() if mime in data and mime in PICTURES}
    more = {"execution_count": output.execution_count} if output.output_type == "execute_result" else {}
    return new_output(output.output_type, data=data, metadata=sizes, **more)


def _without(data: Mapping[str, Any], *mimes: str) -> dict[str, Any]:
    return {mime: content for mime, content in data.items() if mime not in mimes}


def _has_picture(data: Mapping[str, Any]) -> bool:
    return any(mime in data for mime in PICTURES)
