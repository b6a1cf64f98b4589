"""A closer look at a dead canary: the worst completion, scored again by both sides at temperature 1 without cached prefixes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from workbench.batch import Batch
from workbench.models.packing import Row
from workbench.reshard.canary import Canary
from workbench.rollout.config import Sampling

if TYPE_CHECKING:
    from workbench.runtime.team import Team

MUCH_CLOSER = 4  # what brings both sides this much nearer is the cause; noise alone is not


class SecondLook:
    """One batch on which engine and trainer disagree."""

    def __init__(self, team: "Team", batch: Batch, sampling: Sampling) -> None:
        self.team, self.batch, self.sampling = team, batch, sampling

    def cause(self) -> str:
        """What the disagreement comes from, in words."""
        team = self.team
        if not team.in_sync:
            return (
                f"not looked for, since the trainer is ahead: it made {team.behind} updates since the engine got its adapter. "
                "Is a sync missing?"
            )
        apart = self._apart()
        row = max(range(len(apart)), key=apart.__getitem__)
        if Canary.for_dtype(team.plan.dtype).holds(apart[row], sum(apart) / len(apart)):
            how = "packed together, as it trains" + ("" if team.plan.device == "cpu" else ", by compiled layers")
            return f"the trainer itself: it agrees with the engine where it reads one row at a time, and {how}, it does not"
        return self._of_row(row, apart[row] / MUCH_CLOSER)

    def _apart(self) -> list[float]:
        """Per row: the largest difference between what the engine said when it sampled and what plain layers say."""
        completions = self.batch.completions
        rows = [Row(self.batch.prompt_of(r).ids, c.ids) for r, c in enumerate(completions)]
        scored = self.team.score_alone(rows, self.sampling.temperature)
        return [_largest(c.logp, logp) for c, logp in zip(completions, scored, strict=True)]

    def _of_row(self, row: int, explained: float) -> str:
        prompt, completion, temperature = self.batch.prompt_of(row).ids, self.batch.completions[row], self.sampling.temperature
        trainer = self.team.score_alone([Row(prompt, completion.ids)], 1.0)[0]
        if temperature != 1 and _largest(completion.logp, trainer) <= explained:
            return f"another temperature: the engine's numbers are those of temperature 1, not {temperature:g}"
        ids = (*prompt, *completion.ids)[: self.team.window - 1]  # scoring needs room for one token more
        engine = self.team.score_afresh(ids, len(prompt))
        if _largest(engine, trainer[: len(engine)]) <= explained:
            return "a stale prefix cache: scored again without cached prefixes, engine and trainer agree"
        return "neither the prefix cache nor the temperature: the engine computes something else than the trainer"


def _largest(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference, NaN where there is one."""
    return float((torch.tensor(one) - torch.tensor(other)).abs().max())
