"""Any procedural task of the reasoning-gym package, with its own scorer."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from importlib.util import find_spec
from random import Random
from types import ModuleType
from typing import Any

from workbench.errors import ConfigError
from workbench.tasks.prompts import Drawn
from workbench.tasks.task import Task

PROBLEMS = 20_000  # different problems of one task; some of the package's generators refuse more, or lay them all out at once

# Their problems come out of sets of strings, whose order differs from process to process unless PYTHONHASHSEED is set.
# Found by drawing 40 problems of every task in two processes with different hash seeds (reasoning-gym 0.1.25).
UNSTABLE = (
    "codeio",
    "isomorphic_strings",
    "knight_swap",
    "list_functions",
    "polynomial_multiplication",
    "ransom_note",
    "word_ladder",
)


@dataclass(frozen=True)
class GymAnswer:
    """What the package's scorer needs of a problem; shown as the expected answer."""

    entry: dict[str, Any]

    def __str__(self) -> str:
        return str(self.entry["answer"])


class _NoPycosat(ModuleType):
    """Stands in for pycosat, which one task in a hundred uses: it has no wheels, and a machine without a compiler can't build it."""

    def __getattr__(self, name: str) -> Any:
        found = "pycosat is not installed; it is built from source"
        raise ConfigError("tasks.reasoning_gym('zebra_puzzles')", found, "install gcc and Python's headers, then: pip install pycosat")


@contextmanager
def _without_pycosat() -> Iterator[None]:
    """Within: reasoning-gym can be imported, pycosat or not."""
    if find_spec("pycosat") is not None or "pycosat" in sys.modules:
        yield
        return
    sys.modules["pycosat"] = _NoPycosat("pycosat")
    try:
        yield
    finally:
        del sys.modules["pycosat"]


def reasoning_gym(name: str, **config: Any) -> Task:
    """The task ``name`` of reasoning-gym (https://github.com/open-thought/reasoning-gym); ``config`` as that package has it.

    The prompt is the problem's text as it stands. What is scored is the text in the completion's last ``<answer>`` tags, or,
    where there are none, the whole completion without blanks around it. Scores lie in 0..1; several tasks give a part for an
    answer that is nearly right. ``size`` is how many different problems there are (20,000); the order is the run's, so ``seed`` is refused.
    Warns of tasks whose problems a later process can't draw again. Raises ConfigError on an unknown name or config.
    """
    with warnings.catch_warnings(), _without_pycosat():
        warnings.simplefilter("ignore", SyntaxWarning)  # from the source of one of its dependencies, at the first import
        from reasoning_gym import create_dataset
        from reasoning_gym.factory import DATASETS
        from reasoning_gym.utils import extract_answer

    asked = f"tasks.reasoning_gym({', '.join([repr(name), *(f'{key}={value!r}' for key, value in config.items())])})"
    if name not in DATASETS:
        near = get_close_matches(name, DATASETS, n=3)
        fix = f"did you mean {' or '.join(map(repr, near))}?" if near else "see list(reasoning_gym.factory.DATASETS)"
        raise ConfigError(asked, f"reasoning-gym has {len(DATASETS)} tasks, and none called so", fix)
    if "seed" in config:
        raise ConfigError(asked, "the order of problems is the run's", "leave seed out and give Run(seed=...)")
    known = [field.name for field in fields(DATASETS[name][1]) if field.name != "seed"]
    for key in config.keys() - set(known):
        near = get_close_matches(key, known, n=1)
        raise ConfigError(asked, f"{name} has no {key!r}; it has {', '.join(known)}", f"write {near[0]!r}" if near else "use one of these")
    if name in UNSTABLE and os.environ.get("PYTHONHASHSEED", "random") == "random":
        warnings.warn(f"{asked}: a resumed run sees other problems, unless PYTHONHASHSEED is set before Python starts", stacklevel=2)
    settings = {"size": PROBLEMS} | config
    try:
        dataset = create_dataset(name, seed=0, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(asked, f"reasoning-gym refuses it: {error}", f"its settings are {', '.join(known)}") from error

    def draw(rng: Random) -> tuple[str, GymAnswer]:
        entry = dataset[rng.randrange(settings["size"])]
        return entry["question"], GymAnswer(entry)

    def scorer(prompt: str, completion: str, answer: GymAnswer) -> float:
        tagged = extract_answer(completion)
        return score(dataset, completion.strip() if tagged is None else tagged, answer.entry)

    return Task(name, scorer, Drawn(name, draw))


def score(dataset: Any, said: str, entry: dict[str, Any]) -> float:
    """What the package's scorer gives, and 0 where it fails on the completion but not on the right answer.

    Some of its scorers read the answer as numbers or lists without looking, and raise on anything else.
    """
    try:
        return float(dataset.score_answer(said, entry))
    except Exception:
        dataset.score_answer(entry["answer"], entry)  # raises again where the fault is the scorer's
        return 0.0
