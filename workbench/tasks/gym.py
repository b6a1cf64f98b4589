"""Any procedural task of the reasoning-gym package, with its own scorer."""

import json
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
from workbench.tasks.messages import Chat
from workbench.tasks.prompts import Drawn, Put
from workbench.tasks.task import Origin, Task

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


def reasoning_gym(name: str, *, chat: bool = False, system: str | None = None, **config: Any) -> Task:
    """The task ``name`` of reasoning-gym (https://github.com/open-thought/reasoning-gym); ``config`` as that package has it.

    The prompt is the problem's text as it stands; with ``chat`` it is a user's message (after ``system``, where given) and goes
    through the model's chat template. What is scored is the text in the completion's last ``<answer>`` tags, which
    ``system=reasoning_gym.utils.SYSTEM_PROMPTS["default"]`` asks for, or, where there are none, the whole completion without
    blanks around it. Scores lie in 0..1; several tasks give a part for an answer that is nearly right. ``size`` is how many
    different problems there are (20,000); the order is the run's, so ``seed`` is refused.
    Warns of tasks whose problems a later process can't draw again. Raises ConfigError on an unknown name or config.
    """
    with warnings.catch_warnings(), _without_pycosat():
        warnings.simplefilter("ignore", SyntaxWarning)  # from the source of one of its dependencies, at the first import
        from reasoning_gym import create_dataset
        from reasoning_gym.factory import DATASETS
        from reasoning_gym.utils import extract_answer

    asked = f"tasks.reasoning_gym({', '.join([repr(name), *(f'{key}={value!r}' for key, value in config.items())])})"
    _check(asked, name, config, DATASETS)
    putting = Chat(chat, system)
    putting.check("", name)
    if name in UNSTABLE and os.environ.get("PYTHONHASHSEED", "random") == "random":
        warnings.warn(f"{asked}: a resumed run sees other problems, unless PYTHONHASHSEED is set before Python starts", stacklevel=2)
    settings = {"size": PROBLEMS} | config
    try:
        dataset = create_dataset(name, seed=0, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        known = ", ".join(_settings(DATASETS[name]))
        raise ConfigError(asked, f"reasoning-gym refuses it: {error}", f"its settings are {known}") from error

    def draw(rng: Random) -> tuple[str, GymAnswer]:
        entry = dataset[rng.randrange(settings["size"])]
        return entry["question"], GymAnswer(entry)

    def scorer(prompt: str, completion: str, answer: GymAnswer) -> float:
        tagged = extract_answer(completion)
        return score(dataset, completion.strip() if tagged is None else tagged, answer.entry)

    return Task(name, scorer, Put(Drawn(name, draw), putting), origin=_origin({"name": name, "chat": chat, "system": system, **config}))


def _settings(known: tuple[type, type]) -> list[str]:
    """What a task of the package can be given: the fields of its config."""
    return [field.name for field in fields(known[1]) if field.name != "seed"]


def _check(asked: str, name: str, config: dict[str, Any], known: dict[str, tuple[type, type]]) -> None:
    """Refuse a task and settings that the package doesn't have. ``known``: name -> (data set, config)."""
    if name not in known:
        near = get_close_matches(name, known, n=3)
        fix = f"did you mean {' or '.join(map(repr, near))}?" if near else "see list(reasoning_gym.factory.DATASETS)"
        raise ConfigError(asked, f"reasoning-gym has {len(known)} tasks, and none called so", fix)
    if "seed" in config:
        raise ConfigError(asked, "the order of problems is the run's", "leave seed out and give Run(seed=...)")
    settings = _settings(known[name])
    for key in config.keys() - set(settings):
        near = get_close_matches(key, settings, n=1)
        raise ConfigError(
            asked, f"{name} has no {key!r}; it has {', '.join(settings)}", f"write {near[0]!r}" if near else "use one of these"
        )


def _origin(arguments: dict[str, Any]) -> Origin | None:
    """None where JSON would not give back the same arguments."""
    try:
        same = json.loads(json.dumps(arguments)) == arguments
    except (TypeError, ValueError):
        return None
    return Origin("reasoning_gym", arguments) if same else None


def score(dataset: Any, said: str, entry: dict[str, Any]) -> float:
    """What the package's scorer gives, and 0 where it fails on the completion but not on the right answer.

    Some of its scorers read the answer as numbers or lists without looking, and raise on anything else.
    """
    try:
        return float(dataset.score_answer(said, entry))
    except Exception:
        dataset.score_answer(entry["answer"], entry)  # raises again where the fault is the scorer's
        return 0.0
