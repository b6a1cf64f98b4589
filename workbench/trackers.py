"""What a run measures, sent to experiment trackers through accelerate: TensorBoard, Weights & Biases, trackio, MLflow.

TensorBoard's files are written into the run's folder (``tensorboard/``). The others keep their data where they always do, in a
project called "workbench": what they are for is to show many runs beside each other. The event stream remains the truth.
"""

import math
import queue
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.events import Event, EventLog
from workbench.flat import flat
from workbench.records import HeldOut, Knob, Memory, Notice, Record, Step

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

KNOWN = ("tensorboard", "wandb", "trackio", "mlflow")
PROJECT = "workbench"
SECONDS_TO_CLOSE = 30.0  # for what is on its way when a run ends; a network may hang for ever
_ODD = re.compile(r"[^\w\-. /]")  # MLflow refuses them in a name
_KINDS = ("step", "held_out", "knob", "memory")


@dataclass(frozen=True)
class Numbers:
    """What a tracker is told at once: names to finite numbers, at a step."""

    step: int
    values: dict[str, float]


def check_trackers(names: Sequence[str] | None) -> tuple[str, ...]:
    """The trackers that a run will use: those named, or (None) TensorBoard where it is installed.

    Raises ConfigError on one that is unknown, or not installed, with the command that installs it.
    """
    if names is None:
        return ("tensorboard",) if _is_installed("tensorboard") else ()
    chosen = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
    for name in chosen:
        if name not in KNOWN:
            raise ConfigError(f"trackers={names!r}", f"{name!r} is none that is known", f"use some of {', '.join(KNOWN)}, or () for none")
        if not _is_installed(name):
            raise ConfigError(f"trackers={names!r}", f"{name} is not installed", f"pip install {name}")
    return chosen


def attach(log: EventLog, names: Sequence[str] | None, folder: Path, config: Mapping[str, Any]) -> Callable[[], None]:
    """Send the steps, held-out scores and knobs that ``log`` records from now on to trackers. Returns what ends it.

    Nothing is sent on the thread that writes the log. ``config``: the run's settings, nested or not. The closer waits, at most
    ``SECONDS_TO_CLOSE``, until all is sent; call it before the log is closed. A tracker that fails is left out from then on, and a
    Notice says so; the run goes on.
    """
    chosen = check_trackers(names)
    if names is None:
        log.emit(Notice(f"tracker: tensorboard, in {folder / 'tensorboard'}" if chosen else "no tracker: tensorboard is not installed"))
    if not chosen:
        return lambda: None
    sender = _Sender(log, chosen, folder, flat(config))
    leave = log.subscribe(sender.take, replay=False)

    def close() -> None:
        leave()
        sender.close()

    return close


class _Sender:
    """A thread that feeds trackers from a queue. It begins with the first number, when the run's Accelerator is there."""

    def __init__(self, log: EventLog, names: Sequence[str], folder: Path, config: dict[str, Any]) -> None:
        self._log, self._names, self._folder, self._config = log, names, folder, config
        self._waiting: queue.SimpleQueue[Numbers | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._trackers: dict[str, GeneralTracker] = {}
        self._peak_gib = 0.0
        self._late = False  # closed before all was sent: what fails from now on is known

    def take(self, event: Event) -> None:
        """Take in one event; on the thread that writes the log."""
        if event.kind not in _KINDS:
            return
        record = event.record
        if isinstance(record, Memory):
            self._peak_gib = max(self._peak_gib, record.peak_gib)
            return
        numbers = numbers_of(record, self._peak_gib)
        if numbers is None:
            return
        self._waiting.put(numbers)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"trackers-{self._folder.name}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Send what waits, and end the trackers. Twice is harmless."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._waiting.put(None)
        thread.join(SECONDS_TO_CLOSE)
        if thread.is_alive():
            self._late = True
            self._log.emit(Notice(f"trackers {', '.join(self._trackers)}: not all was sent within {SECONDS_TO_CLOSE:.0f} s"))

    def _work(self) -> None:
        for name in self._names:
            self._guarded(name, partial(self._start, name))
        while (numbers := self._waiting.get()) is not None:
            for name, tracker in tuple(self._trackers.items()):
                self._guarded(name, partial(tracker.log, numbers.values, step=numbers.step))
        for name, tracker in tuple(self._trackers.items()):
            self._guarded(name, tracker.finish)

    def _start(self, name: str) -> None:
        from accelerate import PartialState

        if not PartialState._shared_state:
            PartialState(cpu=True)  # accelerate's log wants one; a process without an Accelerator of its own has no use for a GPU
        tracker = make_tracker(name, self._folder)
        tracker.start()
        self._trackers[name] = tracker
        tracker.store_init_configuration(
            {key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in self._config.items()}
        )

    def _guarded(self, name: str, call: Callable[[], Any]) -> None:
        """``call``; a tracker whose call fails, whatever its reason, is left out."""
        try:
            call()
        except Exception as error:
            self._trackers.pop(name, None)
            if not self._late:
                self._log.emit(Notice(f"tracker {name} is left out from now on: {type(error).__name__}: {error}"))


def make_tracker(name: str, folder: Path) -> "GeneralTracker":
    """The tracker of accelerate's that ``name`` means, for the run in ``folder``; not started."""
    from accelerate import tracking

    if name == "tensorboard":
        return tracking.TensorBoardTracker("tensorboard", folder)
    if name == "wandb":
        quiet = {"silent": True, "console": "off"}  # a thread must not print into a notebook, nor take what cells print
        return tracking.WandBTracker(PROJECT, name=folder.name, dir=str(folder), settings=quiet)
    if name == "trackio":
        return tracking.TrackioTracker(PROJECT, name=folder.name)
    return tracking.MLflowTracker(PROJECT, run_name=folder.name)


def numbers_of(record: Record, peak_gib: float = 0.0) -> Numbers | None:
    """What ``record`` says in numbers; None where it says nothing.

    What is not there or not finite is left out: half of the trackers refuse it.
    """
    if isinstance(record, Step):
        values: Mapping[str, float | None] = _of_step(record) | ({"memory/peak_gib": peak_gib} if peak_gib else {})
    elif isinstance(record, HeldOut):
        values = {"held_out/reward_mean": record.reward_mean, "held_out/reward_stderr": record.stderr}
    elif isinstance(record, Knob):
        values = _of_knob(record)
    else:
        return None
    finite = {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
    return Numbers(record.step, finite) if finite else None


def _of_step(step: Step) -> dict[str, float | None]:
    return {
        "reward/mean": step.reward_mean,
        "reward/std": step.reward_std,
        **{f"reward_numbers/{_ODD.sub('_', name)}": value for name, value in step.reward_numbers.items()},
        "kl": step.kl,
        "kl_weight": step.kl_weight,
        "loss": step.loss,
        "entropy": step.entropy,
        "grad_norm": step.grad_norm,
        "learning_rate": step.learning_rate,
        "clip_fraction": step.clip_fraction,
        "importance/mean": step.importance_mean,
        "importance/max": step.importance_max,
        "importance/truncated_fraction": step.importance_truncated_fraction,
        "logprob_diff/max": step.logprob_diff_max,
        "logprob_diff/mean": step.logprob_diff_mean,
        "completion/tokens_mean": step.completion_tokens_mean,
        "completion/tokens_max": step.completion_tokens_max,
        "completion/truncated_fraction": step.truncated_fraction,
        "completion/repetition": step.repetition,
        "critic/value_loss": step.value_loss,
        "critic/value_clip_fraction": step.value_clip_fraction,
        "critic/explained_variance": step.explained_variance,
        "critic/grad_norm": step.critic_grad_norm,
        "groups/without_variance": step.groups_without_variance,
        "tokens/completion": step.tokens_completion,
        "tokens/trained": step.tokens_trained,
        "time/step": step.seconds,
        **{f"time/{phase}": seconds for phase, seconds in step.phase_seconds.items()},
    }


def _of_knob(knob: Knob) -> dict[str, float]:
    """A clip of two sides is two numbers."""
    if isinstance(knob.new, list | tuple):
        return {f"knob/{knob.name}_{side}": value for side, value in zip(("low", "high"), knob.new, strict=False)}
    return {f"knob/{knob.name}": knob.new} if isinstance(knob.new, int | float) else {}


def _is_installed(name: str) -> bool:
    """By its distribution: a folder ``wandb/`` beside a notebook can be imported, too."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
