"""Any list of prompts and answers as a task."""

from collections.abc import Iterable, Mapping
from typing import Any

from workbench.errors import ConfigError
from workbench.tasks.messages import Chat, read_prompt
from workbench.tasks.prompts import HELD_OUT_SHARE
from workbench.tasks.rows import Row, Wanted, chosen, task_of
from workbench.tasks.task import Demonstrations, Scorer, Task

Item = tuple[Any, Any] | Mapping[str, Any]


def from_list(
    items: Iterable[Item],
    *,
    scorer: Scorer | str | None = None,
    name: str = "list",
    held_out: float = HELD_OUT_SHARE,
    chat: bool = False,
    system: str | None = None,
    demonstrations: Demonstrations | None = None,
) -> Task:
    """A task from ``[(prompt, answer), ...]`` or ``[{"prompt": ..., "answer": ...}, ...]``.

    A prompt is a text or a conversation, ``[{"role": "user", "content": ...}]``. ``chat``: whether a text becomes a user's
    message (after ``system``, where given) and goes through the model's chat template; without it a text is taken as it stands.
    ``scorer``: a function ``(prompt, completion, answer) -> float``, sync or async, ``tasks.regex(...)``, "exact", "numeric" or
    "math"; it has to be given. ``held_out``: the share of prompts kept from training, chosen by a hash of their text.
    Raises ConfigError on items that are no such pairs, an empty list, one that leaves a side of the split empty, and a missing scorer.
    """
    wanted = Wanted(name, chosen(scorer, name), held_out, Chat(chat, system))
    rows = [_row(item, f"item {number} of the list") for number, item in enumerate(items)]
    if not rows:
        raise ConfigError("from_list([])", "the list is empty", "give [(prompt, answer), ...]")
    return task_of(rows, wanted, demonstrations=demonstrations)


def _row(item: Item, place: str) -> Row:
    """One item, checked."""
    if isinstance(item, Mapping):
        missing = {"prompt", "answer"} - item.keys()
        if missing:
            found = f"it has {', '.join(map(repr, item)) or 'no keys'}, and no {' and no '.join(map(repr, sorted(missing)))}"
            raise ConfigError(place, found, 'write {"prompt": ..., "answer": ...}')
        prompt, answer = item["prompt"], item["answer"]
    elif isinstance(item, tuple | list) and len(item) == 2:
        prompt, answer = item
    else:
        raise ConfigError(place, f"{item!r} is no pair", 'write (prompt, answer) or {"prompt": ..., "answer": ...}')
    return Row(read_prompt(prompt, place), answer, place)
