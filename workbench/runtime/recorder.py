"""What a worker's process records of its phases while a step is profiled. Outside such steps there is no recorder, and no profiler."""

import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, TypeVar

from workbench.errors import StorageError
from workbench.roles import Role
from workbench.rollout.world import EngineRanks
from workbench.runtime.plans import Post, WorkerPlan
from workbench.telemetry.profile import ENGINE, Trace, calls
from workbench.telemetry.profile_trace import slim
from workbench.telemetry.traffic import Recording

T = TypeVar("T")
WORK = {  # what a worker is asked for -> as which role, in which phase of a step
    "rollout": (Role.ROLLOUT, "rollout"),
    "score": (Role.REWARD, "reward"),
    "reference": (Role.REFERENCE, "reference"),
    "values": (Role.CRITIC, "values"),
    "update_critic": (Role.CRITIC, "update_critic"),
    "update": (Role.ACTOR, "update_actor"),
    "sync": (Role.ACTOR, "sync"),
    "export": (Role.ACTOR, "sync"),
    "receive": (Role.ROLLOUT, "sync"),
}


class Recorder:
    """Runs torch.profiler around each phase of one process."""

    def __init__(self, post: Post, device: str) -> None:
        """``device``: "cpu" or "cuda"."""
        self.recordings: list[Recording] = []
        self._post, self._on_gpu = post, device == "cuda"
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would tell standard error of each start and stop

    def during(self, method: str, work: Callable[[], T]) -> T:
        """``work()``, recorded where it is a phase of the step. Of one that fails nothing is kept."""
        if method not in WORK:
            return work()
        from torch.profiler import ProfilerActivity, profile, record_function

        from workbench.runtime.listener import Listener

        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
        profiler = profile(activities=activities, record_shapes=True)
        profiler.start()
        try:
            with nullcontext() if self._on_gpu else Listener(), record_function(WORK[method][1]):
                began = time.perf_counter()
                done = work()
                self._wait_for_gpu()
                seconds = time.perf_counter() - began
        finally:
            with _uncollected():
                profiler.stop()
        with _uncollected():
            self._keep(method, seconds, profiler)
        return done

    def _wait_for_gpu(self) -> None:
        """Kernels that are still to run belong to the phase."""
        if self._on_gpu:
            import torch

            torch.cuda.synchronize()

    def _keep(self, method: str, seconds: float, profiler: Any) -> None:
        role, phase = WORK[method]
        trace = _exported(profiler, phase)
        device = self._post.pool.devices[self._post.rank]
        world = self._post.pool.devices if self._post.pool.is_world else (device,)
        made = tuple(replace(call, ranks=self._engine) if call.group == ENGINE else call for call in calls(trace))
        self.recordings.append(Recording(role, phase, self._post.rank, device, world, seconds, made, slim(trace)))

    @property
    def _engine(self) -> tuple[int, ...]:
        """The ranks of this process's engine."""
        pool = self._post.pool
        return EngineRanks(self._post.rank, pool.size, pool.engine_tp, pool.strided).together


def _exported(profiler: Any, phase: str) -> Trace:
    """The profiler's trace, which it writes to a file and no other way. Raises StorageError where that had no room."""
    try:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(file))
            trace: Trace = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:  # the profiler says nothing of a full disk: its file is cut off, or not there
        found = f"what the profiler wrote there is not whole ({error})"
        fix = "free space there, or name another folder in TMPDIR; or leave profile=... out"
        raise StorageError(f"the trace of {phase} in {gettempdir()}", found, fix) from error
    return trace


@contextmanager
def _uncollected() -> Iterator[None]:
    """Within, Python does not look for garbage: among the million small objects of a long rollout's trace that takes a minute."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Recorded:
    """The part of a worker that starts and ends recording."""

    plan: WorkerPlan
    post: Post
    recorder: Recorder | None = None

    def record(self, on: bool) -> None:
        """Record each phase from now on; or stop, and drop what was recorded."""
        self.recorder = Recorder(self.post, self.plan.device) if on else None

    def recorded(self) -> list[Recording]:
        """What was recorded; no more is."""
        recorder, self.recorder = self.recorder, None
        return recorder.recordings if recorder else []
