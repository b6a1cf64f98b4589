"""``workbench publish``: from a file to a file, with what is said about it."""

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from workbench.cli import main
from workbench.errors import ConfigError
from workbench.headless.masks import Masks
from workbench.headless.publish import publish

WIDGET = "application/vnd.jupyter.widget-view+json"
NOW = {
    "execution": {"iopub.execute_input": "2026-11-30T00:00:00Z"},
    "papermill": {"duration": 1.5},
    "tags": ["parameters"],
    "trusted": True,
}


def cell(source: str, count: int | None = 1, *outputs: Any, **metadata: Any) -> Any:
    return new_code_cell(source, execution_count=count, outputs=list(outputs), metadata=metadata)


def stream(text: str) -> Any:
    return new_output("stream", text=text)


@pytest.fixture(name="write")
def write_fixture(tmp_path: Path) -> Any:
    """Writes a notebook of cells to n.ipynb."""

    def write(*cells: Any) -> Path:
        metadata = {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python", "env": {"X": "1"}},
            "language_info": {"name": "python", "pygments_lexer": "ipython3"},
            "widgets": {"application/vnd.jupyter.widget-state+json": {"state": {"m": "x" * 1000}}},
            "papermill": {"input_path": "/home/alice/n.ipynb", "parameters": {}},
        }
        nbformat.write(new_notebook(cells=list(cells), metadata=metadata), tmp_path / "n.ipynb")
        return tmp_path / "n.ipynb"

    return write


def test_the_copy_holds_what_is_read_and_nothing_of_tools(write: Any) -> None:
    view = new_output("display_data", data={WIDGET: {"model_id": "m"}, "text/plain": "words", "image/png": "AAAA"})
    path = write(new_markdown_cell("# Title"), cell("x", 1, view, **NOW))
    done = publish(path, masks=Masks())
    assert (done.target, done.remarks) == (path.with_name("n-published.ipynb"), ())
    made = nbformat.read(done.target, as_version=4)
    nbformat.validate(made)
    assert made.metadata == {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python", "pygments_lexer": "ipython3"},
    }
    assert made.cells[1].metadata == {"tags": ["parameters"]}
    assert made.cells[1].execution_count == 1
    assert dict(made.cells[1].outputs[0].data) == {"image/png": "AAAA", "text/plain": "words"}
    assert str(done).startswith(f"published: {done.target} (")
    assert done.after < done.before


def test_secrets_are_hidden_in_code_texts_and_outputs(write: Any) -> None:
    token = "hf_" + "a1B" * 10
    failed = new_output("error", ename="E", evalue=token, traceback=[f"\x1b[31m{token}"])
    html = new_output("display_data", data={"text/html": f"<b>{token}</b>", "text/plain": "x"})
    path = write(
        new_markdown_cell(f"use {token}"), cell(f"login('{token}')", 1, stream(token), html), cell("f()", 2, failed), cell("/home/a/b", 3)
    )
    done = publish(path, masks=Masks())
    assert token not in done.target.read_text()
    said = str(done)
    assert said.count("a Hugging Face token is hidden; if others may have seen it, make it invalid") == 3
    assert "warning: text 'use ***'" in said
    assert "warning: cell [2]: it failed: E:" in said
    assert "note: cell [3]: the path of a home folder is written as ~" in said
    assert done.has_warnings


def test_how_it_was_executed_is_told(write: Any) -> None:
    said = str(publish(write(cell("a", 2), cell("b = 1\nc", None), cell("d", 1), cell("", None)), masks=Masks()))
    assert "warning: 1 of 3 code cells were not executed, the first is 'b = 1'" in said
    assert "executed in another order" in said


def test_a_page_is_one_file_that_forbids_all_requests(write: Any, tmp_path: Path) -> None:
    (tmp_path / "local.png").write_bytes(b"\x89PNG")
    text = "# The title\n\n![here](local.png) ![there](https://x.org/y.png)"
    done = publish(write(new_markdown_cell(text), cell("print('hi')", 1, stream("hi\n"))), html=True, masks=Masks())
    page = done.target.read_text()
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in page
    assert "<title>The title</title>" in page
    assert "data:image/png;base64," in page
    assert 'src="local.png"' not in page
    assert "<script" not in page
    assert [str(remark) for remark in done.remarks] == ["warning: https://x.org/y.png is not taken in: the page loads nothing"]


def test_a_picture_beside_the_notebook_has_to_be_taken_along(write: Any, tmp_path: Path) -> None:
    (tmp_path / "local.png").write_bytes(b"\x89PNG")
    (tmp_path / "out").mkdir()
    path = write(new_markdown_cell("![here](local.png)"), cell("1", 1))
    assert publish(path, masks=Masks()).remarks == ()
    assert "the picture local.png stands beside the notebook" in str(publish(path, tmp_path / "out" / "n.ipynb", masks=Masks()))


def test_what_can_not_be_published(write: Any, tmp_path: Path) -> None:
    path = write(cell("1", None))
    with pytest.raises(ConfigError, match=r"it was not executed(.|\n)*workbench run"):
        publish(path)
    (tmp_path / "no.ipynb").write_text("{")
    with pytest.raises(ConfigError, match="it is no notebook"):
        publish(tmp_path / "no.ipynb")
    path = write(cell("1", 1))
    with pytest.raises(ConfigError, match="that is the notebook itself"):
        publish(path, path, force=True)
    with pytest.raises(ConfigError, match=r"end the name with \.html, or leave --html out"):
        publish(path, tmp_path / "x.ipynb", html=True)
    with pytest.raises(ConfigError, match="it can't be written"):
        publish(path, tmp_path / "gone" / "x.ipynb")
    assert not list(tmp_path.glob(".*part"))


def test_a_file_that_is_there_is_replaced_only_by_force(write: Any) -> None:
    path = write(cell("1", 1))
    publish(path)
    with pytest.raises(ConfigError, match=r"there is a file already(.|\n)*--force"):
        publish(path)
    publish(path, force=True)


def test_the_command(write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(cell("1", 1, new_output("error", ename="E", evalue="v", traceback=[])))
    done = CliRunner().invoke(main, ["publish", "n.ipynb", "-o", "x.ipynb"])
    assert (done.exit_code, "warning: cell [1]: it failed: E: v" in done.output) == (0, True)
    assert json.loads(Path("x.ipynb").read_text())["cells"][0]["source"] in ("1", ["1"])
    assert CliRunner().invoke(main, ["publish", "n.ipynb", "-o", "x.ipynb", "--force", "--strict"]).exit_code == 1
    again = CliRunner().invoke(main, ["publish", "n.ipynb", "-o", "x.ipynb"])
    assert (again.exit_code, "there is a file already" in again.output) == (2, True)
    assert CliRunner().invoke(main, ["publish", "n.ipynb", "--html"]).exit_code == 0
    assert Path("n.html").exists()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("nbformat",), None),
        (("nbformat_minor",), "x"),
        (("metadata", "kernelspec"), None),
        (("metadata", "language_info"), 5),
        (("cells", 0, "source"), None),
        (("cells", 0, "cell_type"), {}),
        (("cells", 0, "outputs"), [{}]),
        (("cells", 0, "outputs", 0, "metadata"), None),
        (("cells", 0, "outputs", 0, "data", "text/html"), 5),
    ],
)
@pytest.mark.parametrize("html", [False, True])
def test_what_nbformat_stumbles_over_is_no_notebook(write: Any, place: tuple[Any, ...], value: Any, html: bool) -> None:
    path = write(cell("1", 1, new_output("display_data", data={"text/html": "<b>x</b>"})))
    whole = json.loads(path.read_text())
    part = whole
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    path.write_text(json.dumps(whole))
    with pytest.raises(ConfigError, match=r"notebook .*n\.ipynb: it is no notebook \(.+\)"):
        publish(path, html=html, masks=Masks())


def test_a_notebook_with_more_than_its_format_knows_is_one(write: Any) -> None:
    path = write(cell("1", 1))
    path.write_text(path.read_text().replace('"nbformat_minor": 5', '"nbformat_minor": 4'))  # cells have had ids since 5
    assert publish(path, masks=Masks()).target.exists()


def test_half_a_character_is_a_question_mark(write: Any) -> None:
    path = write(cell("1", 1, stream("hi HALF")))
    path.write_text(path.read_text().replace("HALF", "\\ud83d"))
    assert '"hi ?"' in publish(path, masks=Masks()).target.read_text()
    assert "hi ?" in publish(path, html=True, masks=Masks()).target.read_text()


@pytest.mark.parametrize("name", ["x" * 300 + ".ipynb", "n.ipynb/x.ipynb", "none/x.ipynb"])
def test_where_nothing_can_be_written(write: Any, tmp_path: Path, name: str) -> None:
    path = write(cell("1", 1))
    with pytest.raises(ConfigError, match=r"--out .*: it can't be written"):
        publish(path, tmp_path / name, masks=Masks())
    assert [file.name for file in tmp_path.iterdir()] == ["n.ipynb"]


@pytest.mark.parametrize("text", ["![a folder](.)", "![none](attachment:none.png)"])
def test_a_text_that_can_not_be_drawn_is_told(write: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=r"a page of .*n\.ipynb: a text or an output can't be drawn"):
        publish(write(new_markdown_cell(text), cell("1", 1)), html=True, masks=Masks())


def test_a_page_leads_nowhere_by_itself(write: Any) -> None:
    html = '<meta http-equiv="refresh" content="0;url=http://x.org"><base href="http://x.org/"><b>stays</b>'
    path = write(new_markdown_cell(html), cell("1", 1, new_output("display_data", data={"text/html": html})))
    page = publish(path, html=True, masks=Masks()).target.read_text()
    assert "x.org" not in page
    assert page.count("<b>stays</b>") == 2
