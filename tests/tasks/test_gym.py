"""reasoning-gym's tasks with their own scorers."""

import re
import subprocess
import sys
import warnings
from random import Random

import pytest

from workbench.errors import ConfigError
from workbench.tasks import reasoning_gym


def test_a_task_and_its_config() -> None:
    task = reasoning_gym("chain_sum", min_terms=2, max_terms=2, min_digits=1, max_digits=1, allow_negation=False)
    assert task.name == "chain_sum"
    for example in task.train(0, 0, 20):
        left, sign, right = re.search(r"(\d) ([+-]) (\d) =", example.text).groups()  # type: ignore[union-attr]
        right_answer = int(left) + int(right) * (1 if sign == "+" else -1)
        assert str(example.answer) == str(right_answer)
        assert task.scorer(example.text, f" {right_answer}\n", example.answer) == 1
        assert task.scorer(example.text, f"I think 3. <answer>{right_answer}</answer> Yes.", example.answer) == 1
        assert task.scorer(example.text, f"<answer>{right_answer + 1}</answer> {right_answer}", example.answer) < 0.1


def test_its_own_scorer_gives_part_of_the_score() -> None:
    task = reasoning_gym("prime_factorization", min_value=12, max_value=12, size=4)
    # There is one problem, so one side of the split is empty: draw it below the split.
    prompt, answer = task.prompts.prompts.draw(Random(0))  # type: ignore[attr-defined]
    assert [task.scorer(prompt, said, answer) for said in ("2 × 2 × 3", "2 × 6")] == [1.0, 0.5]


def test_a_completion_that_the_scorer_cannot_read_scores_nothing() -> None:
    task = reasoning_gym("prime_factorization")
    example = task.train(0, 0, 1)[0]
    assert task.scorer(example.text, "no idea", example.answer) == 0.0  # the package's scorer raises ValueError on it


def test_a_fault_of_the_scorer_is_not_hidden() -> None:
    from workbench.tasks.gym import score

    class Broken:
        def score_answer(self, answer: str, entry: dict[str, str]) -> float:
            raise KeyError("metadata")

    with pytest.raises(KeyError, match="metadata"):
        score(Broken(), "anything", {"answer": "1"})


def test_size_is_the_number_of_problems() -> None:
    task = reasoning_gym("chain_sum", size=5)
    both = [*task.train(0, 0, 60), *task.train(1, 0, 60)]
    assert 1 < len({example.text for example in both}) <= 5


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        (
            "chain_sun",
            {},
            r"tasks.reasoning_gym\('chain_sun'\): reasoning-gym has 106 tasks, and none called so\n  fix: did you mean 'chain_sum'",
        ),
        ("zzzz", {}, r"fix: see list\(reasoning_gym.factory.DATASETS\)"),
        ("chain_sum", {"min_digit": 1}, r"chain_sum has no 'min_digit'; it has min_terms.*\n  fix: write 'min_digits'"),
        ("chain_sum", {"min_digits": 0}, r"min_digits=0\): reasoning-gym refuses it: min_digits must be positive"),
        ("chain_sum", {"seed": 3}, r"the order of problems is the run's\n  fix: leave seed out"),
        ("composite", {}, "reasoning-gym refuses it: Must specify at least one dataset"),
    ],
)
def test_what_there_is_not(name: str, config: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reasoning_gym(name, **config)


def test_problems_that_another_process_cannot_draw_again_are_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.warns(UserWarning, match=r"'ransom_note'\): a resumed run sees other problems, unless PYTHONHASHSEED is set"):
        reasoning_gym("ransom_note")
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reasoning_gym("ransom_note")


def test_the_package_is_loaded_only_when_asked_for() -> None:
    code = "import sys, workbench.tasks; print('reasoning_gym' in sys.modules, 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False False\n"


def test_without_pycosat_all_tasks_but_one_are_there():
    """It has no wheels; a machine without a compiler lacks it."""
    program = """
import sys
from importlib.util import find_spec
import workbench.tasks.gym as gym
gym.find_spec = lambda name: None
sys.modules.pop("pycosat", None)
class Block:
    def find_spec(self, name, path=None, target=None):
        if name == "pycosat":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
print(gym.reasoning_gym("chain_sum").train(0, 0, 1)[0].text != "", "pycosat" in sys.modules)
try:
    gym.reasoning_gym("zebra_puzzles").train(0, 0, 1)
except Exception as error:
    print(error)
"""
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "True False" in seen
    assert "pycosat is not installed" in seen
