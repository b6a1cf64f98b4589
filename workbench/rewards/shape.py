"""Rewards that change with what came before, or with length."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import pvariance
from typing import Any

from workbench.errors import ConfigError, check_kind
from workbench.records import mean
from workbench.rewards.check import Reward
from workbench.rewards.combine import Combined, Scores
from workbench.rewards.rows import Row

_LEAST = 1e-6  # of a deviation: rewards that are all the same are not blown up


class Smoothed(Combined):
    """``(reward - mean) / std``, with a running mean and deviation of the reward: its scale stays while the policy changes.

    After a batch of mean m and variance v: mean ← decay · mean + (1 - decay) · m, and var likewise with v + (m - mean)², which is how far
    the batch lies from the old mean. The first batch sets both. A batch is what is scored in one call, and it counts before it is
    normalised, so all its rows get the same mean and deviation. They are a memory that goes into checkpoints. A held-out score of
    such a reward is relative: watch the number "reward", its mean before.
    """

    def __init__(self, reward: Reward, decay: float = 0.9) -> None:
        check_kind("Smoothed(decay)", decay, float, "a number such as 0.9")
        if not 0 <= decay < 1:
            raise ConfigError(f"Smoothed(decay={decay})", "it is the share of the past in the running mean, from 0 to below 1", "write 0.9")
        super().__init__({"reward": reward})
        self.decay, self.mean, self.var = decay, 0.0, 0.0
        self.batches = 0

    @property
    def std(self) -> float:
        """The running deviation."""
        return math.sqrt(self.var)

    def combine(self, rows: Sequence[Row], scores: Scores) -> list[float]:
        """Take the batch into account, then normalise it."""
        values = scores["reward"]
        self._take(mean(values), pvariance(values) if values else 0.0)
        return [(value - self.mean) / max(self.std, _LEAST) for value in values]

    def tell(self, scores: Scores) -> dict[str, float]:
        """The batch's mean, the running mean and deviation."""
        return super().tell(scores) | {"running_mean": self.mean, "running_std": self.std}

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints: plain numbers, and the part's memory where it has one."""
        return {"mean": self.mean, "var": self.var, "batches": self.batches, "parts": self._state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        self._load(state["parts"])
        self.mean, self.var, self.batches = float(state["mean"]), float(state["var"]), int(state["batches"])

    def _take(self, batch_mean: float, batch_var: float) -> None:
        keep = self.decay if self.batches else 0.0
        apart = (batch_mean - self.mean) ** 2 if self.batches else 0.0
        self.var = keep * self.var + (1 - keep) * (batch_var + apart)
        self.mean = keep * self.mean + (1 - keep) * batch_mean
        self.batches += 1


class LengthPenalty(Combined):
    """A reward minus ``per_unit`` for each unit of the completion beyond ``free``, at most ``limit`` in all.

    A unit is a character; with ``tokenizer`` (a folder, or a name on the hub) a token of it. Numbers: the reward's mean as "reward",
    "length" (mean, in units) and "penalty" (mean).
    """

    def __init__(
        self, reward: Reward, per_unit: float, *, free: int = 0, limit: float = math.inf, tokenizer: str | Path | None = None
    ) -> None:
        check_kind("LengthPenalty(per_unit)", per_unit, float, "a number such as 0.001")
        check_kind("LengthPenalty(free)", free, int, "a number of units such as 100")
        if not (per_unit > 0 and free >= 0 and limit > 0):
            found = "a penalty is taken off, beyond a length, up to a limit"
            raise ConfigError(f"LengthPenalty(per_unit={per_unit}, free={free}, limit={limit})", found, "give numbers above 0")
        super().__init__({"reward": reward})
        self.per_unit, self.free, self.limit = per_unit, free, limit
        self.tokenizer = None if tokenizer is None else str(tokenizer)
        self._measure: Callable[[str], int] | None = None if self.tokenizer else len
        self._told: dict[str, float] = {}

    def combine(self, rows: Sequence[Row], scores: Scores) -> list[float]:
        """Reward minus penalty."""
        lengths = [self._length(completion) for _, completion, _ in rows]
        penalties = [min(self.per_unit * max(length - self.free, 0), self.limit) for length in lengths]
        self._told = {"length": mean(lengths), "penalty": mean(penalties)}
        return [score - penalty for score, penalty in zip(scores["reward"], penalties, strict=True)]

    def tell(self, scores: Scores) -> dict[str, float]:
        """Means of reward, length and penalty."""
        return super().tell(scores) | self._told

    def _length(self, completion: str) -> int:
        if self._measure is None:
            from workbench.rewards.models.dialogue import Dialogue

            raw = Dialogue(str(self.tokenizer)).raw
            self._measure = lambda text: len(raw(text, add_special_tokens=False).input_ids)
        return self._measure(completion)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_measure": None if self.tokenizer else len}  # a loaded tokenizer stays here
