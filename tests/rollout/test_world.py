"""Engines in a world of two ranks: one each, then one that both hold. Two worlds at once, and one that is killed.

Two real processes start once for all of it; ``first_pair`` does everything in order and tells what it saw.
"""

import gc
import os
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.blocks import SHARED_MEMORY, left_behind
from tests.rollout.ranks import Ranks, hear, say
from workbench.errors import ConfigError, EngineError, Stopped
from workbench.rollout import inner, inner_cpu, inner_gpu
from workbench.rollout.config import VLLM
from workbench.rollout.engine import Engine, EnginePlan, Request
from workbench.rollout.start import out_of_memory, told
from workbench.rollout.world import POLL, EngineRanks, same_draws

PROMPT = tuple(int(x) % 38 + 2 for x in range(5, 75))  # over two blocks of 32
RANK, SCALING = 4, 2.0
SIZES = {  # module -> (in, out): hidden 128, 4 heads and 2 of keys of 32, 256 inside the MLP
    **{f"self_attn.{name}": (128, 128 if name in "q_proj o_proj" else 64) for name in ("q_proj", "k_proj", "v_proj", "o_proj")},
    **{"mlp.gate_proj": (128, 256), "mlp.up_proj": (128, 256), "mlp.down_proj": (256, 128)},
}
CONFIG = {"r": RANK, "lora_alpha": int(RANK * SCALING), "target_modules": "all-linear", "peft_type": "LORA", "bias": "none"}


# ---------------------------------------------------------------- inside the ranks


def started(model: Path, tp: int) -> Engine:
    """An engine on the small model."""
    from workbench.models.tokenizer import Tokenizer

    config = VLLM(window=256, block_size=32, max_sequences=64, kv_cache_gib=0.05)
    return Engine(EnginePlan(model, Tokenizer(model).raw, RANK, "cpu", "float32", 0, config, tp=tp))


def adapter(seed: int, modules: tuple[str, ...] = tuple(SIZES)) -> dict[str, torch.Tensor]:
    """A strong random adapter, in peft's names; the same on every rank."""
    own = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in (0, 1):
        for module in modules:
            wide, tall = SIZES[module]
            name = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, wide, generator=own) * 0.1
            tensors[f"{name}.lora_B.weight"] = torch.randn(tall, RANK, generator=own) * 0.1
    return tensors


def pairs(tensors: dict[str, torch.Tensor]) -> dict[str, inner.Pair]:
    """What has to be resident of ``tensors`` in an engine of one rank."""
    names = [name.removesuffix(".lora_A.weight") for name in tensors if "lora_A" in name]
    short = {name: name.removeprefix("base_model.model.") for name in names}
    return {short[name]: (tensors[f"{name}.lora_A.weight"], tensors[f"{name}.lora_B.weight"] * SCALING) for name in names}


def drawn(engine: Engine, count: int, seed: int | None, temperature: float = 1.0, tokens: int = 8) -> list[tuple[Any, Any]]:
    """Completions, of the base where a seed is given: ids and log-probabilities."""
    found = engine.generate([Request(PROMPT, seed)] * count, temperature=temperature, max_tokens=tokens, adapter=seed is None)
    return [(c.ids, c.logp) for c in found]


def versions(engine: Engine) -> list[tuple[Any, Any]]:
    """Greedy completions of the base and of two adapters, one after the other, on the same prompt."""
    found = drawn(engine, 1, None, 0.0)
    for version in (1, 2):
        engine.push(adapter(version), CONFIG, version)
        found += drawn(engine, 1, None, 0.0)
    return found


def each_its_own(rank: int, model: Path, kept_group: Any) -> dict[str, Any]:
    """Two engines of one rank."""
    engine = started(model, tp=1)
    env = {key: os.environ[key] for key in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    if rank == 0:
        dist.barrier()  # rank 1 generates meanwhile; if engines met, both would wait for ever
    seen = {
        "env": env,
        "seeded": drawn(engine, 4, seed=3),
        "unseeded": drawn(engine, 4, seed=None),
        "uneven": len(drawn(engine, 9 * rank, 1)),
    }
    if rank == 1:
        dist.barrier()
    seen["versions"] = versions(engine)
    seen["whole"] = _same(engine.expected(pairs(adapter(2))), pairs(adapter(2)))

    def full() -> bool:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free")

    with pytest.raises(EngineError, match=r"decode 1 completions of up to 4 tokens: CUDA out of memory.*2\.00 GiB"):
        engine.generate([Request(PROMPT)], temperature=1.0, max_tokens=4, should_stop=full)
    return seen | {"after": ended(engine, kept_group)}


def ended(engine: Engine, kept_group: Any) -> list[float]:
    """Close; then sums over the default group and one that was there before, and whether the engine's model is gone."""
    model = weakref.ref(inner.runner(engine._llm).model)
    engine.close()
    gc.collect()
    one, other = torch.ones(1), torch.ones(1)
    dist.all_reduce(one)
    dist.all_reduce(other, group=kept_group)
    return [float(one), float(other), float(model() is None)]


def together(rank: int, engine: Engine) -> dict[str, Any]:
    """One engine of two ranks."""
    seen: dict[str, Any] = {"versions": versions(engine)}
    sent = pairs(adapter(2))
    held, slot = engine.expected(sent), engine.resident()
    seen["proved"] = _same(held, {name: (a[:RANK], b[:, :RANK]) for name, (a, b) in slot.items()})
    seen["by hand"] = _same(held, {name: by_hand(name, pair, rank) for name, pair in sent.items()})
    few = adapter(3, ("self_attn.v_proj",))
    engine.push(few, CONFIG, 3)
    seen["few"] = sorted(engine.expected(pairs(few)))
    torch.manual_seed(rank)  # the trainer's generators, which the ranks have used differently
    before = torch.get_rng_state()
    seen["unseeded"] = [drawn(engine, 4, None), drawn(engine, 4, None)]
    seen["trainer's generator"] = bool(torch.equal(before, torch.get_rng_state()))
    seen["stops"] = [stopped(engine, rank, 30), stopped(engine, rank, 500)]
    seen["seeded"] = drawn(engine, 4, seed=3)
    return seen


def stopped(engine: Engine, rank: int, count: int) -> tuple[bool, int, int]:
    """Rank 1 alone is told to stop: whether it was raised, how often this rank looked, and what is left in the engine."""
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return rank == 1 and asked > 2

    try:
        engine.generate([Request(PROMPT, n) for n in range(count)], temperature=1.0, max_tokens=180, should_stop=stop)
    except Stopped:
        return True, asked, engine._llm.llm_engine.get_num_unfinished_requests()
    return False, asked, 0


def by_hand(name: str, pair: inner.Pair, rank: int) -> inner.Pair:
    """Half of a pair: of A's columns where a layer's input is split, else of B's rows."""
    a, b = pair
    if name.endswith(("o_proj", "down_proj")):
        return a[:, rank * a.shape[1] // 2 : (rank + 1) * a.shape[1] // 2], b
    return a, b[rank * b.shape[0] // 2 : (rank + 1) * b.shape[0] // 2]


def _same(one: dict[str, inner.Pair], other: dict[str, inner.Pair]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(x, y) for name in one for x, y in zip(one[name], other[name], strict=True))


def first_pair(rank: int, model: Path) -> None:
    """One engine each, then one together, then decoding without end."""
    kept_group = dist.new_group([0, 1], group_desc="kept")
    try:
        EngineRanks.taken(3)
    except ConfigError as error:
        say(str(error))
    say(each_its_own(rank, model, kept_group))
    engine = started(model, tp=2)
    say(together(rank, engine))
    hear()  # the second pair is there now
    say(drawn(engine, 4, seed=3))
    say("decoding")
    while True:
        drawn(engine, 32, seed=None, tokens=150)


def second_pair(rank: int, model: Path) -> None:
    """One engine together, and one more after the first pair was killed."""
    engine = started(model, tp=2)
    say(drawn(engine, 4, seed=3))
    hear()
    kept_group = dist.new_group([0, 1])
    seen = [drawn(engine, 4, seed=3), ended(engine, kept_group)]
    engine = started(model, tp=2)
    say([*seen, drawn(engine, 4, seed=3), ended(engine, kept_group)])


# ---------------------------------------------------------------- what they saw


@pytest.fixture(scope="module")
def seen(small_model: Path) -> Iterator[dict[str, list[Any]]]:
    """What each rank of both pairs said, by the moment."""
    before = set(SHARED_MEMORY.iterdir())
    first = Ranks(first_pair, small_model)
    found = {"refused": first.all(), "own": first.all(), "together": first.all()}
    second = Ranks(second_pair, small_model)
    try:
        found["second"] = second.all()
        first.tell("go on")
        found["beside"], _ = first.all(), first.all()
        time.sleep(0.3)  # in the middle of decoding
        first.kill(rank=1)
        found["alive"] = [first.processes[0].is_alive()]
        first.kill()
        second.tell("go on")
        found["afterwards"] = second.all()
        for process in second.processes:
            process.join(20)
        found["left"] = [process.pid for process in (*first.processes, *second.processes) if process.is_alive()]
        found["left"] += sorted(left_behind(before))
        yield found
    finally:
        first.kill()
        second.kill()


Seen = dict[str, list[Any]]


def test_a_tp_that_does_not_divide_the_world_is_refused(seen: Seen) -> None:
    assert seen["refused"][0] == (
        "an engine of 3 ranks (tp=3): this pool has 2\n  fix: a number that 2 is a multiple of, or another number of devices"
    )


def test_engines_of_one_rank_never_wait_for_one_another(seen: Seen) -> None:
    """Rank 1 generated while rank 0 stood at a barrier, and rank 0 was given nothing where rank 1 had nine prompts."""
    assert [rank["uneven"] for rank in seen["own"]] == [0, 9]


def test_engines_draw_apart_unless_a_seed_says_otherwise(seen: Seen) -> None:
    one, other = seen["own"]
    assert one["seeded"] == other["seeded"]
    assert one["unseeded"] != other["unseeded"]


def test_the_launcher_s_variables_are_as_before(seen: Seen) -> None:
    for rank, said in enumerate(seen["own"]):
        env = said["env"]
        assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], env["MASTER_ADDR"]) == (str(rank), str(rank), "2", "127.0.0.1")


def test_closing_keeps_the_default_group_and_its_sub_groups(seen: Seen) -> None:
    assert [said["after"] for said in seen["own"]] == [[2, 2, 1]] * 2
    assert [said[1] for said in seen["afterwards"]] == [[2, 2, 1]] * 2


def test_an_engine_of_two_ranks_computes_what_one_of_one_rank_does(seen: Seen) -> None:
    """For the base and two adapters, one pushed after the other: no cached prefix of another version is used."""
    alone = seen["own"][0]["versions"]
    assert len({ids for ids, _ in alone}) == 3  # the adapters matter
    for said in seen["together"]:
        for (ids, logp), (ids_alone, logp_alone) in zip(said["versions"], alone, strict=True):
            assert ids == ids_alone
            assert logp == pytest.approx(logp_alone, abs=1e-4)


def test_each_rank_s_part_of_the_adapter_is_known_and_resident(seen: Seen) -> None:
    assert [said["whole"] for said in seen["own"]] == [True, True]
    for said in seen["together"]:
        assert said["proved"]
        assert said["by hand"]
        assert said["few"] == ["model.layers.0.self_attn.v_proj", "model.layers.1.self_attn.v_proj"]


def test_both_ranks_return_the_same_whatever_their_trainers_drew(seen: Seen) -> None:
    one, other = seen["together"]
    assert one["unseeded"] == other["unseeded"]
    assert one["seeded"] == other["seeded"]
    assert one["unseeded"][0] != one["unseeded"][1]  # calls draw apart
    assert len({ids for ids, _ in one["unseeded"][0]}) > 1
    assert one["trainer's generator"]
    assert other["trainer's generator"]


def test_a_stop_that_one_rank_sees_ends_both_at_the_same_step(seen: Seen) -> None:
    """Both looked three times, every 16 steps, and both engines are clean: what they draw afterwards is the same."""
    assert POLL == 16
    for said in seen["together"]:
        assert said["stops"] == [(True, 3, 0)] * 2


def test_two_runs_at_once_do_not_meet(seen: Seen) -> None:
    drawn_alone = seen["together"][0]["seeded"]
    assert [ids for ids, _ in seen["second"][0]] == [ids for ids, _ in drawn_alone] == [ids for ids, _ in seen["beside"][0]]


def test_after_a_kill_nothing_is_left_and_the_next_engine_starts(seen: Seen) -> None:
    assert seen["alive"] == [True]  # rank 0 waits for rank 1, until it is ended too
    before, _, after, _ = seen["afterwards"][0]
    assert [ids for ids, _ in before] == [ids for ids, _ in after]
    assert seen["left"] == []


# ---------------------------------------------------------------- without an engine


def test_blocks_of_dead_processes_alone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_cpu, "SHARED_MEMORY", tmp_path)
    dead = tmp_path / "workbench-999999999-abcd-tp-0"
    alive = tmp_path / f"{inner_cpu.block_name()}-tp-0"
    other = tmp_path / "psm_1"
    for path in (dead, alive, other):
        path.touch()
    inner_cpu.unlink_dead_blocks()
    assert sorted(tmp_path.iterdir()) == sorted([alive, other])
    inner_cpu.unlink_blocks(alive.name.removesuffix("-tp-0"))
    assert list(tmp_path.iterdir()) == [other]


def test_no_two_engines_share_a_block() -> None:
    assert inner_cpu.block_name() != inner_cpu.block_name()
    assert inner_cpu.block_name().split("-")[1] == str(os.getpid())


def test_a_process_without_a_world_is_alone() -> None:
    ranks = EngineRanks.taken(1)
    assert (ranks.rank, ranks.world, ranks.copy) == (0, 1, 0)
    with pytest.raises(ConfigError, match=r"an engine of 2 ranks \(tp=2\): this pool has 1"):
        EngineRanks.taken(2)


def test_copies_are_consecutive_ranks() -> None:
    assert [EngineRanks(rank, 6, 2).copy for rank in range(6)] == [0, 0, 1, 1, 2, 2]


def test_or_every_third_rank() -> None:
    ranks = [EngineRanks(rank, 6, 2, strided=True) for rank in range(6)]
    assert [one.copy for one in ranks] == [0, 1, 2, 0, 1, 2]
    assert {one.engine_by_engine for one in ranks} == {(0, 3, 1, 4, 2, 5)}
    assert [one.together for one in ranks] == [(0, 3), (1, 4), (2, 5)] * 2
    assert [EngineRanks(rank, 4, 2).together for rank in range(4)] == [(0, 1), (0, 1), (2, 3), (2, 3)]


def test_draws_begin_at_the_seed_and_end_where_they_were() -> None:
    torch.manual_seed(1)
    follows = torch.rand(1)
    torch.manual_seed(1)
    with same_draws(7, "cpu"):
        inside = torch.rand(1)
    torch.manual_seed(7)
    assert torch.rand(1) == inside
    torch.manual_seed(1)
    with same_draws(8, "cpu"):
        torch.rand(3)
    assert torch.rand(1) == follows


def test_a_gpu_that_is_visible_by_uuid_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM 0.23 makes a number of what stands there, and would stop at a UUID."""
    import pynvml

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", {"GPU-a": "first", "GPU-b": "second"}.__getitem__)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetIndex", {"first": 0, "second": 1}.__getitem__)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-a")
    assert [inner_gpu.gpu_number(0), inner_gpu.gpu_number(1)] == [1, 0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,2")
    assert inner_gpu.gpu_number(1) == 2
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert inner_gpu.gpu_number(5) == 5


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 139.80 GiB"), r"Tried to allocate 2\.00 GiB"),
        (
            ValueError("1 validation error for VllmConfig\n  Value error, Free memory on device (3.1/139.8 GiB) on startup is less"),
            r"3\.1/139\.8",
        ),
        (
            ValueError("engine failed\nNo available memory for the cache blocks. Try increasing it"),
            "^No available memory for the cache blocks",
        ),
        (MemoryError(), "MemoryError"),
    ],
)
def test_what_memory_was_missing_is_kept(error: Exception, text: str) -> None:
    import re

    assert out_of_memory(error)
    assert re.search(text, told(error))
