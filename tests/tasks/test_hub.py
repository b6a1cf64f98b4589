"""Data sets of the package datasets."""

import json
from pathlib import Path

import datasets
import pytest

from workbench.errors import ConfigError
from workbench.tasks import from_dataset, from_list

ROWS = [{"question": f"q{n}", "answer": str(n), "more": [n]} for n in range(20)]
LISTED = from_list([(row["question"], row["answer"]) for row in ROWS], scorer="exact")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set as a folder of files; what the package makes of it stays in the test's folder."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    path = tmp_path / "riddles"
    path.mkdir()
    for split, rows in (("train", ROWS), ("test", ROWS[:15])):
        (path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_data_set_at_hand() -> None:
    task = from_dataset(datasets.Dataset.from_list(ROWS), prompt="question", scorer="exact", name="riddles")
    assert task.name == "riddles"
    assert task.train(1, 0, 30) == LISTED.train(1, 0, 30)
    assert task.held_out(20) == LISTED.held_out(20)
    assert task.origin is None


def test_values_are_plain_whatever_the_format() -> None:
    rows = [{"prompt": f"q{n}", "answer": n} for n in range(20)]
    task = from_dataset(datasets.Dataset.from_list(rows).with_format("numpy"), scorer="exact", name="numbers")
    assert {type(example.answer) for example in task.train(0, 0, 5)} == {int}


def test_conversations_with_keys_that_some_messages_lack() -> None:
    talk = [{"role": "user", "content": "hi", "name": None}]
    rows = [{"prompt": [*talk, {"role": "user", "content": f"q{n}"}], "answer": n} for n in range(20)]
    example = from_dataset(datasets.Dataset.from_list(rows), scorer="numeric").train(0, 0, 1)[0]
    assert example.given == [{"role": "user", "content": "hi"}, {"role": "user", "content": f"q{example.answer}"}]


def test_a_data_set_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    task = from_dataset("riddles", prompt="question", scorer="exact")
    assert task.name == "riddles"
    assert task.train(1, 0, 30) == LISTED.train(1, 0, 30)
    assert task.origin is not None
    assert task.origin.arguments["source"] == str(folder)
    other = from_dataset(str(folder), split="test", prompt="question", scorer="exact", held_out=0.4)
    assert {e.text for e in [*other.train(0, 0, 15), *other.held_out(15)]} == {f"q{n}" for n in range(15)}


def test_splits_at_hand() -> None:
    both = datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS), test=datasets.Dataset.from_list(ROWS[:3]))
    assert from_dataset(both, prompt="question", scorer="exact").train(1, 0, 30) == LISTED.train(1, 0, 30)
    with pytest.raises(ConfigError, match=r"DatasetDict with split='dev': it has 'train', 'test'"):
        from_dataset(both, split="dev", scorer="exact")


def test_what_cannot_be_had(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"from_dataset\('.*riddles', split='dev'\): it can't be loaded: Unknown split"):
        from_dataset(str(folder), split="dev", scorer="exact")
    with pytest.raises(ConfigError, match=r"from_dataset\('nobody/nothing', split='train', subset='main'\): it can't be loaded"):
        from_dataset("nobody/nothing", subset="main", scorer="exact")
    one = datasets.Dataset.from_list(ROWS)
    with pytest.raises(ConfigError, match=r"no 'questoin'; it has 'question', 'answer', 'more'\n  fix: write prompt='question'"):
        from_dataset(one, prompt="questoin", scorer="exact")
    with pytest.raises(ConfigError, match=r"row 3 of riddles: its prompt is ''"):
        from_dataset(datasets.Dataset.from_list([*ROWS[:3], {"question": ""}]), prompt="question", scorer="exact", name="riddles")
    with pytest.raises(ConfigError, match="it has no rows"):
        from_dataset(one.select([]), prompt="question", scorer="exact")
    with pytest.raises(ConfigError, match=r"of a list: that is no data set.*\n  fix: .*from_list takes lists"):
        from_dataset(ROWS, scorer="exact")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"subset='main': a data set that is loaded has no subsets"):
        from_dataset(one, subset="main", scorer="exact")
    with pytest.raises(ConfigError, match=r"split='test': it is one split already"):
        from_dataset(one, split="test", scorer="exact")


def test_a_streamed_data_set_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a streamed data set has no order .*\n  fix: load it without streaming=True, or take a part"):
        from_dataset(datasets.Dataset.from_list(ROWS).to_iterable_dataset(), scorer="exact")
