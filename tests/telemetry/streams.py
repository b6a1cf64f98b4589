"""Streams of step records: written as text, or drawn as healthy runs are."""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from workbench.records import Record, Restored, Seen, Step
from workbench.telemetry import Watcher

HEALTHY: dict[str, Any] = {
    "reward_mean": 0.5, "reward_std": 0.5, "completion_tokens_mean": 100.0, "completion_tokens_max": 200, "truncated_fraction": 0.01,
    "groups": 32, "groups_without_variance": 8, "skipped": False, "loss": 0.0, "kl": 0.02, "entropy": 0.5, "grad_norm": 0.4,
    "clip_fraction": 0.01, "importance_mean": 1.0, "importance_max": 1.2, "importance_truncated_fraction": 0.0, "logprob_diff_max": 1e-5,
    "logprob_diff_mean": 1e-6, "learning_rate": 1e-3, "tokens_prompt": 1000, "tokens_completion": 51_200, "seconds": 1.0,
}  # fmt: skip


def a_step(number: int, **changed: Any) -> Step:
    """A healthy step but for what is changed."""
    return Step(**{**HEALTHY, "step": number, "adapter_version": number - 1, **changed})


def values(text: str) -> list[float]:
    """``0.02 for 20, 0.1 to 0.9 for 10``: 20 times 0.02, and ten on a line from 0.1 to 0.9."""
    found: list[float] = []
    for part in text.split(","):
        level, count = part.split(" for ")
        low, high = (float(number) for number in (level.split(" to ") if " to " in level else (level, level)))
        many = int(count)
        found += [low + (high - low) * i / max(1, many - 1) for i in range(many)]
    return found


def records(columns: Mapping[str, str]) -> Iterator[Record]:
    """Steps of the columns; one that ends early stays at its last value. ``restored``: after which step the run was."""
    columns = dict(columns)
    restored = int(columns.pop("restored", -1))
    known = {name: values(text) for name, text in columns.items()}
    assert known.keys() <= {field.name for field in fields(Step)}
    for at in range(max(map(len, known.values()))):
        yield a_step(at + 1, **{name: column[min(at, len(column) - 1)] for name, column in known.items()})
        if at + 1 == restored:
            yield Restored(restored, f"step-{restored}", {})


def watched(stream: Iterator[Record], watcher: Watcher | None = None) -> list[Seen]:
    """All that a watcher says of a stream."""
    watcher = watcher or Watcher()
    said: list[Seen] = []
    for record in stream:
        if isinstance(record, Step):
            said += watcher.look(record)
        else:
            watcher.note(record)
    return said


def seen(**columns: str) -> list[Seen]:
    """All that a watcher says of these columns."""
    return watched(records(columns))


def healthy(seed: int) -> Iterator[Record]:
    """A healthy run, with the noise of real ones: 1 to 150 steps, small and large batches, slow and fast learning, restored or not."""
    dice = random.Random(seed)
    steps, groups, size = dice.randint(1, 150), dice.choice([8, 32, 128]), dice.choice([4, 16])
    pace, start, top = dice.uniform(5, 60), dice.uniform(0.05, 0.5), dice.uniform(0.6, 0.95)
    far, critic, restored = dice.choice([0.005, 0.05, 0.3]), dice.random() < 0.5, dice.randint(1, 150)
    critic_pace, explained = dice.uniform(2, 12), dice.uniform(0.2, 0.7)
    length, growth, cut = dice.uniform(4, 2000), dice.uniform(-0.1, 0.25), dice.choice([0.0, 0.05, 0.4])
    for number in range(1, steps + 1):
        learnt = 1 - math.exp(-number / pace)
        reward = start + (top - start) * learnt
        noise = math.sqrt(reward * (1 - reward) * (0.4 / groups + 0.6 / (groups * size)))
        yield a_step(
            number,
            groups=groups,
            reward_mean=min(1.0, max(0.0, dice.gauss(reward, noise))),
            reward_std=math.sqrt(reward * (1 - reward)),
            completion_tokens_mean=length * (1 + growth * learnt) * dice.gauss(1, 0.05),
            truncated_fraction=sum(dice.random() < cut for _ in range(groups * size)) / (groups * size),
            groups_without_variance=sum(dice.random() < 0.2 + 0.4 * learnt for _ in range(groups)),
            kl=far * learnt * dice.lognormvariate(0, 0.3) * (10 if dice.random() < 0.005 else 1),
            entropy=0.6 * (1 - 0.7 * learnt) * dice.gauss(1, 0.1),
            value_loss=0.05 * (1 + 20 * math.exp(-number / critic_pace)) * dice.lognormvariate(0, 0.5) if critic else None,
            explained_variance=explained - math.exp(-number / critic_pace) + dice.gauss(0, 0.15) if critic else None,
            repetition=max(0.0, dice.gauss(0.03, 0.01)),
        )
        if number == restored:
            yield Restored(number, f"step-{number}", {})
