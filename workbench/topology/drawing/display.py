"""A scene where people look: a notebook's cell, and files."""

import os
from base64 import b64encode
from contextlib import suppress
from html import escape
from pathlib import Path
from threading import get_ident

from workbench.errors import ConfigError
from workbench.topology.drawing.png import png
from workbench.topology.drawing.scene import Scene, printable
from workbench.topology.drawing.svg import Theme, svg

SUFFIXES = (".svg", ".png")


def bundle(scene: Scene, text: str) -> dict[str, str]:
    """MIME type to content. JupyterLab shows the first of HTML and PNG that it knows."""
    image = png(scene)
    return {"text/plain": text, "text/html": html(scene, image), "image/png": b64encode(image).decode()}


def html(scene: Scene, image: bytes) -> str:
    """The SVG, which follows the page's theme; the image where a page takes SVG out.

    JupyterLab does so in an untrusted notebook, what ran headless for instance: it takes the style away, which hides the image, and leaves
    the words of the SVG, which the text's size of nothing hides.
    """
    source = b64encode(image).decode()
    style = "width:100%;max-width:900px;border-radius:8px"
    return (
        f'<style>.wb-machine+img{{display:none}}</style><div style="font-size:0px;line-height:0">{svg(scene, "auto")}'
        f'<img alt="{escape(printable(scene.description))}" style="{style}" src="data:image/png;base64,{source}"></div>'
    )


def save(scene: Scene, path: str | Path, theme: Theme | None = None) -> Path:
    """Write the drawing, whole or not at all, as the suffix says: .svg (theme "auto" where left out) or .png ("light").

    Raises ConfigError where the path, the suffix or the theme is none, or the file can't be written.
    """
    if not isinstance(path, str | Path):
        raise ConfigError(f"save({path!r})", f"that is a {type(path).__name__}", "give a path such as 'map.svg'")
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"save({str(path)!r})", f"{target.suffix or 'no suffix'} is no kind of drawing", "end the name with .svg or .png")
    is_svg = target.suffix.lower() == ".svg"
    content = svg(scene, theme or "auto").encode() if is_svg else png(scene, theme or "light")
    part = target.with_name(f".{os.getpid()}-{get_ident()}.part")  # short: the name may be as long as a name can be
    try:
        part.write_bytes(content)
        part.replace(target)
    except (OSError, ValueError) as error:  # ValueError: a NUL or a lone surrogate in the path
        with suppress(OSError, ValueError):
            part.unlink()
        why = getattr(error, "strerror", None) or "no file can have this name"
        raise ConfigError(f"save({str(path)!r})", f"it can't be written: {why}", "name a file in a folder that exists") from error
    return target
