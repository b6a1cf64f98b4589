"""Scorers by name, for tasks whose answers are plain text, numbers or mathematics, and one by pattern."""

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.tasks.mathematics import check_installed, math

if TYPE_CHECKING:
    from workbench.tasks.task import Scorer

# 1,234.5, -3, .5 and 2e6. A sign counts only where nothing stands before it: "10-7" holds 10 and 7.
NUMBER = re.compile(r"(?:(?<![\w.])[-+])?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")


def exact(prompt: Any, completion: str, answer: Any) -> float:
    """1 where the completion is the answer, character by character; blanks around either don't count."""
    return float(completion.strip() == str(answer).strip())


def numeric(prompt: Any, completion: str, answer: Any) -> float:
    """1 where the last number in the completion equals the answer, to a relative 1e-6; "1,234" and "1234.0" are one number."""
    found = NUMBER.findall(completion)
    if not found:
        return 0.0
    said, right = _number(found[-1]), _number(str(answer))
    return float(said == right or abs(said - right) <= 1e-6 * abs(right) < float("inf"))


SCORERS: dict[str, "Scorer"] = {"exact": exact, "numeric": numeric, "math": math}


def scorer_named(name: str) -> "Scorer":
    """The scorer called ``name``. Raises ConfigError, with the nearest, on a name that there isn't, and where its package is missing."""
    if name not in SCORERS:
        near = get_close_matches(name, SCORERS, n=1)
        fix = f"write {near[0]!r}" if near else "use one of these, tasks.regex(...), or a function(prompt, completion, answer) -> float"
        raise ConfigError(f"scorer={name!r}", f"the named scorers are {', '.join(SCORERS)}", fix)
    if name == "math":
        check_installed()
    return SCORERS[name]


def scorer_name(scorer: "Scorer") -> str | None:
    """The name that ``scorer`` has, if any."""
    return next((name for name, known in SCORERS.items() if known is scorer), None)


@dataclass(frozen=True)
class Regex:
    """Compares the answer with what a pattern finds in the completion. Made by ``regex``."""

    pattern: str
    compiled: "re.Pattern[str]" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "compiled", _compiled(self.pattern))

    def __call__(self, prompt: Any, completion: str, answer: Any) -> float:
        """1 where the last match is the answer; blanks around either don't count."""
        found = [match.group(match.re.groups) or "" for match in self.compiled.finditer(completion)]
        return float(bool(found) and found[-1].strip() == str(answer).strip())


def regex(pattern: str) -> Regex:
    r"""A scorer: ``regex(r"#### (.+)")`` takes the answer out of the completion and compares it with the right one, as text.

    The pattern's group holds the answer; without a group, the whole match does. The last match counts. Raises ConfigError on a
    pattern that does not compile or has more than one group.
    """
    return Regex(pattern)


def _compiled(pattern: str) -> "re.Pattern[str]":
    asked = f"regex({pattern!r})"
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ConfigError(asked, f"it is no pattern: {error}", 'write a text such as r"#### (.+)"') from error
    if compiled.groups > 1:
        raise ConfigError(asked, f"it has {compiled.groups} groups, and one holds the answer", "write (?:...) for the others")
    return compiled


def _number(text: str) -> float:
    return float(text.replace(",", ""))
