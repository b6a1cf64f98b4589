"""``workbench publish``: an executed notebook as it can be shown, on a code host or as a page that needs no network.

What goes: widgets and their state, scripts, drawings that hosts take out (their pictures stay), metadata of tools, times of execution,
which differ from run to run. What stays: texts, code, numbers of execution, which say in what order cells ran, tags. Home folders become
"~" and tokens "***"; what is in pictures nobody reads.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from workbench.errors import ConfigError
from workbench.headless.masks import Masks
from workbench.headless.notebook import read_notebook
from workbench.headless.page import page, pictures_of
from workbench.headless.shown import Shown, on_a_host, on_a_page
from workbench.views.text import size

_LANGUAGE = ("name", "version", "file_extension", "mimetype", "codemirror_mode", "pygments_lexer", "nbconvert_exporter")
_KERNEL = ("name", "display_name", "language")
_CELL = ("tags", "slideshow", "collapsed", "jupyter")


@dataclass(frozen=True)
class Remark:
    """One thing that a reader of the publication should know. ``cell``: its number, "" for the whole. Some are warnings."""

    cell: str
    text: str
    is_warning: bool = True

    def __str__(self) -> str:
        return f"{'warning' if self.is_warning else 'note'}: {f'{self.cell}: ' if self.cell else ''}{self.text}"


@dataclass(frozen=True)
class Published:
    """What was written, and what was seen on the way. ``before``, ``after``: bytes."""

    target: Path
    before: int
    after: int
    remarks: tuple[Remark, ...]

    @property
    def has_warnings(self) -> bool:
        """Whether something should be looked at before others see it."""
        return any(remark.is_warning for remark in self.remarks)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.remarks), f"published: {self.target} ({size(self.after)}, the notebook has {size(self.before)})"])


def publish(
    notebook: Path, target: Path | None = None, *, html: bool = False, force: bool = False, masks: Masks | None = None
) -> Published:
    """Write ``notebook`` as it can be shown to ``target`` (NAME-published.ipynb beside it; with ``html`` NAME.html, a page).

    Raises ConfigError where it is no notebook or was not executed, and where the target is the notebook, is there (unless ``force``) or
    can't be written.
    """
    found = read_notebook(notebook)
    _check_executed(found, notebook)
    target = target or notebook.with_name(f"{notebook.stem}.html" if html else f"{notebook.stem}-published.ipynb")
    _check_target(target, notebook, html=html, force=force)
    remarks = [*_seen(found), *_cleaned(found, on_a_page if html else on_a_host, masks or Masks.of_this_machine())]
    if html:
        text, addresses = page(found, notebook)
        remarks += [Remark("", f"{address} is not taken in: the page loads nothing") for address in addresses]
    else:
        nbformat.validate(found, relax_add_props=True)
        text = nbformat.writes(found) + "\n"
        remarks += _moved_away(found, notebook, target)
    _write(target, text)
    return Published(target, notebook.stat().st_size, target.stat().st_size, tuple(remarks))


def _check_executed(notebook: NotebookNode, path: Path) -> None:
    if not any(cell.get("execution_count") or cell.get("outputs") for cell in notebook.cells):
        fix = f"run it and publish what that writes: workbench run {path} -o executed.ipynb"
        raise ConfigError(f"notebook {path}", "it was not executed: no cell has an output", fix)


def _check_target(target: Path, notebook: Path, *, html: bool, force: bool) -> None:
    asked, suffix = f"--out {target}", ".html" if html else ".ipynb"
    try:
        is_there, is_itself = target.exists(), target.exists() and target.samefile(notebook)
    except OSError as error:
        raise _unwritable(target, error) from error
    if target.suffix != suffix:
        other = "leave --html out" if html else "give --html for a page"
        raise ConfigError(asked, f"what is written is {'a page' if html else 'a notebook'}", f"end the name with {suffix}, or {other}")
    if is_itself:
        raise ConfigError(asked, "that is the notebook itself", "name another file: what is left out can't be put back")
    if is_there and not force:
        raise ConfigError(asked, "there is a file already", "give --force to replace it, or name another with --out")


def _seen(notebook: NotebookNode) -> Iterator[Remark]:
    """How it was executed, where that is not from the first cell to the last without a fault."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    missed = [cell for cell in code if not cell.execution_count]
    if missed:
        first = missed[0].source.strip().splitlines()[0][:60]
        yield Remark("", f"{len(missed)} of {len(code)} code cells were not executed, the first is {first!r}")
    counts = [cell.execution_count for cell in code if cell.execution_count]
    if counts != sorted(counts):
        yield Remark("", "cells were executed in another order than they stand in: who runs it from the top may get something else")
    for cell in code:
        for output in cell.outputs:
            if output.output_type == "error":
                yield Remark(_name(cell), f"it failed: {output.ename}: {output.evalue.splitlines()[0] if output.evalue else ''}")


def _cleaned(notebook: NotebookNode, shown: Callable[[NotebookNode], Shown], masks: Masks) -> Iterator[Remark]:
    """Make the notebook fit to be shown, in place."""
    notebook.metadata = _metadata(notebook.metadata)
    for cell in notebook.cells:
        cell.metadata = NotebookNode({name: cell.metadata[name] for name in _CELL if name in cell.metadata})
        cell.source = masks.hide(cell.source)
        found = [shown(output) for output in cell.get("outputs", ())]
        if cell.cell_type == "code":
            cell.outputs = [_hidden(output, masks) for one in found for output in one.outputs]
        yield from (Remark(_name(cell), f"an output {text}") for one in found for text in one.remarks)
        yield from _told(_name(cell), *masks.taken())


def _told(cell: str, tokens: Sequence[str], homes: int) -> Iterator[Remark]:
    for what in tokens:
        yield Remark(cell, f"{what} is hidden; if others may have seen it, make it invalid")
    if homes:
        yield Remark(cell, "the path of a home folder is written as ~", is_warning=False)


def _metadata(found: NotebookNode) -> NotebookNode:
    """What front ends need to show code; no widgets' state, nothing of papermill, whose parameters hold paths."""
    parts = (("kernelspec", _KERNEL), ("language_info", _LANGUAGE))
    kept = {
        part: NotebookNode({name: found[part][name] for name in names if name in found[part]}) for part, names in parts if part in found
    }
    return NotebookNode(kept)


def _hidden(output: NotebookNode, masks: Masks) -> NotebookNode:
    """An output without secrets in its texts."""
    for name in ("text", "evalue"):
        if name in output:
            output[name] = masks.hide(output[name])
    if "traceback" in output:
        output.traceback = [masks.hide(line) for line in output.traceback]
    for mime, content in output.get("data", {}).items():
        if mime.startswith("text/") or mime == "image/svg+xml":
            output.data[mime] = masks.hide(content)
    return output


def _moved_away(notebook: NotebookNode, source: Path, target: Path) -> Iterator[Remark]:
    """Pictures in texts that are files beside the notebook, where the copy stands elsewhere."""
    for cell in notebook.cells:
        for name in pictures_of(cell) if cell.cell_type == "markdown" else ():
            if (source.parent / name).is_file() and not (target.parent / name).is_file():
                yield Remark("", f"the picture {name} stands beside the notebook, and not beside {target}: take it along")


def _name(cell: NotebookNode) -> str:
    if cell.cell_type != "code":
        return f"text {cell.source.strip().splitlines()[0][:40]!r}" if cell.source.strip() else "a text"
    return f"cell [{cell.execution_count or ' '}]"


def _write(target: Path, text: str) -> None:
    """Whole or not at all. Half a character, as a text has that was cut, becomes a question mark: no file can hold it."""
    part = target.with_name(f".{target.name}.part")
    try:
        part.write_text(text, encoding="utf-8", errors="replace")
        part.replace(target)
    except OSError as error:
        with suppress(OSError):  # where there is no such folder there is no part
            part.unlink()
        raise _unwritable(target, error) from error


def _unwritable(target: Path, error: OSError) -> ConfigError:
    return ConfigError(f"--out {target}", f"it can't be written ({error.strerror})", "name a file in a folder that you may write")
