"""Rows of somebody's own data, wherever they were read, made into a task."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from workbench.errors import ConfigError, check_kind
from workbench.tasks.messages import Chat, PromptText, read_prompt, split_key
from workbench.tasks.prompts import Listed, Pair, Put, is_held_out
from workbench.tasks.scorers import NUMBER, SCORERS, Regex, scorer_name, scorer_named
from workbench.tasks.task import Demonstrations, Origin, Scorer, Task


@dataclass(frozen=True)
class Row:
    """A prompt, its answer, and where it stands ("line 3 of train.jsonl"), to be named in errors."""

    prompt: PromptText
    answer: Any
    place: str


@dataclass(frozen=True)
class Wanted:
    """What is to be made of rows. ``held_out``: the share of prompts kept from training, chosen by a hash of their text."""

    name: str
    scorer: Scorer
    held_out: float
    chat: Chat

    def __post_init__(self) -> None:
        check_kind("held_out", self.held_out, float, "a share such as 0.2")
        if not 0 < self.held_out < 1:
            raise ConfigError(f"held_out={self.held_out}", "a share lies between 0 and 1", "write 0.2 to keep a fifth from training")


def chosen(scorer: Scorer | str | None, name: str) -> Scorer:
    """The scorer that task ``name`` was given, itself or by its name. Raises ConfigError where it was given none."""
    if scorer is None:
        names = " or ".join(repr(known) for known in SCORERS)
        fix = f"give scorer={names}, or a function(prompt, completion, answer) -> float"
        raise ConfigError(f"task {name!r}", "it has no scorer", fix)
    return scorer_named(scorer) if isinstance(scorer, str) else scorer


def origin_of(call: str, scorer: Scorer, arguments: dict[str, Any]) -> Origin | None:
    """How to make the task again; None where the scorer is a function, which JSON can't hold."""
    plain = {"regex": scorer.pattern} if isinstance(scorer, Regex) else scorer_name(scorer)
    return None if plain is None else Origin(call, {**arguments, "scorer": plain})


def pick(item: Mapping[str, Any], columns: tuple[str, str], place: str) -> Row:
    """The row in the columns (prompt, answer) of ``item``. Raises ConfigError, with the nearest, where it lacks one of them."""
    check_columns(item, columns, place)
    return Row(read_prompt(item[columns[0]], place), item[columns[1]], place)


def check_columns(found: Iterable[str], columns: tuple[str, str], place: str) -> None:
    """Raise ConfigError where the columns (prompt, answer) are not among those ``found``."""
    names = list(found)
    for which, column in zip(("prompt", "answer"), columns, strict=True):
        if column not in names:
            near = get_close_matches(column, names, n=1)
            fix = f"write {which}={near[0]!r}" if near else f"say which column it is: {which}=..."
            raise ConfigError(place, f"it has no {column!r}; it has {', '.join(map(repr, names)) or 'nothing'}", fix)


def task_of(rows: Sequence[Row], wanted: Wanted, *, demonstrations: Demonstrations | None = None, origin: Origin | None = None) -> Task:
    """The task of ``rows``; a prompt that is there twice stays there twice, on one side of the split.

    Raises ConfigError where the answers don't fit the scorer, or where a side of the split is empty.
    """
    _check_answers(rows, wanted.scorer)
    sides: dict[bool, list[Pair]] = {False: [], True: []}
    for row in rows:
        wanted.chat.check(row.prompt, row.place)
        sides[is_held_out(split_key(row.prompt), wanted.held_out)].append((row.prompt, row.answer))
    _check_split(wanted, sides[False], sides[True])
    prompts = Put(Listed(tuple(sides[False]), tuple(sides[True])), wanted.chat)
    return Task(wanted.name, wanted.scorer, prompts, demonstrations, origin=origin)


def _check_answers(rows: Sequence[Row], scorer: Scorer) -> None:
    """Every answer is one that the scorer can compare with."""
    ours = isinstance(scorer, Regex) or scorer_name(scorer) is not None
    for row in rows:
        said = "" if row.answer is None else str(row.answer).strip()
        if ours and not said:
            raise ConfigError(row.place, f"its answer is {row.answer!r}", "give every prompt its answer, or a scorer of your own")
        if scorer is SCORERS["numeric"] and not NUMBER.fullmatch(said):
            asked = f"scorer='numeric' for {row.place}"
            raise ConfigError(asked, f"its answer {row.answer!r} is no number", "mend the answer, or use scorer='exact'")


def _check_split(wanted: Wanted, training: Sequence[Pair], kept: Sequence[Pair]) -> None:
    """Both sides have something."""
    if training and kept:
        return
    different = len({split_key(prompt) for prompt, _ in [*training, *kept]})
    raise ConfigError(
        f"task {wanted.name!r}: {different} different prompts, {wanted.held_out:g} of them held out",
        f"the split leaves {len(training)} to train on and {len(kept)} held out",
        "give more prompts, or a share held_out=... that leaves some on both sides",
    )
