"""Signs of a run that wastes its machine: what keeps devices waiting, what fills or slows them, who is late.

Thresholds are in ``Limits``. A device's use is that of its multiprocessors where the GPU counts them, else the share of the time in which
any kernel ran.
"""

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from workbench.records import mean
from workbench.telemetry.limits import Limits
from workbench.telemetry.step_load import LoadWindow, StepLoad, Value, values
from workbench.telemetry.trends import rise
from workbench.telemetry.window import Sign

LoadRule = Callable[[LoadWindow, Limits], Sign | None]
HARMFUL = ("hardware slowdown", "heat", "heat (hardware)", "power brake")  # a power cap is how a busy GPU runs
FASTER = "more workers for the prompts (offload_strategy: cpu_prefetch in the map), shorter or ready-made prompts"


def starved(window: LoadWindow, limits: Limits) -> Sign | None:
    """WB731: devices wait for data: by the steps' own account, or since use and PCIe traffic have fallen together."""
    recent = window.recent(limits.load_steps)
    shares = [step.record.data_wait_seconds / step.record.seconds for step in recent if step.record.seconds > 0]
    if len(shares) == limits.load_steps and min(shares) >= limits.data_share:
        found = f"{100 * mean(shares):.0f} % of a step's time goes by until its prompts are there: every device waits"
        return Sign("WB731", recent[0].step, found, FASTER)
    for device, (then, now) in _fallen(window, limits):
        pcie = _both_ends(window, device, lambda one: one.pcie_gb_s, limits)
        if pcie and mean(pcie[1]) <= limits.use_fall * mean(pcie[0]):
            found = f"{device}: use fell from {then:.0%} to {now:.0%}, and PCIe with it, from {_rates(pcie)}: less data comes in"
            return Sign("WB731", recent[0].step, found, f"{FASTER}; look at the load of the CPUs")
    return None


def communicates(window: LoadWindow, limits: Limits) -> Sign | None:
    """WB732: use has fallen while traffic has risen."""
    for device, (then, now) in _fallen(window, limits):
        links: tuple[tuple[str, Value], ...] = (("NVLink", lambda one: one.nvlink_gb_s), ("PCIe", lambda one: one.pcie_gb_s))
        for name, value in links:
            rates = _both_ends(window, device, value, limits)
            if rates and mean(rates[1]) >= max(limits.traffic_rise * mean(rates[0]), mean(rates[0]) + limits.traffic_least):
                found = f"{device}: use fell from {then:.0%} to {now:.0%} while {name} traffic rose from {_rates(rates)}"
                fix = "smaller groups: ddp instead of fsdp where the model fits, tp within one NVLink island; look at run.routes"
                return Sign("WB732", window.recent(limits.load_steps)[0].step, found, fix)
    return None


def _fallen(window: LoadWindow, limits: Limits) -> Iterator[tuple[str, tuple[float, float]]]:
    """Devices whose use has fallen since the begin, beyond the noise: (then, now)."""
    for device in window.devices:
        uses = _both_ends(window, device, lambda one: one.use, limits)
        if uses:
            fall = rise(uses[1], uses[0])
            low = mean(uses[1]) <= limits.use_fall * mean(uses[0])
            if low and fall.size >= limits.use_least and fall.exceeds(limits.use_noise):
                yield device, (mean(uses[0]), mean(uses[1]))


def _both_ends(window: LoadWindow, device: str, value: Value, limits: Limits) -> tuple[list[float], list[float]] | None:
    """A number of a device in the first steps and in the last; None where they overlap, or some step does not have it."""
    recent = window.recent(limits.load_steps)
    if len(window.begin) < limits.begin or not recent or recent[0].step <= window.begin[-1].step:
        return None
    then, now = values(window.begin, device, value), values(recent, device, value)
    return (then, now) if then and now else None


def _rates(ends: tuple[Sequence[float], Sequence[float]]) -> str:
    return f"{mean(ends[0]):.2g} to {mean(ends[1]):.2g} GB/s"


def full_and_idle(window: LoadWindow, limits: Limits) -> Sign | None:
    """WB733: memory is full, and the device works little even while it has work."""
    recent = window.recent(limits.load_steps)
    for device in _gpus(window):
        full, busy = values(recent, device, lambda one: one.full), values(recent, device, lambda one: one.busy)
        if full and busy and min(full) >= limits.full_share and max(busy) <= limits.idle_share:
            taken = f"{device}: {100 * mean(full):.0f} % of its memory is taken"
            found = f"{taken}, and while its roles work kernels run {100 * mean(busy):.0f} % of the time: the rest waits for the host"
            fix = "run.knobs.prompts or group_size higher, so that more is computed at once; VLLM(cuda_graphs=True); fewer roles on it"
            return Sign("WB733", recent[0].step, found, fix)
    return None


def late_rank(window: LoadWindow, limits: Limits) -> Sign | None:
    """WB734: one rank takes longer than the others, step after step; they wait for it."""
    recent = window.recent(limits.load_steps)
    for phase in recent[-1].ranks if recent else ():
        steps = [step.ranks.get(phase, ()) for step in recent]
        late = {_late(seconds, limits) for seconds in steps}
        rank = late.pop() if len(late) == 1 else None
        if rank is not None:
            own = median(seconds[rank] for seconds in steps)
            others = median(_others(seconds, rank) for seconds in steps)
            found = f"{_rank(window, phase, rank)} takes {own:.2f} s for its part of {phase}, the others {others:.2f} s, and wait for it"
            fix = "look at that device: other processes on it (nvidia-smi), its clocks and heat, its CPUs; or leave it out of the map"
            return Sign("WB734", recent[0].step, found, fix)
    return None


def _late(seconds: Sequence[float], limits: Limits) -> int | None:
    """The rank that is late in one step."""
    if len(seconds) < 2:
        return None
    rank = max(range(len(seconds)), key=lambda one: seconds[one])
    others = _others(seconds, rank)
    return rank if seconds[rank] >= max(limits.rank_factor * others, others + limits.rank_least) else None


def _others(seconds: Sequence[float], rank: int) -> float:
    return median([*seconds[:rank], *seconds[rank + 1 :]])


def _rank(window: LoadWindow, phase: str, rank: int) -> str:
    """ "rank 2 (local:2)"."""
    role = {"update_actor": "actor", "update_critic": "critic", "values": "critic"}.get(phase, phase)
    devices = window.placement.get(role, ())
    return f"rank {rank} ({devices[rank]})" if rank < len(devices) else f"rank {rank}"


def nearly_full(window: LoadWindow, limits: Limits) -> Sign | None:
    """WB735: hardly any memory is left."""
    recent = window.recent(limits.brief_steps)
    for device in _gpus(window):
        full = values(recent, device, lambda one: one.full)
        if full and min(full) >= limits.nearly_full:
            found = f"{device}: {100 * max(full):.1f} % of its memory is in use: a longer batch may not fit"
            fix = "a smaller VLLM(memory_share=...), Optimizer(token_budget=...) or max_tokens; VLLM(sleep=True) where engine and trainer"
            return Sign("WB735", recent[0].step, found, f"{fix} share it")
    return None


def slowed(window: LoadWindow, limits: Limits) -> Sign | None:
    """WB736: heat or the power supply slows a device's clocks."""
    recent = window.recent(limits.brief_steps)
    for device in window.devices if recent else ():
        for reason in HARMFUL:
            shares = values(recent, device, _share_of(reason))
            if shares and min(shares) >= limits.slowed_share:
                found = f"{device}: {reason} slows its clocks in {100 * mean(shares):.0f} % of the samples: its group waits for it"
                return Sign("WB736", recent[0].step, found, "look after its cooling and power; nvidia-smi -q -d PERFORMANCE tells more")
    return None


def _share_of(reason: str) -> Value:
    return lambda one: one.slowed.get(reason, 0.0)


def takes_turns(window: LoadWindow, limits: Limits) -> Sign | None:
    """WB737: rollout and update have GPUs of their own and take turns: one side idles while the other works."""
    recent = window.recent(limits.load_steps)
    sides = {"rollout": window.placement.get("rollout", ()), "update_actor": window.placement.get("actor", ())}
    if not recent or set(sides["rollout"]) & set(sides["update_actor"]) or not all(_alternates(step, sides, limits) for step in recent):
        return None
    rollout, update = (mean([step.record.phase_seconds[phase] / step.record.seconds for step in recent]) for phase in sides)
    found = (
        f"the rollout takes {rollout:.0%} of a step and the update {update:.0%}, on GPUs of their own: one side idles while the other works"
    )
    more = "rollout" if rollout > update else "actor"
    ratio = max(rollout, update) / min(rollout, update)
    uneven = (
        f"; then {more} needs {ratio:.1f} times the GPUs that it has now, beside the other, to be done at the same time"
        if ratio > 1.5
        else ""
    )
    return Sign("WB737", recent[0].step, found, f"Run(overlap=1) samples the next step meanwhile{uneven}; or give both roles all GPUs")


def _alternates(step: StepLoad, sides: dict[str, Sequence[str]], limits: Limits) -> bool:
    """Whether each side is busy in its own phase and idle in the other's, and neither phase is short."""
    if not all(step.record.phase_seconds.get(phase, 0.0) >= limits.turn_share * step.record.seconds > 0 for phase in sides):
        return False
    for phase in sides:
        for side, devices in sides.items():
            busy = [one.by_phase[phase] for one in step.devices if one.device in devices and phase in one.by_phase]
            if not busy or (mean(busy) < limits.turn_busy if side == phase else mean(busy) > limits.turn_idle):
                return False
    return True


def queue_is_wrong(window: LoadWindow, limits: Limits) -> Sign | None:
    """WB738: the engine computes requests again, holds most of them back, or has hardly any to decode together."""
    recent = window.recent(limits.load_steps)
    queues = [step.queue for step in recent if step.queue is not None]
    if not queues or len(queues) < limits.load_steps:
        return None
    since, running, waiting = recent[0].step, mean([one.running_mean for one in queues]), mean([one.waiting_mean for one in queues])
    asked = mean([step.record.tokens_completion / max(1.0, step.record.completion_tokens_mean) for step in recent])
    if sum(one.preempted >= max(1.0, limits.preempted_share * asked) for one in queues) > limits.load_steps / 2:
        lost = mean([one.preempted for one in queues])
        found = f"{lost:.0f} of {asked:.0f} requests a step lost their place in the KV cache and were computed again"
        return Sign("WB738", since, found, "a larger VLLM(memory_share=...) or kv_cache_gib, kv_dtype='fp8', or a smaller max_sequences")
    if all(one.waiting_mean >= max(1.0, limits.queue_factor * one.running_mean) for one in queues):
        found = f"{waiting:.0f} requests wait while {running:.0f} are decoded: the engine holds most of them back"
        return Sign("WB738", since, found, "a larger VLLM(max_sequences=...) or KV cache (memory_share), or more GPUs for the rollout")
    if all(0 < one.running_mean <= limits.tail_share * asked for one in queues):
        found = f"of {asked:.0f} completions {running:.0f} are decoded at a time, on average: a few long ones hold up the step"
        return Sign("WB738", since, found, "a smaller run.knobs.max_tokens, more prompts a step, or Run(overlap=1) where roles are apart")
    return None


def _gpus(window: LoadWindow) -> list[str]:
    """Of a CPU slot it is not known what else fills the host's memory."""
    return [device for device in window.devices if not device.startswith(("cpu:", "driver:"))]


LOAD_RULES: tuple[LoadRule, ...] = (
    starved,
    communicates,
    full_and_idle,
    late_rank,
    nearly_full,
    slowed,
    takes_turns,
    queue_is_wrong,
)
