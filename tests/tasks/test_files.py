"""Files of people's own prompts and answers."""

import json
from pathlib import Path

import pytest

from workbench.errors import ConfigError
from workbench.tasks import Conversation, from_file, from_list, regex

ROWS = [{"prompt": f"q{n}", "answer": str(n), "source": "not read"} for n in range(20)]
LINES = "\n".join(map(json.dumps, ROWS)) + "\n"


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def parquet(path: Path, rows: list[dict]) -> Path:
    import pyarrow
    from pyarrow.parquet import write_table

    write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.fixture(params=["jsonl", "json", "parquet"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same rows in each kind of file."""
    path = tmp_path / f"mine.{request.param}"
    match request.param:
        case "jsonl":
            return written(path, LINES)
        case "json":
            return written(path, json.dumps(ROWS))
    return parquet(path, ROWS)


def test_every_kind_of_file_is_the_list_of_its_rows(file: Path) -> None:
    task, listed = from_file(file, scorer="exact"), from_list(ROWS, scorer="exact")
    assert task.name == "mine"
    assert task.train(2, 0, 40) == listed.train(2, 0, 40)
    assert task.held_out(20) == listed.held_out(20)


def test_columns_chat_and_share_are_those_asked_for(file: Path) -> None:
    task = from_file(file, prompt="answer", answer="prompt", scorer="exact", chat=True, system="Guess.", held_out=0.5, name="guess")
    example = task.train(0, 0, 1)[0]
    assert example.given == example.answer[1:]
    assert str(example.text) == f"system: Guess.\nuser: {example.given}"
    assert task.name == "guess"
    assert 4 < len(task.held_out(20)) < 16


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_conversations(ending: str, tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"q{n}"}], "answer": n} for n in range(20)]
    path = tmp_path / f"talks.{ending}"
    parquet(path, rows) if ending == "parquet" else written(path, "\n".join(map(json.dumps, rows)))
    example = from_file(path, scorer="numeric").train(0, 0, 1)[0]
    assert isinstance(example.text, Conversation)
    assert example.given == [{"role": "user", "content": f"q{example.answer}"}]


def test_a_prompt_that_is_there_twice_stays_so(tmp_path: Path) -> None:
    task = from_file(written(tmp_path / "twice.jsonl", LINES + LINES), scorer="exact")
    once = from_list(ROWS, scorer="exact")
    assert len(task.prompts.prompts.training) == 2 * len(once.prompts.prompts.training)
    assert not {e.text for e in task.train(0, 0, 40)} & {e.text for e in task.held_out(40)}


def test_blank_lines_a_mark_of_windows_and_rare_line_ends(tmp_path: Path) -> None:
    odd = json.dumps({"prompt": "a\u2028b", "answer": "1"}, ensure_ascii=False)
    path = written(tmp_path / "odd.jsonl", b"\xef\xbb\xbf" + f"{odd}\r\n\n  \n".encode() + LINES.replace("\n", "\r\n").encode())
    assert "a\u2028b" in {e.text for e in from_file(path, scorer="exact").train(0, 0, 40)}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", LINES + "{'prompt': 1}", r"line 21 of a.jsonl: it is no JSON: Expecting property name .* at column 2"),
        ("a.jsonl", LINES + "\n[1]", r"line 22 of a.jsonl: it is \[1\], no object"),
        (
            "a.jsonl",
            LINES + '{"promt": "q", "answer": 1}',
            r"line 21 .* no 'prompt'; it has 'promt', 'answer'\n  fix: write prompt='promt'",
        ),
        ("a.jsonl", LINES + '{"prompt": "q", "zzz": 1}', r"no 'answer'; it has 'prompt', 'zzz'\n  fix: say which column it is: answer="),
        ("a.jsonl", LINES + '{"prompt": 7, "answer": 1}', "line 21 of a.jsonl: its prompt is 7"),
        ("a.jsonl", LINES + '{"prompt": "q", "answer": null}', "line 21 of a.jsonl: its answer is None"),
        ("a.jsonl", LINES.encode() + b'{"prompt": "\xe4"}', r"line 21 of a.jsonl: it is no UTF-8 text"),
        ("a.jsonl", LINES + '{"prompt": "q", "answer": ' + "1" * 5000 + "}", r"line 21 of a.jsonl: it can't be read: Exceeds the limit"),
        ("a.jsonl", LINES + '{"prompt": ' + "[" * 100_000, r"line 21 of a.jsonl: it can't be read: maximum recursion"),
        ("a.jsonl", "\n", r"from_file\('.*a.jsonl'\): the file has no rows"),
        (
            "a.json",
            LINES,
            r"a.json: it is no JSON: Extra data at line 2, column 1\n  fix: an object a line is JSON lines: name the file .jsonl",
        ),
        ("a.json", "[\n{},\n", "a.json: it is no JSON: .* at line 3, column 1"),
        ("a.json", '{"data": []}', "a.json: it holds a JSON dict"),
        ("a.json", "[]", "the file has no rows"),
        ("a.json", json.dumps([*ROWS, {"prompt": ""}]), "item 20 of a.json: it has no 'answer'"),
        ("a.parquet", LINES, "a.parquet: it is no Parquet file that can be read"),
        ("a.csv", "prompt,answer\n", r"it ends in '.csv'; .jsonl, .json and .parquet are read\n  fix: .*from_dataset"),
    ],
)
def test_what_cannot_be_read(name: str, text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        from_file(written(tmp_path / name, text), scorer="exact")


def test_parquet_columns_and_rows(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a.parquet: it has no 'question'; it has 'prompt', 'answer', 'source'"):
        from_file(parquet(tmp_path / "a.parquet", ROWS), prompt="question", scorer="exact")
    with pytest.raises(ConfigError, match=r"row 20 of b.parquet: its prompt is None"):
        from_file(parquet(tmp_path / "b.parquet", [*ROWS, {"prompt": None, "answer": "1"}]), scorer="exact")


def test_no_file_and_no_scorer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"from_file\('nowhere.jsonl'\): there is no file /.*nowhere.jsonl"):
        from_file("nowhere.jsonl", scorer="exact")
    with pytest.raises(ConfigError, match="task 'mine': it has no scorer"):
        from_file(written(tmp_path / "mine.jsonl", LINES))


def test_where_it_came_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    origin = from_file(file.name, scorer=regex("(.*)")).origin
    assert origin is not None
    assert origin.call == "from_file"
    assert origin.arguments["path"] == str(file)
    assert origin.arguments["scorer"] == {"regex": "(.*)"}
    assert len(origin.arguments["sha256"]) == 64
    assert from_file(file, scorer=lambda prompt, completion, answer: 0.0).origin is None
