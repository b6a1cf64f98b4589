"""Signs of a policy that goes astray, or learns nothing: KL, entropy, equal rewards, completions that are cut."""

import math

from workbench.records import Step, mean
from workbench.telemetry.limits import Limits
from workbench.telemetry.trends import Change, deviation, rise
from workbench.telemetry.window import Sign, Window, closer, either, first, middle, numbers, slower

WHY_KL = "text falls apart there, and rewards were made for text like the base's"


def kl_blows_up(window: Window, limits: Limits) -> Sign | None:
    """WB701: far from the base, or all at once farther than before."""
    recent = window.steps[-limits.kl_steps :]
    fix = f"{either(slower(window), closer(window, limits))}; Run.restore(path) goes back to the last checkpoint"
    if not math.isfinite(window.last.kl):
        return Sign("WB701", window.last.step, f"KL to the base is {window.last.kl}: the policy has diverged", fix)
    if len(window.steps) < limits.kl_steps:
        return None
    now = middle(recent, "kl")
    if now > limits.kl_level:
        since = first(recent, lambda step: step.kl > limits.kl_level)
        return Sign("WB701", since, f"KL to the base {now:.2f} nats per token, above {limits.kl_level:g}: {WHY_KL}", fix)
    before = window.steps[-limits.kl_before - limits.kl_steps : -limits.kl_steps]
    if len(before) < limits.kl_before:
        return None
    then = middle(before, "kl")
    grown = Change(now - then, deviation(numbers(before, "kl")))
    if now > limits.kl_factor * then and grown.size > limits.kl_rise and grown.exceeds(limits.kl_noise):
        since = first(recent, lambda step: step.kl > limits.kl_factor * then)
        found = f"KL to the base {now:.2f} nats per token, {then:.2f} in the {len(before)} steps before: {WHY_KL}"
        return Sign("WB701", since, found, fix)
    return None


def entropy_collapses(window: Window, limits: Limits) -> Sign | None:
    """WB702: hardly a choice is left, while there is something to learn."""
    recent = window.steps[-limits.entropy_steps :]
    if len(window.steps) < limits.entropy_steps or window.last.step < window.begin[0].step + limits.begin + limits.entropy_steps - 1:
        return None
    then, now = middle(window.begin, "entropy"), middle(recent, "entropy")
    if not (now < limits.entropy_floor and now < limits.entropy_share * then) or _is_solved(window, limits):
        return None
    found = f"entropy {now:.3f} nats per token, {then:.2f} in the first steps: samples of a prompt are copies, so that nothing new is tried"
    warmer = f"run.knobs.temperature = {1.2 * (window.knob('temperature') or 1.0):.3g}"
    since = first(recent, lambda step: step.entropy < limits.entropy_floor)
    return Sign("WB702", since, found, either(slower(window), warmer, _wider(window)))


def _is_solved(window: Window, limits: Limits) -> bool:
    """Rewards are higher than they were and hardly differ any more: the policy may be sure of itself."""
    recent = window.steps[-limits.entropy_steps :]
    narrow = middle(recent, "reward_std") < limits.solved * middle(window.begin, "reward_std")
    return narrow and middle(recent, "reward_mean") > middle(window.begin, "reward_mean")


def _wider(window: Window) -> str:
    """DAPO's "clip higher" (arXiv 2503.14476, section 3.1): 0.28 where it was 0.2; nothing where no two sides are known."""
    clip = window.knobs.get("clip")
    match (clip, clip) if isinstance(clip, float) else clip:
        case (float(low), float(high)):
            return f"a higher upper clip (run.knobs.clip = ({low:g}, {1.4 * high:.3g}))"
        case _:
            return ""


def nothing_to_learn(window: Window, limits: Limits) -> Sign | None:
    """WB703: advantages are all zero, step after step. With a critic equal rewards teach nonetheless."""
    if window.last.value_loss is not None:
        return None
    skipped = window.steps[-limits.skipped_steps :]
    if len(skipped) == limits.skipped_steps and all(step.skipped for step in skipped):
        found = f"{len(skipped)} steps in a row were skipped: in every group all rewards are equal, so that advantages are 0"
        return Sign("WB703", skipped[0].step, f"{found} ({_level(window)})", _other_prompts(window))
    flat = window.steps[-limits.flat_steps :]
    compares = window.knob("group_size") != 1  # one completion has nothing to differ from
    if compares and len(flat) == limits.flat_steps and all(_flat_share(step) >= limits.flat_share for step in flat):
        share = mean([_flat_share(step) for step in flat])
        found = f"for {len(flat)} steps {100 * share:.0f} % of the groups had equal rewards: they are sampled, and teach nothing"
        return Sign("WB703", flat[0].step, f"{found} ({_level(window)})", _other_prompts(window))
    return None


def _flat_share(step: Step) -> float:
    return step.groups_without_variance / step.groups


def _level(window: Window) -> str:
    return f"mean reward {window.last.reward_mean:.2f}, at the beginning {middle(window.begin, 'reward_mean'):.2f}"


def _other_prompts(window: Window) -> str:
    """Too hard or too easy: what the reward was at the beginning tells."""
    learnt = window.last.reward_mean > middle(window.begin, "reward_mean")
    prompts = "a task with harder prompts" if learnt else "a task with easier prompts, or rewards that give part marks"
    size = window.knob("group_size")
    return either(prompts, f"run.knobs.group_size = {2 * size}" if size else "larger groups", "DAPO, which samples until groups differ")


def completions_are_cut(window: Window, limits: Limits) -> Sign | None:
    """WB704: more and more completions end at max_tokens."""
    recent = window.steps[-limits.cut_steps :]
    if len(window.begin) < limits.begin or window.last.step < window.begin[-1].step + limits.cut_steps:
        return None
    then, now = ([step.truncated_fraction for step in steps] for steps in (window.begin, recent))
    grown = rise(then, now)
    if not (mean(now) >= limits.cut_share and grown.size >= limits.cut_growth and grown.exceeds(limits.cut_noise)):
        return None
    most = window.knob("max_tokens")
    found = (
        f"{100 * mean(now):.0f} % of the completions are cut at max_tokens{f' = {most}' if most else ''}, {100 * mean(then):.0f} % in the "
        "first steps: an answer that isn't finished can't be right, so that the reward says how long, not how good"
    )
    since = first(recent, lambda step: step.truncated_fraction >= mean(then) + limits.cut_growth)
    longer = f"run.knobs.max_tokens = {2 * most}" if most else "a larger max_tokens"
    return Sign("WB704", since, found, either(longer, "DAPO(overlong_penalty=1.0), which takes reward off long ones"))
