"""Signs of a critic that misleads: its loss explodes, or it explains nothing."""

import math

from workbench.telemetry.limits import Limits
from workbench.telemetry.window import Sign, Window, first, middle, numbers


def value_loss_explodes(window: Window, limits: Limits) -> Sign | None:
    """WB711: against its own median, and worse than a critic that knows only the mean reward."""
    learnt = [step for step in window.steps if step.value_loss is not None]
    last = window.last.value_loss
    if last is None:
        return None
    fix = "a tenth of the critic's learning rate, PPO(value_clip=0.2), and rewards of a scale near 1; more of the critic's warm-up steps"
    if not math.isfinite(last):
        return Sign("WB711", window.last.step, f"the value loss is {last}: the critic has diverged", fix)
    before, recent = learnt[: -limits.value_steps], learnt[-limits.value_steps :]
    if len(before) < limits.value_least:
        return None
    then, now = middle(before, "value_loss"), middle(recent, "value_loss")
    spread = middle(recent, "reward_std")
    useless = limits.value_share * spread * spread
    if not (now > limits.value_factor * then and now > useless):
        return None
    found = (
        f"value loss {now:.3g} in the median of {len(recent)} steps, {then:.3g} in all before, and more than a critic has that knows only "
        f"the mean ({useless:.3g}): advantages are the critic's error now"
    )
    since = first(recent, lambda step: (step.value_loss or 0.0) > limits.value_factor * then)
    return Sign("WB711", since, found, fix)


def critic_explains_nothing(window: Window, limits: Limits) -> Sign | None:
    """WB712: the explained variance stays below 0."""
    steps = [step for step in window.steps if step.explained_variance is not None][-limits.variance_steps :]
    if window.last.explained_variance is None or len(numbers(steps, "explained_variance")) < limits.variance_steps:
        return None
    share = middle(steps, "explained_variance")
    if share >= 0 or middle(steps[-limits.variance_last :], "explained_variance") >= 0:
        return None
    found = (
        f"explained variance {share:.2f} in the median of {len(steps)} steps: values worse than none, which add noise to every advantage"
    )
    fix = "PPO(gae_lambda=1.0), which leans on the critic least, and more warm-up steps for it; or GRPO, which has none"
    return Sign("WB712", steps[0].step, found, fix)
