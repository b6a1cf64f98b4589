"""What a run tells Prometheus, as names: base units, ``_total`` for what only grows. ``docs/prometheus.md`` explains them.

Each has the label ``run``; what is said of a device also ``node`` and ``gpu``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

GIB, GB, MHZ = 2.0**30, 1e9, 1e6
BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)  # seconds of a phase
Rows = Iterable[tuple[Mapping[str, str], float | None]]  # labels beside ``run``, and the value; None: not known


@dataclass(frozen=True)
class Series:
    """A name and its meaning. ``field``: of the record that it is read from, times ``factor``."""

    name: str
    text: str
    field: str = ""
    factor: float = 1.0

    def of(self, record: object) -> float | None:
        """Its value in a record; None where that has none."""
        value = getattr(record, self.field)
        return None if value is None else float(value) * self.factor


DEVICE = (  # of ``Load``, one value a device
    Series("workbench_device_busy_ratio", "Share of the time in which any kernel ran; of a CPU slot, share of all CPUs", "busy"),
    Series("workbench_device_sm_busy_ratio", "Share of the multiprocessors at work", "sm"),
    Series("workbench_device_memory_used_bytes", "Memory in use", "memory_gib", GIB),
    Series("workbench_device_memory_size_bytes", "Memory there is", "total_gib", GIB),
    Series("workbench_device_power_watts", "Electric power", "watts"),
    Series("workbench_device_temperature_celsius", "Temperature", "celsius"),
    Series("workbench_device_sm_clock_hertz", "Clock of the multiprocessors", "sm_mhz", MHZ),
    Series("workbench_device_memory_clock_hertz", "Clock of the memory", "memory_mhz", MHZ),
    Series("workbench_device_pcie_receive_bytes_per_second", "Bytes that came over PCIe", "pcie_rx_gb_s", GB),
    Series("workbench_device_pcie_transmit_bytes_per_second", "Bytes that left over PCIe", "pcie_tx_gb_s", GB),
    Series("workbench_device_nvlink_receive_bytes_per_second", "Bytes that came over NVLink", "nvlink_rx_gb_s", GB),
    Series("workbench_device_nvlink_transmit_bytes_per_second", "Bytes that left over NVLink", "nvlink_tx_gb_s", GB),
)
THROTTLED = Series("workbench_device_throttled", "1 while something slows the clocks, by reason", "throttled")
ROLE = (  # of ``Load``, one value for each device and the roles of a process there
    Series("workbench_role_busy_ratio", "Share of the time in which kernels of these roles ran", "role_busy"),
    Series("workbench_role_memory_used_bytes", "Memory of the process that has these roles", "role_memory_gib", GIB),
)
PLACED = Series("workbench_role_placed", "1 for each role and each device that the map gives it")
PEAK = Series("workbench_device_memory_peak_bytes", "The highest use of memory so far", "peak_gib", GIB)
STEP = (  # of the last ``Step``
    Series("workbench_step", "Number of the last step", "step"),
    Series("workbench_reward_mean", "Mean reward of a step's completions", "reward_mean"),
    Series("workbench_reward_stddev", "Standard deviation of the rewards", "reward_std"),
    Series("workbench_kl_nats", "KL between policy and reference per token", "kl"),
    Series("workbench_kl_weight", "Weight of the KL penalty", "kl_weight"),
    Series("workbench_entropy_nats", "Entropy of the policy per token", "entropy"),
    Series("workbench_loss", "Loss of the actor", "loss"),
    Series("workbench_gradient_norm", "Norm of the actor's gradient", "grad_norm"),
    Series("workbench_learning_rate", "Learning rate of the actor", "learning_rate"),
    Series("workbench_clipped_ratio", "Share of the tokens whose gradient the clip took away", "clip_fraction"),
    Series("workbench_importance_mean", "Probability in the trainer over that in the engine, mean", "importance_mean"),
    Series("workbench_importance_max", "Probability in the trainer over that in the engine, largest", "importance_max"),
    Series("workbench_importance_truncated_ratio", "Share of the tokens at the importance cap", "importance_truncated_fraction"),
    Series("workbench_logprob_difference_mean_nats", "Engine against trainer on sampled tokens, mean", "logprob_diff_mean"),
    Series("workbench_logprob_difference_max_nats", "Engine against trainer on sampled tokens, largest", "logprob_diff_max"),
    Series("workbench_completion_length_mean_tokens", "Tokens of a completion, mean", "completion_tokens_mean"),
    Series("workbench_completion_length_max_tokens", "Tokens of the longest completion", "completion_tokens_max"),
    Series("workbench_completions_cut_ratio", "Share of the completions that were cut at max_tokens", "truncated_fraction"),
    Series("workbench_repetition_ratio", "Share of a completion's 4-grams that it had before", "repetition"),
    Series("workbench_groups", "Groups of completions in a step", "groups"),
    Series("workbench_groups_without_variance", "Groups that nothing can be learnt from", "groups_without_variance"),
    Series("workbench_staleness_versions", "Updates between the policy that sampled and the one that learnt", "staleness"),
    Series("workbench_value_loss", "Loss of the critic", "value_loss"),
    Series("workbench_value_clipped_ratio", "Share of the values that the clip held back", "value_clip_fraction"),
    Series("workbench_explained_variance", "Share of the returns' variance that the critic foretells", "explained_variance"),
    Series("workbench_critic_gradient_norm", "Norm of the critic's gradient", "critic_grad_norm"),
)
REWARD_NUMBER = Series("workbench_reward_number", "What the reward tells of itself, by name")
STEP_TIME = Series("workbench_last_step_timestamp_seconds", "When the last step ended, in seconds since 1970")
WANTED = Series("workbench_steps_wanted", "Steps that were asked for", "total")
HELD_OUT = (
    Series("workbench_held_out_step", "Step after which held-out prompts were last scored", "step"),
    Series("workbench_held_out_reward_mean", "Mean score on held-out prompts", "reward_mean"),
    Series("workbench_held_out_reward_stderr", "Standard error of that mean", "stderr"),
)
STEPS = Series("workbench_steps_total", "Steps that were made, those made again after a restore included")
STEP_SUMS = (  # of every ``Step``
    Series("workbench_steps_skipped_total", "Steps without anything to learn from", "skipped"),
    Series("workbench_data_wait_seconds_total", "Waits of steps for their prompts", "data_wait_seconds"),
    Series("workbench_reward_wait_seconds_total", "Waits of steps for a reward service that was down", "rested_seconds"),
    Series("workbench_ahead_seconds_total", "Sampling and scoring beside the step before", "ahead_seconds"),
)
TOKENS = Series("workbench_tokens_total", "Tokens, by kind: prompt, completion, trained")
SYNC_SUMS = (  # of every ``Sync``
    Series("workbench_sync_bytes_total", "Bytes of weights that went to the engine", "bytes"),
    Series("workbench_sync_seconds_total", "Seconds in which weights went to the engine", "seconds"),
    Series("workbench_sync_proof_seconds_total", "Seconds in which the weights there were proved", "proof_seconds"),
)
SYNCS = Series("workbench_syncs_total", "Times that weights went to the engine and were proved")
STEP_SECONDS = Series("workbench_step_seconds", "Seconds of a step")
PHASE_SECONDS = Series("workbench_phase_seconds", "Seconds of a phase in a step")
BUSY = Series("workbench_device_busy_seconds_total", "Time of steps in which a device worked, by role")
IDLE = Series("workbench_device_idle_seconds_total", "Time of steps in which a device waited, by what it waited for")
FINDING = Series("workbench_finding_active", "1 while a finding is open")
STATE = Series("workbench_run_state", "1 for the state that the run is in")
INFO = Series("workbench_run_info", "1, with what the run is made of")
QUEUE = (
    Series("workbench_engine_requests_running", "Requests that the engine worked at during the last rollout, mean", "running_mean"),
    Series("workbench_engine_requests_waiting", "Requests that waited in the engine during the last rollout, mean", "waiting_mean"),
)
PREEMPTED = Series("workbench_engine_preemptions_total", "Times that a request lost its place in the cache", "preempted")
RANKS = Series("workbench_rank_seconds", "What each rank of a role spent on its own work in a phase of the last step")
CHECKPOINT_TIME = Series("workbench_last_checkpoint_timestamp_seconds", "When the last checkpoint was written, in seconds since 1970")


class Times:
    """Seconds that were seen, counted in ``BUCKETS``."""

    def __init__(self) -> None:
        self.count, self.sum = 0, 0.0
        self._counts = [0] * (len(BUCKETS) + 1)

    def add(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        self.sum += seconds
        self._counts[next((at for at, bound in enumerate(BUCKETS) if seconds <= bound), len(BUCKETS))] += 1

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """("0.01", how many took at most that long), and so on."""
        bounds = [*map(floatToGoString, BUCKETS), "+Inf"]
        return [(bound, float(sum(self._counts[: at + 1]))) for at, bound in enumerate(bounds)]


def place(device: str, node: str) -> dict[str, str]:
    """The labels of a device: "node1:3" is GPU 3 of node1. A CPU slot, which no node is named for, keeps its name: on ``node``."""
    head, _, number = device.partition(":")
    return {"node": node, "gpu": device} if head in ("cpu", "driver") else {"node": head, "gpu": number}


def gauge(series: Series, run: str, rows: Rows) -> Metric:
    """Values as they are now."""
    known = _known(rows)
    family = GaugeMetricFamily(series.name, series.text, labels=_names(known))
    for labels, value in known:
        family.add_metric([run, *labels.values()], value)
    return family


def counter(series: Series, run: str, rows: Rows) -> Metric:
    """Values that only grow."""
    known = _known(rows)
    family = CounterMetricFamily(series.name, series.text, labels=_names(known))
    for labels, value in known:
        family.add_metric([run, *labels.values()], value)
    return family


def histogram(series: Series, run: str, rows: Sequence[tuple[Mapping[str, str], Times]]) -> Metric:
    """Seconds that were seen."""
    family = HistogramMetricFamily(series.name, series.text, labels=_names(rows))
    for labels, times in rows:
        family.add_metric([run, *labels.values()], times.buckets, times.sum)
    return family


def _known(rows: Rows) -> list[tuple[Mapping[str, str], float]]:
    return [(labels, value) for labels, value in rows if value is not None]


def _names(rows: Sequence[tuple[Mapping[str, str], object]]) -> list[str]:
    """Of the labels; all rows of a family have the same."""
    return ["run", *(rows[0][0] if rows else ())]
