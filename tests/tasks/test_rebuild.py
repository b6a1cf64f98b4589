"""Tasks made again from plain JSON, as a restored run does."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from workbench.errors import ConfigError
from workbench.tasks import Origin, Task, from_dataset, from_file, from_list, reasoning_gym, rebuild, regex, sorting


def through_json(task: Task) -> Origin:
    """What a checkpoint gives back."""
    return Origin(**json.loads(json.dumps(asdict(task.origin))))


@pytest.mark.parametrize(
    "task",
    [
        sorting(),
        sorting("cab", {2: 1, 3: 0.5}),
        reasoning_gym("chain_sum", min_terms=2, max_terms=3),
        reasoning_gym("chain_sum", chat=True, system="Think."),
    ],
    ids=lambda task: task.name,
)
def test_a_rebuilt_task_is_the_same(task: Task) -> None:
    again = rebuild(through_json(task))
    assert again.name == task.name
    assert again.train(5, 0, 20) == task.train(5, 0, 20)
    assert again.held_out(10) == task.held_out(10)
    assert again.fingerprint(5) == task.fingerprint(5)
    assert again.origin == task.origin


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps({"q": f"q{n}", "a": str(n)}) for n in range(30)))
    return path


@pytest.mark.parametrize("scorer", ["numeric", regex("is (.*)")], ids=["named", "regex"])
def test_a_file_again(file: Path, scorer: object) -> None:
    task = from_file(file, prompt="q", answer="a", scorer=scorer, chat=True, system="Think.", held_out=0.3, name="riddles")
    again = rebuild(through_json(task))
    assert (again.name, again.scorer, again.origin) == ("riddles", task.scorer, task.origin)
    assert again.train(5, 0, 40) == task.train(5, 0, 40)
    assert again.held_out(30) == task.held_out(30)


def test_a_file_that_has_changed_is_not_taken_for_the_old_one(file: Path) -> None:
    origin = through_json(from_file(file, prompt="q", answer="a", scorer="exact"))
    text = file.read_text()
    file.write_text(text + "\n")
    with pytest.raises(
        ConfigError, match=r"rebuild the task of '.*mine.jsonl': the file has changed since.*\n  fix: put the old file back"
    ):
        rebuild(origin)
    file.unlink()
    with pytest.raises(ConfigError, match="the file is no longer there"):
        rebuild(origin)
    file.write_text(text)
    assert rebuild(origin).origin == origin


def test_a_data_set_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", file.parent.parent / f"{file.parent.name}-cache")
    task = from_dataset(str(file.parent), prompt="q", answer="a", scorer="exact", held_out=0.3)
    again = rebuild(through_json(task))
    assert (again.name, again.origin) == (task.name, task.origin)
    assert again.train(5, 0, 40) == task.train(5, 0, 40)


def test_what_json_cannot_say_has_no_origin() -> None:
    assert from_list([(f"q{n}", n) for n in range(20)], scorer="exact").origin is None
    assert reasoning_gym("simple_equations", operators=("+", "-")).origin is None  # JSON would make a list of it


def test_an_unknown_call() -> None:
    with pytest.raises(ConfigError, match=r"rebuild a task of 'from_moon': .*\n  fix: make the task as before, and give it: task="):
        rebuild(Origin("from_moon", {}))


def test_a_fingerprint_tells_tasks_and_seeds_apart() -> None:
    pairs = [(f"q{n}", n) for n in range(60)]
    task = from_list(pairs, scorer="exact")
    others = [
        from_list(pairs, scorer="exact", chat=True),
        from_list([*pairs[:-2], ("q58", -1), pairs[-1]], scorer="exact"),
        from_list(pairs[:-1], scorer="exact"),
    ]
    prints = {one.fingerprint(0) for one in [task, *others]} | {task.fingerprint(1)}
    assert len(prints) == 5
    assert task.fingerprint(0) == from_list(pairs, scorer="numeric").fingerprint(0)


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    program = """
from workbench.tasks import from_list
class Answer: pass
print(from_list([(f"q{n}", {"some", "set", "of", "texts"} if n % 2 else Answer()) for n in range(20)], scorer=print).fingerprint(0))
"""
    runs = [
        subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True)
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout) == 65
