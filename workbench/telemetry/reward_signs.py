"""Signs that a reward is not what it was, or not what was meant: drift after a swap, length or repetition that is paid for."""

import math
from collections.abc import Sequence

from workbench.records import Step, mean
from workbench.telemetry.limits import Limits
from workbench.telemetry.trends import Change, ends, jump, rank_correlation
from workbench.telemetry.window import Sign, Window, closer, either, numbers, slower

SILENT = "and nothing says why"


def reward_drifts(window: Window, limits: Limits) -> Sign | None:
    """WB721: rewards jumped from one step to the next, and the policy did not. Told while it is new, up to three times ``drift_steps``."""
    swaps = {swap.after: swap.what for swap in window.swaps}
    k = limits.drift_steps
    for start in range(len(window.steps) - k, max(len(window.steps) - 3 * k, k) - 1, -1):
        sign = _drift(window, start, swaps.get(window.steps[start - 1].step), limits)
        if sign is not None:
            return sign
    return None


def _drift(window: Window, start: int, swap: str | None, limits: Limits) -> Sign | None:
    """The same of one place: between the steps at the positions ``start - 1`` and ``start``."""
    k = limits.drift_steps
    around = window.steps[start - k : start + k]
    if swap is None and any(around[0].step < turned <= around[-1].step for turned in window.turned):
        return None  # a knob says why
    before, after, now = (mean([step.reward_mean for step in steps]) for steps in (around[:k], around[k:], window.steps[-k:]))
    gone, least = after - before, limits.drift_spread * mean([step.reward_std for step in around[:k]])
    if not (abs(gone) > least and (now - before) * gone > gone * gone / 2):  # little, or over
        return None
    change, moved = _reward_jump(around), _distance(around[:k], around[k:])
    beside = Change(change.size * math.copysign(1, gone), change.noise)
    if not (beside.exceeds(limits.drift_noise if swap else limits.drift_silent_noise) and beside.size > least and moved < limits.drift_kl):
        return None
    begin = around[k].step
    found = (
        f"from step {begin} on the mean reward is {after:.2f} instead of {before:.2f} ({change.size:+.2f} beside its trend, "
        f"± {change.noise:.2f}), {swap or SILENT}, while the policy moved by {moved:.3f} nats per token: "
        "the same text scores otherwise, so that what was learnt before is partly undone"
    )
    return Sign("WB721", begin, found, _fix(swap))


def _reward_jump(steps: Sequence[Step]) -> Change:
    """With no less noise than the choice of prompts makes: rewards within a group are alike, so a step has ``groups`` independent ones."""
    floor = mean([step.reward_std / max(1, step.groups) ** 0.5 for step in steps])
    return jump([step.reward_mean for step in steps], floor)


def _distance(before: Sequence[Step], after: Sequence[Step]) -> float:
    """By how much the policy's KL to the base differs on the two sides."""
    return abs(mean([step.kl for step in after]) - mean([step.kl for step in before]))


def _fix(swap: str | None) -> str:
    compare = "score the samples of a step before it again and compare"
    if swap is None:
        return f"look whether the reward's model, service or data were changed; {compare}; bring back that of before"
    return f"{compare}; bring back the reward or adapter of before, or, where it was meant, judge the run from this step on"


def length_is_paid(window: Window, limits: Limits) -> Sign | None:
    """WB722: reward and length rise together, faster than reasoning grows."""
    steps = _paid(window, "completion_tokens_mean", limits)
    if steps is None:
        return None
    lengths = numbers(steps, "completion_tokens_mean")
    third = len(lengths) // 3
    then, now = mean(lengths[:third]), mean(lengths[-third:])
    if now < limits.length_growth * then:
        return None
    found = f"{_risen(steps)} together with the length, {then:.0f} to {now:.0f} tokens: the reward may pay for length, not for what is said"
    penalty = "a penalty on length in the reward (DAPO(overlong_penalty=1.0))"
    constant = "DrGRPO, which does not favour long wrong answers"
    return Sign("WB722", steps[0].step, found, f"read run.batch; {either(penalty, constant, closer(window, limits))}")


def repetition_is_paid(window: Window, limits: Limits) -> Sign | None:
    """WB723: reward and repetition rise together."""
    steps = _paid(window, "repetition", limits)
    if steps is None:
        return None
    shares = numbers(steps, "repetition")
    third = len(shares) // 3
    then, now = mean(shares[:third]), mean(shares[-third:])
    if now < then + limits.repetition_growth:
        return None
    found = (
        f"{_risen(steps)} together with repetition, {100 * then:.0f} to {100 * now:.0f} % of the 4-grams were there before: "
        "the reward may pay for saying it again"
    )
    penalty = "take reward off completions that repeat themselves (workbench.batch.repetition)"
    return Sign("WB723", steps[0].step, found, f"read run.batch; {either(penalty, closer(window, limits), slower(window))}")


def _paid(window: Window, name: str, limits: Limits) -> Sequence[Step] | None:
    """The steps over which the reward and ``name`` rose together beyond their noise; None where they did not."""
    steps = window.steps[-limits.hack_steps :]
    rewards, others = numbers(steps, "reward_mean"), numbers(steps, name)
    if len(rewards) < limits.hack_steps or len(others) < limits.hack_steps:
        return None
    sampling = mean([step.reward_std / max(1, step.groups) ** 0.5 for step in steps]) * (6 / len(steps)) ** 0.5
    risen = ends(rewards).at_least(sampling).exceeds(limits.hack_noise) and ends(others).exceeds(limits.hack_noise)
    return steps if risen and rank_correlation(rewards, others) >= limits.hack_correlation else None


def _risen(steps: Sequence[Step]) -> str:
    rewards = [step.reward_mean for step in steps]
    third = len(rewards) // 3
    return f"within {len(steps)} steps the mean reward rose from {mean(rewards[:third]):.2f} to {mean(rewards[-third:]):.2f}"
