"""All workers of a run as one: the loop speaks to a team and never knows how many processes answer, or where.

What goes to which rank is derived from the pools (see routes.py); a runtime carries it out.
"""

import math
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from workbench.algos import Algorithm
from workbench.batch import Batch, Completion
from workbench.errors import DivergedError, StateError, SyncError
from workbench.models.actor import Update
from workbench.models.critic import ValueUpdate
from workbench.models.experience import Experience, Share, Worth, shares, worth_shares
from workbench.models.packing import Row
from workbench.ragged import Ragged
from workbench.records import EngineReady, Sync, mean
from workbench.reshard.canary import Canary
from workbench.roles import Role
from workbench.rollout.config import TAKES_ADAPTER, Sampling
from workbench.runtime.account import Account
from workbench.runtime.arrivals import arrived
from workbench.runtime.calls import Answer, Call, Held, Runtime
from workbench.runtime.outpost import Outpost
from workbench.runtime.plans import Arrival, CanaryDied, Draw, Estimate, Opened, Report, Signal, Stop, Told, WorkerPlan, never
from workbench.runtime.pools import Fan, Pool
from workbench.runtime.routes import Routes, routes
from workbench.runtime.seat import Seat
from workbench.runtime.second_look import SecondLook

OF_CRITIC = "critic/"  # before the critic's names in a checkpoint


class Team:
    """The workers of a run, behind the calls that a step makes. ``open`` before use, ``close`` to give the memory back."""

    def __init__(self, plan: WorkerPlan, pools: Sequence[Pool], runtime: Runtime, notices: Sequence[str] = ()) -> None:
        self.plan, self.runtime = plan, runtime
        self.notices = tuple(notices)  # worth knowing before the first step
        self.home: dict[Role, Pool] = {role: pool for pool in pools for role in pool.roles}
        self.pools = tuple(pools)
        self.seats: tuple[Seat, ...] = ()
        self.window = 0  # tokens of prompt and completion that an engine holds
        self.version = 0  # of the adapter that the engines sample from
        self._updates: int | None = 0  # optimizer steps so far; None: ask
        self._synced = -1  # the updates at the last sync that was proved
        self._moved: dict[tuple[str, str], int] = {}  # (phase, way) -> bytes of the last step
        self._moving: Counter[tuple[str, str]] = Counter()  # since it was counted last
        self._mine = threading.local()  # phases of a step may be in threads of their own: each hears of its own calls

    # ------------------------------------------------------------ life

    def open(self, report: Report, stop: Stop = never) -> EngineReady:
        """Load the models and start the engines, everywhere. ``sync`` and ``warm_up`` come next."""
        opened: list[Opened] = [answer.value for answer in self.runtime.open(report, stop)]
        self.seats = tuple(seat for one in opened for seat in one.seats)
        ready = next(one.engine for one in opened if one.engine is not None)
        self.window = ready.max_model_len
        return ready

    def warm_up(self, stop: Stop = never) -> None:
        """Sample a few tokens: an engine's first ones are slow."""
        self._ask(Role.ROLLOUT, "warm_up", stop=stop)

    def close(self) -> None:
        """End every worker."""
        self.runtime.close()

    def outposts(self, hz: float) -> Sequence[Outpost]:
        """Samplers of the load on the machines of the run that are not this one, started now."""
        return self.runtime.outposts(self.seats, hz)

    def devices_of(self, role: Role) -> tuple[str, ...]:
        """Where a role works, by name."""
        return self.home[role].devices

    def are_apart(self, one: Role, other: Role) -> bool:
        """Whether both roles are there, on devices of their own: they can work at the same time."""
        pools = self.home.get(one), self.home.get(other)
        return pools[0] is not None and pools[1] is not None and set(pools[0].devices).isdisjoint(pools[1].devices)

    @property
    def is_broken(self) -> bool:
        """Whether a worker is gone, or hangs."""
        return self.runtime.broken

    def count(self, *, step_ended: bool) -> None:
        """Begin to count what is moved; where a step has ended, that was the step's. What moves between two steps is nobody's."""
        if step_ended:
            self._moved = dict(self._moving)
        self._moving.clear()

    def accounts(self) -> list[Account]:
        """Of this thread's last call that was spread over a role's ranks: what each of them took. Once: it is forgotten then."""
        accounts: list[Account] = getattr(self._mine, "accounts", [])
        self._mine.accounts = []
        return accounts

    @property
    def routes(self) -> Routes:
        """What goes from whom to whom, with the bytes of the last step."""
        return routes(self.pools, inline=self.runtime.inline, mode=self.plan.mode).with_bytes(self._moved)

    # ------------------------------------------------------------ phases

    def rollout(
        self, prompts: Sequence[tuple[int, ...]], group_size: int, draw: Draw, stop: Stop, told: Told | None = None
    ) -> list[Completion]:
        """``group_size`` completions of every prompt, grouped. ``told`` hears of each as it ends, maybe twice."""
        slices = self._fan(Role.ROLLOUT).slices(len(prompts))
        asked = [(prompts[part.start : part.stop], part.start, group_size, draw) for part in slices]
        return [completion for part in self._spread(Role.ROLLOUT, "rollout", asked, stop, told=told) for completion in part]

    def reference(self, batch: Batch, temperature: float, stop: Stop) -> list[torch.Tensor]:
        """Log-probabilities of every response under the base: (length,) each, on the CPU."""
        rows = rows_of(batch)
        asked = [(rows[part.start : part.stop], temperature) for part in self._fan(Role.REFERENCE).slices(len(rows))]
        return [logp for part in self._spread(Role.REFERENCE, "reference", asked, stop) for logp in part]

    def score(self, rows: Sequence[tuple[Any, str, Any]], prompt_indices: Sequence[int], stop: Stop) -> list[float]:
        """The reward of every (prompt, completion, answer), from the workers of the reward role."""
        slices = self._fan(Role.REWARD).slices(len(rows))
        asked = [(rows[part.start : part.stop], prompt_indices[part.start : part.stop]) for part in slices]
        return [reward for part in self._spread(Role.REWARD, "reward", asked, stop, "score") for reward in part]

    def update(self, batch: Batch, signal: Signal, algo: Algorithm, rate: float, sampling: Sampling, stop: Stop) -> Update:
        """Learn from ``batch``; the canary sees engine and trainer side by side before anything is applied."""
        whole = Experience(
            rows=rows_of(batch),
            engine_logp=[c.logp for c in batch.completions],
            advantages=signal.advantages,
            ref_logp=signal.ref_logp,
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
        )
        asked = [(_packed(share), algo, rate, signal.version) for share in shares(whole, algo, self._fan(Role.ACTOR).copies)]
        self._updates = None
        try:
            update: Update = self._spread(Role.ACTOR, "update_actor", asked, stop, "update")[0]
        except CanaryDied as died:
            if math.isnan(died.mean_diff):  # the engine's are finite: a rollout looks
                found = "the trainer's log-probabilities are not finite: the policy has diverged"
                raise DivergedError("update of the actor", found, "a smaller learning rate; go on from the last checkpoint") from None
            cause = SecondLook(self, batch, sampling).cause()
            raise Canary.for_dtype(self.plan.dtype).failed(died.max_diff, died.mean_diff, cause) from None
        return update

    def values(self, batch: Batch, stop: Stop) -> list[torch.Tensor]:
        """The critic's value of the state before every response token: (length,) each, on the CPU."""
        rows = rows_of(batch)
        asked = [(rows[part.start : part.stop],) for part in self._fan(Role.CRITIC).slices(len(rows))]
        return [values for part in self._spread(Role.CRITIC, "values", asked, stop) for values in part]

    def update_critic(self, batch: Batch, learnt: Estimate, algo: Algorithm, rate: float, sampling: Sampling, stop: Stop) -> ValueUpdate:
        """Let the critic learn from ``batch``."""
        whole = Worth(rows_of(batch), learnt.values, learnt.targets, sampling.max_tokens)
        parts = worth_shares(whole, algo, self._fan(Role.CRITIC).copies)
        asked = [(replace(part, values=Ragged.of(part.values), targets=Ragged.of(part.targets)), algo, rate) for part in parts]
        update: ValueUpdate = self._spread(Role.CRITIC, "update_critic", asked, stop)[0]
        return update

    def sync(self, step: int, stop: Stop = never) -> Sync:
        """The actor's weights from the trainer's memory into every engine's, and the exact proof that they arrived."""
        updates, version = self.updates, self.version + 1
        if self.home[Role.ACTOR] is self.home[Role.ROLLOUT]:
            answers = self._ask(Role.ACTOR, "sync", version, stop=stop)
        else:
            sent = self._ask(Role.ACTOR, "export", version, stop=stop, hold=True)[0]
            answers = self._ask(Role.ROLLOUT, "receive", version, stop=stop, carry=sent.value)
        self._moving["sync", "sync"] += sum(answer.bytes_there for answer in answers)
        arrivals: list[Arrival] = [answer.value for answer in answers]
        record = arrived(step, version, self.plan.mode, arrivals)
        if self.plan.mode not in TAKES_ADAPTER:
            self._moving["sync", "sync"] += record.bytes
        sums = {arrival.checksum for arrival in arrivals}
        if len(sums) > 1:
            found = f"the engines hold {len(sums)} different ones: {', '.join(sorted(sums))}"
            raise SyncError(f"sync of adapter version {version}", found, "the trainer's ranks differ: was a gradient not reduced?")
        self.version, self._synced = version, updates
        return record

    # ------------------------------------------------------------ state

    @property
    def updates(self) -> int:
        """Optimizer steps made so far."""
        if self._updates is None:
            self._updates = int(self._ask(Role.ACTOR, "updates")[0].value)
        return self._updates

    @property
    def made(self) -> tuple[int, int]:
        """Optimizer steps so far: the actor's, and the critic's since the workers were opened. Broken-off ones count."""
        return self.updates, int(self._ask(Role.CRITIC, "critic_updates")[0].value) if self.has_critic else 0

    @property
    def in_sync(self) -> bool:
        """Whether every engine holds the adapter as it is in the trainer, proved."""
        return self.updates == self._synced

    @property
    def has_critic(self) -> bool:
        """Whether there is one."""
        return Role.CRITIC in self.home

    def load_state(self, tensors: dict[str, torch.Tensor], updates: int, version: int) -> None:
        """Go on from a checkpoint; the ``sync`` that follows gives the engine the adapter as ``version``, as it was called then."""
        mine = {name: tensor for name, tensor in tensors.items() if not name.startswith(OF_CRITIC)}
        self._ask(Role.ACTOR, "load_state", mine, updates)
        if self.has_critic:
            theirs = {name.removeprefix(OF_CRITIC): tensor for name, tensor in tensors.items() if name.startswith(OF_CRITIC)}
            self._ask(Role.CRITIC, "load_critic_state", theirs)
        self._updates, self.version, self._synced = updates, version - 1, -1

    def state(self) -> dict[str, torch.Tensor]:
        """What ``load_state`` goes on from: copies on the CPU; the critic's under names of their own."""
        state: dict[str, torch.Tensor] = self._ask(Role.ACTOR, "state")[0].value
        critic = self._ask(Role.CRITIC, "critic_state")[0].value if self.has_critic else {}
        return {**state, **{f"{OF_CRITIC}{name}": tensor for name, tensor in critic.items()}}

    @property
    def is_finite(self) -> bool:
        """Whether what was trained is worth saving: no weight is NaN or infinite."""
        answers = self._ask(Role.ACTOR, "is_finite") + (self._ask(Role.CRITIC, "critic_is_finite") if self.has_critic else [])
        return all(answer.value for answer in answers)

    def save_actor(self, path: Path) -> None:
        """Write the actor: its adapter in peft's format, or where all is trained its model. Raises OSError, also on a full disk."""
        _write(path, self._ask(Role.ACTOR, "actor_files")[0].value)

    def save_critic(self, path: Path) -> None:
        """Write the critic: its adapter in peft's format, or its model, and its head. Raises OSError."""
        _write(path, self._ask(Role.CRITIC, "critic_files")[0].value)

    def peak_memory_gib(self) -> dict[str, float]:
        """Device -> the most that was held so far; of several processes on one device their sum."""
        peaks: dict[str, float] = {}
        for call, peak in self.everyone("peak_memory_gib"):
            device = call.pool.devices[call.rank]
            peaks[device] = peaks.get(device, 0.0) + float(peak)
        return peaks

    def everyone(self, method: str, *args: Any) -> list[tuple[Call, Any]]:
        """The same of every worker, whatever its roles: each call, with what it gave."""
        calls = [Call(pool, rank, method, args) for pool in self.pools for rank in range(pool.size)]
        return [(call, answer.value) for call, answer in zip(calls, self.runtime.run(calls, never), strict=True)]

    def reward_numbers(self) -> dict[str, float]:
        """What the reward in its own processes tells of itself since it was last asked: means over the processes."""
        said: list[dict[str, float]] = [answer.value for answer in self._ask(Role.REWARD, "reward_numbers")]
        names = dict.fromkeys(name for numbers in said for name in numbers)
        return {name: mean([numbers[name] for numbers in said if name in numbers]) for name in names}

    def reward_state(self) -> Any:
        """What the reward in its own process keeps; None of one without memory."""
        return self._ask(Role.REWARD, "reward_state")[0].value

    def load_reward_state(self, state: Any) -> None:
        """Give that reward its memory back."""
        self._ask(Role.REWARD, "load_reward_state", state)

    # ------------------------------------------------------------ a second look, for a canary that died

    def score_alone(self, rows: Sequence[Row], temperature: float) -> list[list[float]]:
        """The trainer's log-probabilities of each row, in a pass of its own."""
        scored: list[list[float]] = self._ask(Role.ACTOR, "score_alone", rows, temperature)[0].value
        return scored

    def score_afresh(self, ids: Sequence[int], prompt_tokens: int) -> list[float]:
        """An engine's log-probabilities of ``ids[prompt_tokens:]`` at temperature 1, without cached prefixes."""
        scored: list[float] = self._ask(Role.ROLLOUT, "score_afresh", ids, prompt_tokens)[0].value
        return scored

    @property
    def behind(self) -> int:
        """Updates that the trainer made since the engines got its adapter."""
        return self.updates - self._synced

    # ------------------------------------------------------------ inside

    def _fan(self, role: Role) -> Fan:
        return self.home[role].fan(role)

    def _spread(
        self, role: Role, phase: str, asked: Sequence[tuple[Any, ...]], stop: Stop, method: str = "", told: Told | None = None
    ) -> list[Any]:
        """One call of each rank, with the arguments of its copy; the copies' answers in order. ``asked``: one a copy."""
        pool, fan = self.home[role], self._fan(role)
        calls = [Call(pool, rank, method or phase, asked[fan.copy_of(rank)]) for rank in range(pool.size)]
        answers = self.runtime.run(calls, stop, told) if told else self.runtime.run(calls, stop)
        self._moving[phase, "there"] += sum(answer.bytes_there for answer in answers)
        self._moving[phase, "back"] += sum(answer.bytes_back for answer in answers)
        self._mine.accounts = [
            answer.account if rank in fan.leaders else replace(answer.account, queue=None) for rank, answer in enumerate(answers)
        ]
        return [answers[rank].value for rank in fan.leaders]

    def _ask(self, role: Role, method: str, *args: Any, stop: Stop = never, carry: Held | None = None, hold: bool = False) -> list[Answer]:
        """The same of every rank of a role's pool."""
        if role not in self.home:
            raise StateError(f"ask the {role} for {method}", "no worker has that role", "see the map: run.routes")
        pool = self.home[role]
        return self.runtime.run([Call(pool, rank, method, args, carry, hold) for rank in range(pool.size)], stop)


def _write(path: Path, files: dict[str, bytes]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (path / name).write_bytes(content)


def _packed(share: Share) -> Share:
    """The same in few pieces, for the way to another process."""
    ref_logp = None if share.ref_logp is None else Ragged.of(share.ref_logp)
    return replace(share, advantages=Ragged.of(share.advantages), ref_logp=ref_logp)


def rows_of(batch: Batch) -> list[Row]:
    """The batch as token ids, one row per completion."""
    return [Row(batch.prompt_of(r).ids, c.ids) for r, c in enumerate(batch.completions)]
