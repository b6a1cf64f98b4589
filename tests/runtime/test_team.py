"""What a team asks of which rank, seen at the runtime's door; and a team over the real worker, in this process."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.kills import Rewarding
from tests.runtime.conftest import SAMPLING, learn, prompts_of, sample, worker_of
from workbench.algos import GRPO
from workbench.batch import Batch, Completion, Prompt
from workbench.errors import MemoryShortError, StateError, SyncError
from workbench.mapping import DeviceMap
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.records import EngineReady
from workbench.roles import Role
from workbench.rollout.config import VLLM
from workbench.runtime.calls import Answer, Call, Held
from workbench.runtime.inline import Inline
from workbench.runtime.plans import Arrival, Draw, Opened, Report, Signal, Stop, WorkerPlan, never
from workbench.runtime.pools import Pool, machine_of, split
from workbench.runtime.seat import Seat
from workbench.runtime.team import Team

DRAW = Draw(("step", 3), 0.8, 12)
PLAN = WorkerPlan(Path("nowhere"), LoRA(), Optimizer(), VLLM(), "cpu", "float32", seed=0)
APART = {"actor": "0-1", "rollout": "2-5 tp2", "reference": "6-7", "reward": "1-2"}


class Door:
    """Writes down what is asked, and answers by ``answers[method](call)``; ten bytes there and seven back each time."""

    inline, broken = False, False

    def __init__(self, answers: dict[str, Callable[[Call], Any]]) -> None:
        self.answers, self.asked = answers, list[Call]()

    def open(self, report: Report, stop: Stop) -> list[Answer]:
        seat = Seat("rollout", "local", "local:2", None, 1, 0, 4, "tp=2", "rollout", [])
        return [Answer(Opened((), None)), Answer(Opened((seat,), EngineReady("vllm", "0", 1.0, 512)))]

    def run(self, calls: Sequence[Call], stop: Stop) -> list[Answer]:
        self.asked += calls
        answers = [self.answers.get(call.method, lambda call: None)(call) for call in calls]
        return [Answer(Held(value) if call.hold else value, 10, 7) for call, value in zip(calls, answers, strict=True)]

    def close(self) -> None:
        self.broken = True


def team_of(written: dict[str, str], **answers: Callable[[Call], Any]) -> tuple[Team, Door]:
    devices = DeviceMap(**written)
    door = Door(answers)
    return Team(PLAN, split(devices, machine_of(devices, None)), door), door


def said(text: str) -> Completion:
    return Completion((1, 2), (-0.5, -0.25), text, "stop")


def batch(prompts: int) -> Batch:
    """Two completions a prompt, of two tokens each."""
    return Batch(
        tuple(Prompt(f"p{n}", (n, n), None, n, f"p{n}") for n in range(prompts)),
        tuple(said(f"c{row}") for row in range(2 * prompts)),
    )


def ranks(calls: Sequence[Call]) -> list[tuple[str, int]]:
    return [(call.method, call.rank) for call in calls]


def test_prompts_are_scattered_to_the_engines_and_both_ranks_of_one_get_the_same() -> None:
    def sampled(call: Call) -> list[Completion]:
        prompts, first = call.args[:2]
        return [said(f"{'' if call.rank % 2 == 0 else 'not the leader: '}{first + place}") for place in range(len(prompts))]

    team, door = team_of(APART, rollout=sampled)
    completions = team.rollout([(n,) for n in range(5)], 1, DRAW, never)
    assert [c.text for c in completions] == ["0", "1", "2", "3", "4"]
    assert [(call.rank, *call.args) for call in door.asked] == [
        (0, [(0,), (1,)], 0, 1, DRAW),
        (1, [(0,), (1,)], 0, 1, DRAW),
        (2, [(2,), (3,), (4,)], 2, 1, DRAW),
        (3, [(2,), (3,), (4,)], 2, 1, DRAW),
    ]


def test_rows_are_scattered_to_the_reference_and_come_back_in_order() -> None:
    team, door = team_of(APART, reference=lambda call: [torch.tensor(row.prompt) for row in call.args[0]])
    assert [logp.tolist() for logp in team.reference(batch(3), 0.8, never)] == [[0, 0], [0, 0], [1, 1], [1, 1], [2, 2], [2, 2]]
    assert [(call.rank, len(call.args[0]), call.args[1]) for call in door.asked] == [(0, 3, 0.8), (1, 3, 0.8)]


def test_rewards_are_shared_out_with_the_numbers_of_their_prompts() -> None:
    team, door = team_of(APART, score=lambda call: [float(index) for index in call.args[1]])
    rows = [("p", f"c{n}", None) for n in range(3)]
    assert team.score(rows, [7, 8, 9], never) == [7.0, 8.0, 9.0]
    assert [(call.rank, call.args) for call in door.asked] == [(0, (rows[:1], [7])), (1, (rows[1:], [8, 9]))]


def test_every_rank_of_the_actor_learns_from_its_share_and_one_answer_counts() -> None:
    team, door = team_of(APART, update=lambda call: f"of rank {call.rank}", updates=lambda call: 5)
    signal = Signal([torch.ones(2)] * 4, version=3)
    assert team.update(batch(2), signal, GRPO(group_size=2), 0.02, SAMPLING, never) == "of rank 0"
    assert ranks(door.asked) == [("update", 0), ("update", 1)]
    shares = [call.args[0] for call in door.asked]
    assert sorted(number for share in shares for number in share.numbers) == [0, 1, 2, 3]
    assert [call.args[2:] for call in door.asked] == [(0.02, 3)] * 2
    assert team.updates == 5  # how many were made only the actor knows
    assert not team.in_sync


def test_the_ranks_of_a_tensor_parallel_actor_share_their_rows() -> None:
    team, door = team_of({"actor": "0-3 tp2", "rollout": "4"}, update=lambda call: call.rank)
    team.update(batch(2), Signal([torch.ones(2)] * 4), GRPO(group_size=2), 0.02, SAMPLING, never)
    numbers = [list(call.args[0].numbers) for call in door.asked]
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]


def arrival(checksum: str, seconds: float = 1.0) -> Arrival:
    return Arrival(100, seconds, seconds / 2, checksum)


def test_an_adapter_goes_past_the_driver_to_every_engine() -> None:
    parcel = object()
    answers = {"export": lambda call: parcel if call.rank == 0 else None, "receive": lambda call: arrival("ab", 1.0 + call.rank)}
    team, door = team_of(APART, **answers)
    sync = team.sync(7)
    assert ranks(door.asked) == [("export", 0), ("export", 1), ("receive", 0), ("receive", 1), ("receive", 2), ("receive", 3)]
    assert [call.hold for call in door.asked] == [True] * 2 + [False] * 4
    assert [call.args for call in door.asked] == [(1,)] * 6
    assert all(call.carry.ref is parcel for call in door.asked[2:])
    assert (sync.step, sync.version, sync.bytes, sync.checksum) == (7, 1, 100, "ab")
    assert (sync.seconds, sync.proof_seconds) == (4.0, 2.0)  # of the slowest
    assert (team.version, team.in_sync) == (1, True)
    team.count(step_ended=True)
    assert [route.bytes for route in team.routes if route.phase == "sync"] == [40]


def test_on_the_same_devices_every_rank_hands_it_over_to_itself() -> None:
    team, door = team_of({"actor": "0-1"}, sync=lambda call: arrival("ab"))
    assert [team.sync(0).version, team.sync(1).version] == [1, 2]
    assert ranks(door.asked) == [("sync", 0), ("sync", 1)] * 2


def test_engines_that_hold_different_adapters_are_an_error_and_no_version() -> None:
    team, _ = team_of(APART, receive=lambda call: arrival("ab" if call.rank < 3 else "cd"))
    with pytest.raises(
        SyncError, match=r"sync of adapter version 1: the engines hold 2 different ones: ab, cd\n  fix: .*a gradient not reduced"
    ):
        team.sync(0)
    assert (team.version, team.in_sync) == (0, False)


def test_a_checkpoint_is_read_by_all_and_written_by_the_first() -> None:
    state = {"weight.a": torch.ones(1)}
    team, door = team_of(APART, state=lambda call: state if call.rank == 0 else {}, sync=lambda call: arrival("ab"))
    assert team.state() == state
    team.load_state(state, updates=12, version=9)
    assert ranks(door.asked) == [("state", 0), ("state", 1), ("load_state", 0), ("load_state", 1)]
    assert door.asked[-1].args == (state, 12)
    assert (team.updates, team.version, team.in_sync) == (12, 8, False)  # the sync that follows makes it version 9 again


def test_the_critics_state_lies_beside_the_actors() -> None:
    team, door = team_of(
        {"actor": "0", "critic": "1-2", "rollout": "3"},
        state=lambda call: {"weight.a": torch.ones(1)},
        critic_state=lambda call: {"weight.a": torch.zeros(1)} if call.rank == 0 else {},
    )
    state = team.state()
    assert state == {"weight.a": torch.ones(1), "critic/weight.a": torch.zeros(1)}
    door.asked.clear()
    team.load_state(state, updates=1, version=1)
    assert [(call.pool.name, call.rank, call.method, list(call.args[0])) for call in door.asked] == [
        ("actor+reference", 0, "load_state", ["weight.a"]),
        ("critic", 0, "load_critic_state", ["weight.a"]),
        ("critic", 1, "load_critic_state", ["weight.a"]),
    ]


def test_the_adapters_files_are_the_first_ranks(tmp_path: Path) -> None:
    team, _ = team_of(APART, actor_files=lambda call: {"adapter_config.json": b"{}"} if call.rank == 0 else {})
    team.save_actor(tmp_path / "adapter")
    assert [(file.name, file.read_bytes()) for file in (tmp_path / "adapter").iterdir()] == [("adapter_config.json", b"{}")]


def test_memory_is_of_devices_and_that_of_two_processes_on_one_adds_up() -> None:
    team, _ = team_of({"actor": "0-1", "rollout": "2-3", "reference": "1-2"}, peak_memory_gib=lambda call: 2.0**call.rank)
    assert team.peak_memory_gib() == {"local:0": 1.0, "local:1": 2.0 + 1.0, "local:2": 1.0 + 2.0, "local:3": 2.0}


def test_bytes_are_those_of_all_ranks_and_all_rounds_of_a_step() -> None:
    team, _ = team_of(APART, rollout=lambda call: [])
    assert {route.bytes for route in team.routes} == {None}  # nothing was moved yet
    team.rollout([(1,)], 1, DRAW, never)  # an evaluation, before the step
    team.count(step_ended=False)
    for _ in range(2):
        team.rollout([(1,)], 1, DRAW, never)
    team.count(step_ended=True)
    team.rollout([(1,)], 1, DRAW, never)  # a talk, after it
    assert [route.bytes for route in team.routes if route.phase == "rollout"] == [2 * 4 * 10, 2 * 4 * 7]


def test_a_role_that_no_worker_has() -> None:
    team, _ = team_of({"actor": "0", "rollout": "1"})
    with pytest.raises(StateError, match="ask the reward for reward_state: no worker has that role"):
        team.reward_state()


def test_what_opening_tells() -> None:
    team, _ = team_of(APART)
    assert team.open(lambda *progress: None).name == "vllm"
    assert (team.window, [seat.device for seat in team.seats]) == (512, ["local:2"])
    assert team.devices_of(Role.ROLLOUT) == ("local:2", "local:3", "local:4", "local:5")
    team.close()
    assert team.is_broken


# ---------------------------------------------------------------- the real worker


def test_a_completion_hangs_on_its_place_in_the_step_and_not_on_which_engine_samples_it(fresh: Team) -> None:
    prompts = [prompt.ids for prompt in prompts_of(fresh)]
    whole = fresh.rollout(prompts, 4, DRAW, never)
    parts = [worker_of(fresh).rollout(prompts[part.start : part.stop], part.start, 4, DRAW) for part in (range(1), range(1, 4))]
    assert [c.ids for part in parts for c in part] == [c.ids for c in whole]
    assert [c.ids for c in worker_of(fresh).rollout(prompts[1:], 0, 4, DRAW)] != [c.ids for c in whole[4:]]


def test_an_adapter_that_is_sent_and_received_is_the_one_that_a_sync_hands_over(fresh: Team) -> None:
    learn(fresh, sample(fresh))
    here = fresh.sync(1)
    (pool,), run = fresh.pools, fresh.runtime.run
    (sent,) = run([Call(pool, 0, "export", (fresh.version,), hold=True)], never)
    assert isinstance(sent.value, Held)
    assert sent.value.ref.bytes == here.bytes
    (arrived,) = run([Call(pool, 0, "receive", (fresh.version,), carry=sent.value)], never)
    assert arrived.value.checksum == here.checksum == sent.value.ref.checksum


def test_a_batch_of_the_policy_before_is_learnt_from(fresh: Team) -> None:
    version, old = fresh.version, sample(fresh)
    learn(fresh, sample(fresh, 1))
    fresh.sync(1)
    updates = fresh.updates
    learn(fresh, old, version=version)
    assert fresh.updates == updates + 1


def test_the_canary_looks_at_old_batches_with_the_adapter_of_then(fresh: Team) -> None:
    version, old = fresh.version, sample(fresh)
    for step in (1, 2):  # two versions apart: what the trainer keeps
        with torch.no_grad():
            for parameter in worker_of(fresh).actor.masters.parameters:
                parameter += 0.05
        fresh.sync(step)
    with pytest.raises(StateError, match=f"a batch of adapter version {version}: the trainer keeps {version + 1}, {version + 2}"):
        learn(fresh, old, version=version)
    before = {name: tensor.clone() for name, tensor in worker_of(fresh).actor.adapter().items()}
    with pytest.raises(SyncError, match="canary"):
        learn(fresh, old, version=version + 1)  # it was not that one who sampled
    assert all(torch.equal(tensor, before[name]) for name, tensor in worker_of(fresh).actor.adapter().items())


def test_a_worker_out_of_memory_says_whose_and_what_helps(fresh: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*args: Any, **named: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(worker_of(fresh).actor, "logp", short)
    match = r"^update of the actor, rank 0 of 1, on cpu:0: out of memory: .*2\.00 GiB\.\n  fix: a smaller Optimizer\(token_budget"
    with pytest.raises(MemoryShortError, match=match):
        learn(fresh, sample(fresh))


def test_a_reward_in_a_worker_scores_and_keeps_its_memory() -> None:
    """The role of the reward by itself: no model is loaded for it."""
    pool = Pool((Role.REWARD,), ("cpu:0",), on_cpu=True)
    plan = replace(PLAN, reward=Rewarding())
    team = Team(plan, (pool,), Inline(plan, pool))
    team.runtime.open(lambda *progress: None, never)
    try:
        assert team.score([("p", "a", None), ("p", "b", None)], [0, 1], never) == [1.0, 0.0]
        assert team.reward_state() == {"asked": 2}
        team.load_reward_state({"asked": 300})
        assert team.score([("p", "a", None)], [0], never) == [0.0]
    finally:
        team.close()


class Keeping(Rewarding):
    """Goes on writing into what it was given."""

    def __call__(self, prompt: str, completion: str, answer: Any) -> float:
        self.memory["asked"] += 1
        return 0.0

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.memory = state


def test_a_reward_that_writes_into_its_memory_leaves_the_checkpoints_alone() -> None:
    pool = Pool((Role.REWARD,), ("cpu:0",), on_cpu=True)
    team = Team(PLAN, (pool,), Inline(replace(PLAN, reward=Keeping()), pool))
    team.runtime.open(lambda *progress: None, never)
    kept = {"asked": 5}
    try:
        team.load_reward_state(kept)
        team.score([("p", "a", None)], [0], never)
        assert kept == {"asked": 5}
    finally:
        team.close()
