"""An executed notebook as one HTML file: no script, no request, light and dark as the reader's system is.

nbconvert makes the body; the colours and the frame are ours, a tenth of the size of a notebook front end's style sheet. A policy in the
page forbids whatever would be loaded, so that a picture from elsewhere stays away and is told of.
"""

import logging
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from nbformat import NotebookNode

from workbench.errors import ConfigError

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_LEADS_AWAY = re.compile(r"<(?:meta|base)\b[^>]*>", re.IGNORECASE)  # to another page by itself, which no policy forbids
_STYLE = Path(__file__).with_name("page.css")
_IMAGE = re.compile(r"""!\[[^\]]*\]\(\s*<?([^)\s>]+)|<img\b[^>]*?\bsrc=["']([^"']+)""", re.IGNORECASE)
_LOADED = re.compile(
    r"""<(?:img|source|audio|video|iframe|link|object)\b[^>]*?\b(?:src|href|data)=["']((?!data:|#)[^"']+)""", re.IGNORECASE
)


def page(notebook: NotebookNode, path: Path) -> tuple[str, list[str]]:
    """The page, and the addresses of what it does not show: it would have to load them.

    Pictures beside the notebook, which is at ``path``, are taken in. Raises ConfigError where a text can't be drawn.
    """
    from nbconvert.exporters import HTMLExporter
    from nbconvert.filters.markdown_mistune import InvalidNotebook

    quiet = logging.getLogger("workbench.publish")
    quiet.setLevel(logging.ERROR)  # it speaks of pictures without words, each of which a person would have had to describe
    exporter = HTMLExporter(template_name="basic", embed_images=True, exclude_anchor_links=True, log=quiet)
    try:
        body, _ = exporter.from_notebook_node(notebook, {"metadata": {"path": str(path.parent)}})
    except (OSError, InvalidNotebook, RecursionError) as error:  # a picture that is a folder, an attachment that is not there
        fix = "mend that text in the notebook, or publish it without --html"
        raise ConfigError(f"a page of {path}", f"a text or an output can't be drawn ({error})", fix) from error
    body = _LEADS_AWAY.sub("", body)
    return _framed(body, _title(notebook, path)), list(dict.fromkeys(_LOADED.findall(body)))


def pictures_of(cell: NotebookNode) -> Iterator[str]:
    """The files that a text shows as pictures."""
    for one, other in _IMAGE.findall(cell.source):
        name = one or other
        if not re.match(r"[a-z]+:", name, re.IGNORECASE):
            yield name


def _title(notebook: NotebookNode, path: Path) -> str:
    """Its first heading, else the name of the file."""
    texts = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    heading = re.search(r"^#\s+(.+)$", texts, re.MULTILINE)
    return heading[1].strip() if heading else path.stem


def _framed(body: str, title: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )
