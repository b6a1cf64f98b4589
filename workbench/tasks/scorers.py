"""Scorers by name, for tasks whose answers are plain text or numbers."""

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError

if TYPE_CHECKING:
    from workbench.tasks.task import Scorer

# 1,234.5, -3, .5 and 2e6. A sign counts only where nothing stands before it: "10-7" holds 10 and 7.
NUMBER = re.compile(r"(?:(?<![\w.])[-+])?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")


def exact(prompt: str, completion: str, answer: Any) -> float:
    """1 where the completion is the answer, character by character; blanks around either don't count."""
    return float(completion.strip() == str(answer).strip())


def numeric(prompt: str, completion: str, answer: Any) -> float:
    """1 where the last number in the completion equals the answer, to a relative 1e-6; "1,234" and "1234.0" are one number."""
    found = NUMBER.findall(completion)
    if not found:
        return 0.0
    said, right = _number(found[-1]), _number(str(answer))
    return float(abs(said - right) <= 1e-6 * abs(right))


SCORERS: dict[str, "Scorer"] = {"exact": exact, "numeric": numeric}


def scorer_named(name: str) -> "Scorer":
    """The scorer called ``name``. Raises ConfigError, with the nearest, on a name that there isn't."""
    if name not in SCORERS:
        near = get_close_matches(name, SCORERS, n=1)
        fix = f"write {near[0]!r}" if near else "use one of these, or give a function(prompt, completion, answer) -> float"
        raise ConfigError(f"scorer={name!r}", f"the named scorers are {', '.join(SCORERS)}", fix)
    return SCORERS[name]


def _number(text: str) -> float:
    return float(text.replace(",", ""))
