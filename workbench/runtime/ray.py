"""Pools of Ray actors: one process per device, reserved, pinned, watched, and ended.

The driver never touches CUDA: what a process may see is in its environment before it starts.
"""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from workbench.errors import CollectiveError, Stopped, WorkbenchError, WorkerError
from workbench.roles import Role
from workbench.runtime.calls import Answer, Call
from workbench.runtime.flight import POLL_SECONDS, Flight, Member, Watch, value_of
from workbench.runtime.holders import running
from workbench.runtime.host import Host, pickled
from workbench.runtime.outpost import NodeSampler, Outpost
from workbench.runtime.plans import Post, Report, Stop, Told, WorkerPlan
from workbench.runtime.pools import Pool
from workbench.runtime.samplers import devices_of
from workbench.runtime.seat import Seat

if TYPE_CHECKING:
    from workbench.runtime.ground import Ground

GRACE_SECONDS = 10.0  # for the other ranks to come back once one has failed
DEATH_SECONDS = 2.0  # until Ray has noticed that a process is gone
GONE_SECONDS = 3.0  # for killed processes to go
LEAVE_SECONDS = 15.0  # for engines to end in an orderly way
PASSED_ON = ("VLLM_", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "TORCH", "NCCL_", "GLOO_", "WORKBENCH_", "XDG_CACHE_HOME")


class RayRuntime:
    """The workers of one run on Ray. ``ground``: where they stand: a cluster, with devices reserved on it."""

    inline = False

    def __init__(self, plan: WorkerPlan, pools: Sequence[Pool], ground: "Ground") -> None:
        self.plan, self.pools, self.ground = plan, tuple(pools), ground
        self.broken = False
        self._cause: WorkerError | CollectiveError | None = None  # why it is broken, as it was seen first
        self.members: dict[tuple[Pool, int], Member] = {}
        self._numbers = itertools.count()
        self._closed = False

    # ------------------------------------------------------------ opening

    def open(self, report: Report, stop: Stop) -> list[Answer]:
        """Reserve, start the processes, let pools join their worlds, load. A stop meanwhile ends them all."""
        try:
            self.ground.reserve(self.pools)
            report("workers", 0, self._count, "starting processes")
            self._start(stop)
            report("workers", 0, self._count, "loading libraries")
            self._join(stop)
            report("workers", self._count, self._count, "")
            calls = [Call(pool, rank, "open") for pool in self.pools for rank in range(pool.size)]
            opened = self._wait_for(calls, stop, lambda: self._pass_on(report))
            self._pass_on(report)
            return opened
        except BaseException:
            self.broken = True  # who is still loading is not waited for
            self.close()
            raise

    @property
    def _count(self) -> int:
        return sum(pool.size for pool in self.pools)

    def _start(self, stop: Stop) -> None:
        """The processes, all at once; each seen alive before any is asked for more."""
        import ray

        actor = ray.remote(concurrency_groups={"life": 1, "control": 1})(Host)
        plans = {pool: pickled(self.plan.on(pool)) for pool in self.pools}
        started = {(pool, rank): self._process(actor, plans[pool], pool, rank) for pool in self.pools for rank in range(pool.size)}
        pids = {place: handle.pid.options(concurrency_group="control").remote() for place, handle in started.items()}
        try:
            found = dict(zip(pids, self._gather(list(pids.values()), stop), strict=True))
        except BaseException:
            for handle in started.values():
                ray.kill(handle)
            raise
        for (pool, rank), handle in started.items():
            life = handle.live.options(concurrency_group="life").remote()
            node = "local" if self.ground.is_local else self.ground.node_of(pool.devices[rank])
            uuid = self.ground.uuid_of(pool.devices[rank])
            self.members[pool, rank] = Member(pool, rank, handle, life, found[pool, rank], node, uuid)

    def _process(self, actor: Any, plan: bytes, pool: Pool, rank: int) -> Any:
        device = pool.devices[rank]
        cpus, threads = self.ground.cpus_of(device), self.ground.threads_of(device)
        options = {
            "num_cpus": 0,
            "num_gpus": 0,
            "max_restarts": 0,
            "scheduling_strategy": self.ground.strategy(device),
            "runtime_env": {"env_vars": self._environment(pool, device, threads)},
        }
        return actor.options(**options).remote(plan, pickled(Post(pool, rank)), cpus)

    def _environment(self, pool: Pool, device: str, threads: int) -> dict[str, str]:
        """What a worker's process finds set. It sees its own GPU and no other."""
        passed = here() if self.ground.is_local else {}
        ring = {"NCCL_ALGO": "Ring"} if pool.nccl == "ring" else {}
        return {
            **passed,
            **ring,
            "OMP_NUM_THREADS": str(threads),  # Ray would leave a process that reserves no CPU with one
            "OMP_WAIT_POLICY": "PASSIVE",
            "CUDA_VISIBLE_DEVICES": self.ground.uuid_of(device) or "",
            "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
            **self.ground.settings.env,
        }

    def _join(self, stop: Stop) -> None:
        """Every pool's processes become ranks of one world, where they work in one. All at once: most of it is importing."""
        first = {pool: self.members[pool, 0].handle.address.remote() for pool in self.pools if pool.is_world}
        address = dict(zip(first, self._gather(list(first.values()), stop), strict=True))
        self._gather([member.handle.join.remote(address.get(pool)) for (pool, _), member in self.members.items()], stop)

    def _gather(self, refs: list[Any], stop: Stop) -> list[Any]:
        """What ``refs`` give, while a stop and a death are noticed. Raises WorkerError where that takes longer than a start may."""
        import ray

        timeout = self.ground.settings.start_timeout
        end, left = time.monotonic() + timeout, refs
        while left:
            ready, left = ray.wait(left, num_returns=len(left), timeout=POLL_SECONDS)
            for ref in ready:
                value_of(ref, None, "", self.ground.logs)  # raises what failed at once, not behind the others
            if stop():
                raise Stopped("workers")
            if time.monotonic() > end:
                fix = f"look at {self.ground.logs}; on a slow disk the first import takes long: wb.Ray(start_timeout=...)"
                raise WorkerError("start the workers", f"{len(left)} of {len(refs)} gave no answer within {timeout:g} s", fix)
        return [ray.get(ref) for ref in refs]

    def _pass_on(self, report: Report) -> None:
        """Progress of the actor's and the rollout's first process; others load meanwhile."""
        import ray

        for (pool, rank), member in self.members.items():
            if rank == 0 and not {Role.ACTOR, Role.ROLLOUT}.isdisjoint(pool.roles):
                with suppress(Exception):
                    for told in ray.get(member.handle.progress.options(concurrency_group="control").remote(), timeout=1):
                        report(*told)

    # ------------------------------------------------------------ calls

    def run(self, calls: Sequence[Call], stop: Stop, told: Told | None = None) -> list[Answer]:
        """All at once; answers in order. The first thing that goes wrong stops the others, and is raised."""
        return self._wait_for(calls, stop, told=told)

    def _wait_for(
        self, calls: Sequence[Call], stop: Stop, meanwhile: Callable[[], None] | None = None, told: Told | None = None
    ) -> list[Answer]:
        """``meanwhile`` is called again and again: while workers open, when they may not answer for a while."""
        if self._cause is not None:
            raise type(self._cause)(self._cause.asked, self._cause.found, self._cause.fix)
        if self.broken or self._closed:
            raise WorkerError("ask the workers", "they have ended", "Run.restore(path) goes on from the last checkpoint")
        patience = None if meanwhile else self.ground.settings.timeout("control")
        flight = Flight(next(self._numbers), calls, self.members, self.ground.logs, Watch(patience, told))
        try:
            while flight.waits:
                flight.look()
                if meanwhile:
                    meanwhile()
                if stop():
                    flight.interrupt()
            return flight.answers()
        except BaseException as error:
            flight.interrupt()
            death = flight.death(DEATH_SECONDS) if _may_follow_a_death(error) else None
            if not flight.comes_back(0.0 if death else GRACE_SECONDS) or death or isinstance(error, WorkerError | CollectiveError):
                self.broken = True
            self._cause = self._cause or death or (error if isinstance(error, WorkerError | CollectiveError) else None)
            if death is not None:
                raise death from error
            raise

    # ------------------------------------------------------------ beside the calls

    def outposts(self, seats: Sequence[Seat], hz: float) -> Sequence[Outpost]:
        """A sampler on every node that is not the driver's, in the bundle of a device that the run has there: it ends with that."""
        there: dict[str, list[Seat]] = {}
        for seat in seats if not self.ground.is_local else ():
            node = self.ground.node_of(seat.device)
            if not self.ground.is_here(node):
                there.setdefault(node, []).append(seat)
        return [self._outpost(node, mine, hz) for node, mine in there.items()]

    def _outpost(self, node: str, seats: Sequence[Seat], hz: float) -> Outpost:
        import ray

        devices = devices_of(seats)
        options = {
            "num_cpus": 0,
            "num_gpus": 0,
            "max_restarts": 0,
            "scheduling_strategy": self.ground.strategy(seats[0].device),
            "runtime_env": {"env_vars": {"CUDA_VISIBLE_DEVICES": "", "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}},
        }
        return Outpost(node, list(devices), ray.remote(NodeSampler).options(**options).remote(devices, tuple(seats), hz))

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """End every process, wait until it is gone, and give the devices back."""
        if self._closed:
            return
        self._closed = True
        import ray

        members = list(self.members.values()) if ray.is_initialized() else []
        try:
            leaving = [] if self.broken else [member.handle.leave.remote() for member in members]
            if leaving:
                ray.wait(leaving, num_returns=len(leaving), timeout=LEAVE_SECONDS)
        finally:  # also where an interrupt does not wait for the engines
            for member in members:
                ray.kill(member.handle)
            self._wait_gone(members)
            self.ground.release()

    def _wait_gone(self, members: Iterable[Member]) -> None:
        """Until the kernel has no such process any more: only then is its memory free. Of other machines Ray's word is enough."""
        import ray

        lives = [member.life for member in members]
        if lives:
            ray.wait(lives, num_returns=len(lives), timeout=GONE_SECONDS)
        mine = [member.pid for member in members if self.ground.is_local or self.ground.is_here(member.node)]
        for pid in mine:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # one that was stopped does not hear Ray
        end = time.monotonic() + GRACE_SECONDS
        while any(map(running, mine)) and time.monotonic() < end:
            time.sleep(0.02)


def _may_follow_a_death(error: BaseException) -> bool:
    """Whether another rank's end can be what this one failed of: a connection that was closed, a rank that did not arrive."""
    return isinstance(error, CollectiveError) or (isinstance(error, RuntimeError) and not isinstance(error, WorkbenchError))


def here() -> dict[str, str]:
    """What workers on this machine take over: settings of the libraries, and where modules are found (a reward's may be anywhere)."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    return passed | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}  # a notebook has "", its folder, among them
