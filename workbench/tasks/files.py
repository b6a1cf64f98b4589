"""A file of prompts and answers as a task: JSON lines, a JSON list, or Parquet."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.manifest import sha256
from workbench.tasks.messages import Chat
from workbench.tasks.prompts import HELD_OUT_SHARE
from workbench.tasks.rows import Row, Wanted, check_columns, chosen, origin_of, pick, task_of
from workbench.tasks.task import Scorer, Task


def from_file(
    path: str | Path,
    *,
    prompt: str = "prompt",
    answer: str = "answer",
    scorer: Scorer | str | None = None,
    system: str | None = None,
    chat: bool = False,
    held_out: float = HELD_OUT_SHARE,
    name: str | None = None,
) -> Task:
    """A task from a file of rows, each with a prompt and an answer: .jsonl (an object a line), .json (a list of objects), .parquet.

    ``prompt`` and ``answer`` name the columns; others are not read. The prompt is a text or a conversation,
    ``[{"role": "user", "content": ...}]``. ``chat``, ``system``, ``scorer`` and ``held_out`` as for ``from_list``. ``name``: the
    file's, without its ending. Raises ConfigError, with the line or row, on what can't be read.
    """
    file = Path(path).expanduser().resolve()
    title = file.stem if name is None else name
    wanted = Wanted(title, chosen(scorer, title), held_out, Chat(chat, system))
    if not file.is_file():
        raise ConfigError(f"from_file({str(path)!r})", f"there is no file {file}", "give the path of a .jsonl, .json or .parquet file")
    rows = list(_rows(file, (prompt, answer)))
    if not rows:
        raise ConfigError(f"from_file({str(path)!r})", "the file has no rows", "give one with prompts and answers")
    arguments: dict[str, Any] = {"path": str(file), "sha256": sha256(file), "prompt": prompt, "answer": answer, "system": system}
    arguments |= {"chat": chat, "held_out": held_out, "name": title}
    return task_of(rows, wanted, origin=origin_of("from_file", wanted.scorer, arguments))


def _rows(file: Path, columns: tuple[str, str]) -> Iterator[Row]:
    match file.suffix.lower():
        case ".jsonl":
            return _lines(file, columns)
        case ".json":
            return _list(file, columns)
        case ".parquet":
            return _parquet(file, columns)
    fix = "write it as JSON lines, or read it with the package datasets and give the data set to from_dataset"
    raise ConfigError(f"from_file({str(file)!r})", f"it ends in {file.suffix!r}; .jsonl, .json and .parquet are read", fix)


def _lines(file: Path, columns: tuple[str, str]) -> Iterator[Row]:
    for number, line in enumerate(_text(file).split("\n"), 1):  # splitlines() would also cut at U+2028, which JSON may hold
        if line.strip():
            place = f"line {number} of {file.name}"
            yield pick(_object(_parsed(line, place), place), columns, place)


def _list(file: Path, columns: tuple[str, str]) -> Iterator[Row]:
    items = _parsed(_text(file), file.name)
    if not isinstance(items, list):
        raise ConfigError(file.name, f"it holds a JSON {type(items).__name__}", 'a list is read: [{"prompt": ..., "answer": ...}, ...]')
    for number, item in enumerate(items):
        place = f"item {number} of {file.name}"
        yield pick(_object(item, place), columns, place)


def _parquet(file: Path, columns: tuple[str, str]) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ConfigError(f"from_file({str(file)!r})", "the package pyarrow is not installed", "pip install datasets") from error
    try:
        with ParquetFile(file) as stored:
            check_columns(stored.schema_arrow.names, columns, file.name)
            rows = stored.read(columns=list(dict.fromkeys(columns))).to_pylist()
    except (ArrowException, OSError) as error:
        raise ConfigError(file.name, f"it is no Parquet file that can be read: {error}", "write it again") from error
    for number, row in enumerate(rows):
        yield pick(row, columns, f"row {number} of {file.name}")


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")  # Windows puts a mark before the text
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise ConfigError(f"line {line} of {file.name}", "it is no UTF-8 text", "save the file as UTF-8") from error


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        spot = f"line {error.lineno}, column {error.colno}" if "\n" in text else f"column {error.colno}"
        fix = "an object a line is JSON lines: name the file .jsonl" if error.msg == "Extra data" and "\n" in text else "mend it"
        raise ConfigError(place, f"it is no JSON: {error.msg} at {spot}", fix) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(place, f"it can't be read: {error}", "write huge numbers as text, and nest less deep") from error


def _object(item: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(item, dict):
        raise ConfigError(place, f"it is {item!r}, no object", 'write {"prompt": ..., "answer": ...}')
    return item
