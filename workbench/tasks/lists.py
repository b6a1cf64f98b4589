"""Any list of prompts and answers as a task."""

from collections.abc import Iterable, Mapping
from typing import Any

from workbench.errors import ConfigError
from workbench.tasks.prompts import HELD_OUT_SHARE, Listed, is_held_out
from workbench.tasks.scorers import NUMBER, SCORERS, scorer_named
from workbench.tasks.task import Demonstrations, Scorer, Task

Item = tuple[str, Any] | Mapping[str, Any]


def from_list(
    items: Iterable[Item],
    *,
    scorer: Scorer | str | None = None,
    name: str = "list",
    held_out: float = HELD_OUT_SHARE,
    demonstrations: Demonstrations | None = None,
) -> Task:
    """A task from ``[(prompt, answer), ...]`` or ``[{"prompt": ..., "answer": ...}, ...]``.

    ``scorer``: a function ``(prompt, completion, answer) -> float``, sync or async, or "exact" or "numeric"; it has to be given.
    ``held_out``: the share of prompts kept from training, chosen by a hash of their text. Raises ConfigError on items that are
    no such pairs, an empty list, one that leaves a side of the split empty, and a missing scorer.
    """
    if not 0 < held_out < 1:
        raise ConfigError(f"from_list(held_out={held_out})", "a share lies between 0 and 1", "write 0.2 to keep a fifth from training")
    pairs = [_pair(item, number) for number, item in enumerate(items)]
    if not pairs:
        raise ConfigError("from_list([])", "the list is empty", "give [(prompt, answer), ...]")
    if scorer is None:
        names = " or ".join(repr(known) for known in SCORERS)
        raise ConfigError(f"task {name!r}", "it has no scorer", f"give scorer={names}, or a function(prompt, completion, answer) -> float")
    chosen = scorer_named(scorer) if isinstance(scorer, str) else scorer
    if chosen is SCORERS["numeric"]:
        _check_numbers(pairs)
    sides: dict[bool, list[tuple[str, Any]]] = {False: [], True: []}
    for text, answer in pairs:
        sides[is_held_out(text, held_out)].append((text, answer))
    _check_split(name, sides[False], sides[True], held_out)
    return Task(name, chosen, Listed(tuple(sides[False]), tuple(sides[True])), demonstrations)


def _pair(item: Item, number: int) -> tuple[str, Any]:
    """One item as (prompt, answer)."""
    if isinstance(item, Mapping):
        missing = {"prompt", "answer"} - item.keys()
        if missing:
            found = f"it has {', '.join(map(repr, item)) or 'no keys'}, and no {' and no '.join(map(repr, sorted(missing)))}"
            raise ConfigError(f"item {number} of the list", found, 'write {"prompt": ..., "answer": ...}')
        text, answer = item["prompt"], item["answer"]
    elif isinstance(item, tuple | list) and len(item) == 2:
        text, answer = item
    else:
        raise ConfigError(f"item {number} of the list", f"{item!r} is no pair", 'write (prompt, answer) or {"prompt": ..., "answer": ...}')
    if not isinstance(text, str) or not text:
        raise ConfigError(f"item {number} of the list", f"its prompt is {text!r}", "a prompt is a text that is not empty")
    return text, answer


def _check_numbers(pairs: list[tuple[str, Any]]) -> None:
    """The answers can all be compared as numbers."""
    for number, (_, answer) in enumerate(pairs):
        if not NUMBER.fullmatch(str(answer).strip()):
            asked = f"scorer='numeric' for item {number} of the list"
            raise ConfigError(asked, f"its answer {answer!r} is no number", "mend the answer, or use scorer='exact'")


def _check_split(name: str, training: list[tuple[str, Any]], kept: list[tuple[str, Any]], share: float) -> None:
    """Both sides have something."""
    if training and kept:
        return
    different = len({text for text, _ in training + kept})
    raise ConfigError(
        f"task {name!r}: {different} different prompts, {share:g} of them held out",
        f"the split leaves {len(training)} to train on and {len(kept)} held out",
        "give more prompts, or a share held_out=... that leaves some on both sides",
    )
