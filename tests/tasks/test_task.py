"""What every task promises: an order that (seed, position) fixes, and two sides that never meet."""

import pytest

from workbench import tasks
from workbench.errors import ConfigError
from workbench.tasks import Example, Task
from workbench.tasks.scorers import exact

LIST = tasks.from_list([(f"say {n}", n) for n in range(50)], scorer="exact")


@pytest.mark.parametrize("task", [tasks.sorting(), tasks.reasoning_gym("chain_sum"), LIST], ids=lambda task: task.name)
def test_a_resumed_run_sees_the_same_prompts(task: Task) -> None:
    whole = task.train(3, 0, 120)
    assert [task.train(3, start, 40) for start in (0, 40, 80)] == [whole[:40], whole[40:80], whole[80:]]
    assert [example.index for example in whole] == list(range(120))
    assert [e.text for e in task.train(4, 0, 120)] != [e.text for e in whole]


@pytest.mark.parametrize("task", [tasks.sorting(), tasks.reasoning_gym("chain_sum"), LIST], ids=lambda task: task.name)
def test_no_prompt_is_on_both_sides(task: Task) -> None:
    training = {example.text for seed in range(3) for example in task.train(seed, 0, 200)}
    kept = {example.text for example in task.held_out(100)}
    assert kept
    assert not training & kept


def test_held_out_prompts_are_a_prefix_of_one_order() -> None:
    task = tasks.sorting()
    assert task.held_out(10) == task.held_out(30)[:10]
    assert task.held_out(1)[0].index == 0


def test_a_task_by_hand() -> None:
    class Echo:
        def train(self, seed: int, position: int) -> tuple[str, int]:
            return f"{seed}:{position}", position

        def held_out(self, count: int) -> list[tuple[str, int]]:
            return [("held", 0)] * count

    task = Task("echo", exact, Echo())
    assert task.train(7, 5, 2) == [Example("7:5", 5, 5), Example("7:6", 6, 6)]
    assert task.held_out_temperature == 0
    assert task.demonstrations is None


def test_a_task_has_a_scorer() -> None:
    with pytest.raises(ConfigError, match=r"task 'mine': it has no scorer\n  fix: give scorer=function"):
        Task("mine", None, LIST.prompts)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="scorer is 'exact', which can't be called"):
        Task("mine", "exact", LIST.prompts)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"held_out_temperature=-1: a temperature is 0"):
        Task("mine", exact, LIST.prompts, held_out_temperature=-1)
