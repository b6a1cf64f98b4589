"""Rows of somebody's own data, wherever they were read, made into a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.errors import ConfigError
from workbench.tasks.messages import Chat, PromptText, split_key
from workbench.tasks.prompts import Listed, Pair, Put, is_held_out
from workbench.tasks.scorers import NUMBER, SCORERS, scorer_named
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
        if not 0 < self.held_out < 1:
            raise ConfigError(f"held_out={self.held_out}", "a share lies between 0 and 1", "write 0.2 to keep a fifth from training")


def chosen(scorer: Scorer | str | None, name: str) -> Scorer:
    """The scorer that task ``name`` was given, itself or by its name. Raises ConfigError where it was given none."""
    if scorer is None:
        names = " or ".join(repr(known) for known in SCORERS)
        fix = f"give scorer={names}, or a function(prompt, completion, answer) -> float"
        raise ConfigError(f"task {name!r}", "it has no scorer", fix)
    return scorer_named(scorer) if isinstance(scorer, str) else scorer


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
    for row in rows:
        if scorer is SCORERS["numeric"] and not NUMBER.fullmatch(str(row.answer).strip()):
            asked = f"scorer='numeric' for {row.place}"
            raise ConfigError(asked, f"its answer {row.answer!r} is no number", "mend the answer, or use scorer='exact'")
        if scorer in SCORERS.values() and (row.answer is None or not str(row.answer).strip()):
            raise ConfigError(row.place, f"its answer is {row.answer!r}", "give every prompt its answer, or a scorer of your own")


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
