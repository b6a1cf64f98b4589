"""Tasks made again from plain JSON, as a restored run does."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from workbench.errors import ConfigError
from workbench.tasks import Origin, Task, from_list, reasoning_gym, rebuild, sorting


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
