"""A scene in a notebook's cell, and as a file."""

import re
from base64 import b64decode
from pathlib import Path

import pytest

from tests.topology.machines import HOSTILE, hostile
from workbench.errors import ConfigError
from workbench.topology import Topology
from workbench.topology.drawing.display import bundle, save
from workbench.topology.drawing.machine import draw

PNG = b"\x89PNG\r\n\x1a\n"


def test_a_bundle_has_the_drawing_and_words() -> None:
    found = bundle(draw(Topology.preset("l40s-4")), "words")
    assert found["text/plain"] == "words"
    assert b64decode(found["image/png"]).startswith(PNG)
    assert "<svg" in found["text/html"]
    assert "data-jp-theme-light" in found["text/html"]


def test_html_without_its_svg_and_style_shows_the_image_and_no_loose_words() -> None:
    # What JupyterLab leaves of an untrusted output: no style, no SVG elements, but their text.
    html = bundle(draw(hostile()), "words")["text/html"]
    left = re.sub(r"</?(?!div|img)[a-z]\w*[^>]*>", "", re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL))
    assert left.startswith('<div style="font-size:0px;')  # the words take no room
    assert left.count("<img ") == 1
    assert "display:none" not in left
    assert "<script" not in html


def test_a_topology_draws_itself() -> None:
    topology = Topology.preset("dgx1-v100")
    found = topology._repr_mimebundle_()
    assert set(found) == {"text/plain", "text/html", "image/png"}
    assert found["text/plain"] == str(topology)


@pytest.mark.parametrize(("name", "begin"), [("machine.svg", b"<svg "), ("machine.png", PNG), ("MACHINE.PNG", PNG)])
def test_save_writes_as_the_suffix_says(tmp_path: Path, name: str, begin: bytes) -> None:
    path = save(draw(Topology.preset("l40s-4")), tmp_path / name, "dark")
    assert path.read_bytes().startswith(begin)
    assert [file.name for file in tmp_path.iterdir()] == [name]  # nothing half-written beside it


@pytest.mark.parametrize(
    ("name", "theme", "message"),
    [
        ("machine.jpg", None, "end the name with"),
        ("machine", None, "no suffix"),
        ("no/such/folder.svg", None, "can't be written"),
        ("nul\0.svg", None, "no file can have this name"),
        ("lone \ud800.svg", None, "no file can have this name"),
        ("n" * 300 + ".svg", None, "File name too long"),
        ("machine.png", "auto", "the themes are light, dark"),
        ("machine.svg", HOSTILE, "the themes are light"),
    ],
)
def test_save_says_what_is_wrong(tmp_path: Path, name: str, theme: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        save(draw(Topology.preset("l40s-4")), tmp_path / name, theme)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [5, b"machine.svg", None])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(ConfigError, match="give a path such as"):
        save(draw(Topology.preset("l40s-4")), path)  # type: ignore[arg-type]


def test_a_file_in_place_of_a_folder_is_refused_and_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.svg").mkdir()
    for name in ("file/machine.svg", "folder.svg"):
        with pytest.raises(ConfigError, match="can't be written"):
            save(draw(Topology.preset("l40s-4")), tmp_path / name)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder.svg"]


def test_a_name_as_long_as_names_may_be_is_written(tmp_path: Path) -> None:
    assert save(draw(Topology.preset("l40s-4")), tmp_path / ("n" * 251 + ".svg")).exists()


def test_what_was_there_stays_where_the_new_one_can_not_be_drawn(tmp_path: Path) -> None:
    path = tmp_path / "machine.png"
    path.write_bytes(b"old")
    with pytest.raises(ConfigError):
        save(draw(Topology.preset("l40s-4")), path, "auto")
    assert path.read_bytes() == b"old"
