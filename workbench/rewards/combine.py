"""Rewards made of rewards. Each is a reward itself, so that they nest; a part may be of any kind.

What a part has (``prepare``, ``numbers``, a memory) the combination has too; its numbers go by the part's name: "style/cut_rows".
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from statistics import pstdev
from typing import Any, Literal

from workbench.errors import ConfigError, WorkbenchError, check_kind
from workbench.records import mean
from workbench.rewards.check import Reward, check_reward
from workbench.rewards.rows import Row, RowFault, Scored, score_rows

Scores = dict[str, list[float]]  # of each part, one per row


class Combined(ABC):
    """A reward made of named parts. They are asked one after the other, async ones at the same time."""

    def __init__(self, parts: Mapping[str, Reward]) -> None:
        if not parts:
            raise ConfigError(f"{type(self).__name__}()", "it has no parts", "give one reward or more")
        for name in parts:
            if not isinstance(name, str) or not name or "/" in name:
                raise ConfigError(f"{type(self).__name__}: part {name!r}", "a part's name is a text without '/'", "write 'style', say")
        self.parts = {name: check_reward(fn) for name, fn in parts.items()}
        self._numbers: dict[str, float] = {}

    @abstractmethod
    def combine(self, rows: Sequence[Row], scores: Scores) -> list[float]:
        """One score per row, from each part's scores."""

    def tell(self, scores: Scores) -> dict[str, float]:
        """Numbers for the step's record: each part's mean."""
        return {name: mean(values) for name, values in scores.items()}

    async def __call__(self, prompt: Any, completion: str, answer: Any) -> float:
        """The score of one completion."""
        return (await self.score_rows([(prompt, completion, answer)]))[0]

    async def score_rows(self, rows: Sequence[Row]) -> list[float]:
        """One score per row."""
        done = await self._ask(rows)
        scores = {name: scored.scores for name, scored in done.items()}
        below = {f"{name}/{key}": value for name, scored in done.items() for key, value in scored.numbers.items()}
        combined = self.combine(rows, scores)
        self._numbers = self.tell(scores) | below
        return combined

    def prepare(self, device: str) -> None:
        """Make each part ready."""
        for name, fn in self.parts.items():
            if hasattr(fn, "prepare"):
                with_name(name, lambda fn=fn: fn.prepare(device))

    def numbers(self) -> dict[str, float]:
        """Of the rows just scored."""
        return self._numbers

    async def _ask(self, rows: Sequence[Row]) -> dict[str, Scored]:
        tasks = [asyncio.ensure_future(_part(name, fn, rows)) for name, fn in self.parts.items()]
        try:
            return dict(zip(self.parts, await asyncio.gather(*tasks), strict=True))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def __getattr__(self, name: str) -> Any:
        # A memory only where a part has one: rewards with a memory must not be in several processes.
        if name in ("state_dict", "load_state_dict") and self._memories():
            return self._state if name == "state_dict" else self._load
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def _memories(self) -> dict[str, Any]:
        """The parts that have one."""
        parts: Mapping[str, Any] = self.__dict__.get("parts", {})
        return {name: fn for name, fn in parts.items() if hasattr(fn, "state_dict")}

    def _state(self) -> dict[str, Any]:
        return {name: fn.state_dict() for name, fn in self._memories().items()}

    def _load(self, state: Mapping[str, Any]) -> None:
        mine = self._memories()
        if set(mine) != set(state):
            found = f"it is of the parts {sorted(state)}, and those with a memory are {sorted(mine)}"
            raise ConfigError(f"{type(self).__name__}.load_state_dict", found, "combine the same rewards under the same names")
        for name, fn in mine.items():
            fn.load_state_dict(state[name])


class Weighted(Combined):
    """The weighted sum: ``Weighted({"right": (exact, 1.0), "style": (model, 0.2)})``. Numbers: each part's mean, without its weight."""

    def __init__(self, parts: Mapping[str, tuple[Reward, float]]) -> None:
        for name, pair in parts.items():
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise ConfigError(f"Weighted: part {name!r}", "a part is a pair of reward and weight", f"write {{{name!r}: (reward, 1.0)}}")
            check_kind(f"Weighted: weight of {name!r}", pair[1], float, "a number such as 0.5")
        super().__init__({name: fn for name, (fn, _) in parts.items()})
        self.weights = {name: float(weight) for name, (_, weight) in parts.items()}

    def combine(self, rows: Sequence[Row], scores: Scores) -> list[float]:
        """Σ weight · score."""
        return [sum(self.weights[name] * scores[name][row] for name in scores) for row in range(len(rows))]


class Ensemble(Combined):
    """Several rewards for the same thing. ``reduce``: "mean" of them, or the careful "min".

    Numbers: each one's mean, and "disagreement": how far they are apart on one completion, on average over the completions. "std": the
    standard deviation (of all, not of a sample); "range": the largest minus the smallest. A disagreement that grows while the reward
    rises says that the policy has found what one of them gets wrong (Coste et al. 2023, arXiv 2310.02743).
    """

    def __init__(
        self, parts: Sequence[Reward], *, disagreement: Literal["std", "range"] = "std", reduce: Literal["mean", "min"] = "mean"
    ) -> None:
        for asked, value, known in (("disagreement", disagreement, ("std", "range")), ("reduce", reduce, ("mean", "min"))):
            if value not in known:
                raise ConfigError(f"Ensemble({asked}={value!r})", f"it is one of {', '.join(known)}", f"write {asked}={known[0]!r}")
        if len(parts) < 2:
            raise ConfigError(f"Ensemble of {len(parts)}", "fewer than two can't disagree", "give two rewards or more")
        super().__init__({str(number): fn for number, fn in enumerate(parts)})
        self.disagreement, self.reduce = disagreement, reduce

    def combine(self, rows: Sequence[Row], scores: Scores) -> list[float]:
        """Their mean, or the smallest."""
        return [mean(said) if self.reduce == "mean" else min(said) for said in zip(*scores.values(), strict=True)]

    def tell(self, scores: Scores) -> dict[str, float]:
        """Each one's mean, and the disagreement."""
        said = list(zip(*scores.values(), strict=True))
        apart = [pstdev(row) if self.disagreement == "std" else max(row) - min(row) for row in said]
        return super().tell(scores) | {"disagreement": mean(apart)}


class Clipped(Combined):
    """A reward kept between ``low`` and ``high``. Numbers: its mean as "reward", and "clipped", the share of rows that were outside."""

    def __init__(self, reward: Reward, low: float = -math.inf, high: float = math.inf) -> None:
        if not low < high or (low, high) == (-math.inf, math.inf):
            raise ConfigError(f"Clipped(low={low}, high={high})", "nothing lies between, or nothing is clipped", "write low=-1, high=1")
        super().__init__({"reward": reward})
        self.low, self.high = low, high

    def combine(self, rows: Sequence[Row], scores: Scores) -> list[float]:
        """The nearest number inside."""
        return [min(max(score, self.low), self.high) for score in scores["reward"]]

    def tell(self, scores: Scores) -> dict[str, float]:
        """Mean before clipping, share outside."""
        return super().tell(scores) | {"clipped": mean([float(not self.low <= score <= self.high) for score in scores["reward"]])}


async def _part(name: str, fn: Reward, rows: Sequence[Row]) -> Scored:
    try:
        return await score_rows(fn, rows)
    except RowFault as fault:
        raise fault.of(name) from fault.__cause__
    except WorkbenchError as error:
        raise _named(name, error) from error


def with_name(name: str, call: Any) -> Any:
    """``call()``, whose errors say which part it was."""
    try:
        return call()
    except WorkbenchError as error:
        raise _named(name, error) from error


def _named(name: str, error: WorkbenchError) -> WorkbenchError:
    return type(error)(f"part {name!r}: {error.asked}", error.found, error.fix)
