"""The engine's tensors against transformers' parameters: every one of them, equal, and what is written into them is computed with.

Two real processes start once for all of it, with two engines of one rank each, twice, and then four engines of two ranks.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rollout.families import greedy, loaded, made, moved
from tests.rollout.ranks import Ranks, say
from workbench.errors import ConfigError, EngineError
from workbench.rollout import inner, inner_cpu
from workbench.rollout.config import VLLM
from workbench.rollout.engine import Engine, EnginePlan, Request
from workbench.rollout.tensors import Laid, Part, check_laid

PROMPT = tuple(int(x) % 38 + 2 for x in range(5, 75))  # over two blocks of 32
OTHER = tuple(int(x) % 38 + 2 for x in range(30, 50))

SPLIT = ("qwen2", "qwen3", "phi3", "smollm3")  # over two ranks

# ---------------------------------------------------------------- inside the ranks


def started(model: Path, tp: int, mode: str) -> Engine:
    """An engine on a checkpoint."""
    from workbench.models.tokenizer import Tokenizer

    config = VLLM(window=256, block_size=32, max_sequences=64, kv_cache_gib=0.05)
    return Engine(EnginePlan(model, Tokenizer(model).raw, 4, "cpu", "float32", 0, config, tp=tp, mode=mode))


def share(part: Part, rank: int, tp: int) -> tuple[int, int, int]:
    """By hand: the first and the last row of a part that a rank holds, and how many rows it keeps room for."""
    units = min(tp, part.heads) if part.repeated else tp
    room = (part.padded or part.rows) // units
    first = min(rank * units // tp * room, part.rows)
    return first, min(first + room, part.rows), room


def pairs(laid: tuple[Laid, ...], weights: dict[str, Any], live: dict[str, Any], rank: int, tp: int) -> Iterator[tuple[Any, Any]]:
    """Each parameter's part of this rank: in the engine, and in transformers."""
    for one in laid:
        at, before = 0, dict.fromkeys(weights, 0)  # rows of the parameter that earlier parts of it have
        for part in one.parts:
            if one.dim is None:
                yield live[one.tensor], weights[part.name].data
                continue
            first, last, room = share(part, rank, tp)
            part_here = weights[part.name].data.narrow(one.dim, before[part.name] + first, last - first)
            yield live[one.tensor].narrow(one.dim, at, last - first), part_here
            at, before[part.name] = at + room, before[part.name] + part.rows


def looked(rank: int, model: Path, tp: int, mode: str) -> dict[str, Any]:
    """What an engine holds before and after other weights were written into it, and what it draws."""
    engine = started(model, tp, mode)
    ours = loaded(model)
    weights = dict(ours.named_parameters())
    laid, live = engine.laid(), engine.tensors()
    seen: dict[str, Any] = {"names": sorted(name for one in laid for name in one.parameters) == sorted(weights)}
    seen["tensors"] = [one.tensor for one in laid] == list(live)
    seen["equal"] = all(torch.equal(here, there) for here, there in pairs(laid, weights, live, rank % tp, tp))
    seen["elements"] = _elements(laid, live, weights, rank % tp, tp)
    seen["before"] = compared(engine, ours)
    moved(ours, 7)
    for here, there in pairs(laid, weights, live, rank % tp, tp):
        here.copy_(there)
    seen["same storage"] = all(tensor.data_ptr() == live[name].data_ptr() for name, tensor in engine.tensors().items())
    seen["stale"] = compared(engine, ours)
    engine.written(3)
    seen["after"], seen["version"] = compared(engine, ours), engine.version
    if mode == "merged":
        seen["lora"] = engine._adapter_request()
    engine.close()
    return seen


def _elements(laid: tuple[Laid, ...], live: dict[str, Any], weights: dict[str, Any], rank: int, tp: int) -> bool:
    """Whether all that a tensor holds beside its parts is padding, of zeros."""
    held = sum(there.numel() for _, there in pairs(laid, weights, live, rank, tp))
    rest = sum(tensor.numel() for tensor in live.values()) - held
    padding = [(one, *share(part, rank, tp)) for one in laid for part in one.parts if part.padded]
    zeros = [live[one.tensor].narrow(0, last - first, room - (last - first)) for one, first, last, room in padding]
    return rest == sum(zero.numel() for zero in zeros) and not any(bool(zero.any()) for zero in zeros)


def compared(engine: Engine, model: Any) -> tuple[bool, float]:
    """Two greedy completions without an adapter: whether transformers chooses the same; the largest difference of a log-probability."""
    agree, largest = True, 0.0
    for prompt in (PROMPT, OTHER):
        drawn = engine.generate([Request(prompt)], temperature=0.0, max_tokens=8, adapter=False)[0]
        ids, logp = greedy(model, prompt, drawn.ids)
        agree = agree and ids == drawn.ids
        largest = max(largest, *(abs(a - b) for a, b in zip(logp, drawn.logp, strict=True)))
    return agree, largest


def refused(model: Path) -> str:
    """What is said of a family that can't be read."""
    engine = started(model, 1, "merged")
    try:
        engine.laid()
    except ConfigError as error:
        return str(error)
    finally:
        engine.close()
    return "nothing"


def work(rank: int, folder: Path) -> None:
    """Six engines after one another; ranks start them together."""
    say(looked(rank, folder / "qwen2", 1, "merged") if rank == 0 else looked(rank, folder / "llama", 1, "zero_copy"))
    say(looked(rank, folder / "qwen3", 1, "full") if rank == 0 else refused(folder / "gpt_neox"))
    for family in SPLIT:
        say(looked(rank, folder / family, 2, "merged"))


# ---------------------------------------------------------------- what they saw


@pytest.fixture(scope="module")
def seen(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the ranks said of each engine."""
    from workbench.models.tokenizer import Tokenizer

    folder = tmp_path_factory.mktemp("families")
    for family in {"llama", "gpt_neox", *SPLIT}:
        made(family, folder, Tokenizer(small_model).raw)
    ranks = Ranks(work, folder)
    try:
        (qwen2, llama), (qwen3, gpt_neox), *split = (ranks.all() for _ in range(2 + len(SPLIT)))
        found = {"qwen2": qwen2, "llama zero_copy": llama, "qwen3": qwen3}
        for family, both in zip(SPLIT, split, strict=True):
            found |= {f"{family} tp2 rank {rank}": said for rank, said in enumerate(both)}
        yield {"engines": found, "gpt_neox": gpt_neox}
    finally:
        ranks.kill()


Seen = dict[str, Any]


def test_every_parameter_lies_in_one_tensor_and_is_equal(seen: Seen) -> None:
    assert len(seen["engines"]) == 11
    for name, said in seen["engines"].items():
        assert (said["names"], said["tensors"], said["equal"], said["elements"]) == (True,) * 4, name


def test_an_engine_computes_with_what_was_written(seen: Seen) -> None:
    """As transformers does with the same weights, the tied output layer included."""
    for name, said in seen["engines"].items():
        for moment in ("before", "after"):
            agree, difference = said[moment]
            assert agree, (name, moment)
            assert difference < 1e-4, (name, moment)
        assert said["same storage"], name
        assert said["version"] == 3


def test_cached_prefixes_of_other_weights_are_dropped(seen: Seen) -> None:
    """Before ``written`` the engine goes on with what it has cached of the old weights: that is what the call is for."""
    for name, said in seen["engines"].items():
        assert said["stale"][1] > 1e-2, name


def test_merged_weights_need_no_adapter(seen: Seen) -> None:
    assert seen["engines"]["qwen2"]["lora"] is None


def test_a_family_that_is_named_otherwise_is_refused_by_name(seen: Seen) -> None:
    assert "vLLM's tables and transformers name different parameters: gpt_neox.embed_in" in seen["gpt_neox"]
    assert "fix: mode: adapter" in seen["gpt_neox"]


# ---------------------------------------------------------------- without an engine


def test_parameters_that_do_not_fit_are_named() -> None:
    laid = (Laid("a", 0, (Part("q", 4), Part("k", 2))), Laid("b", 1, (Part("o", 6),)))
    check_laid(laid, {"q": (4, 3), "k": (2, 3), "o": (3, 6)}, "Tiny")
    with pytest.raises(ConfigError, match=r"tensors of Tiny: .* different parameters: o, v\n.*adapter"):
        check_laid(laid[:1], {"q": (4, 3), "k": (2, 3), "o": (3, 6), "v": (1,)}, "Tiny")
    with pytest.raises(ConfigError, match=r"o is \(6, 3\) in transformers, and 6 long in b"):
        check_laid(laid, {"q": (4, 3), "k": (2, 3), "o": (6, 3)}, "Tiny")
    with pytest.raises(ConfigError, match="different parameters: q"):
        check_laid((*laid, Laid("c", None, (Part("q", 4),))), {"q": (4, 3), "k": (2, 3), "o": (3, 6)}, "Tiny")


def test_parts_of_one_name_are_one_parameter() -> None:
    both = Laid("a", 0, (Part("gate_up", 4), Part("gate_up", 4)))
    assert both.parameters == {"gate_up": both.parts}
    check_laid((both,), {"gate_up": (8, 3)}, "Tiny")
    with pytest.raises(ConfigError, match=r"gate_up is \(4, 3\) in transformers, and 8 long in a"):
        check_laid((both,), {"gate_up": (4, 3)}, "Tiny")


def test_packing_is_undone_after_a_start() -> None:
    with inner.untouched_process():  # the first import of vLLM writes into the environment
        from vllm.model_executor.layers import utils

    packing, layer = utils.dispatch_cpu_unquantized_gemm, torch.nn.Linear(32, 32, bias=False)
    with inner_cpu.unpacked_weights():
        utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    assert layer.weight.shape == (32, 32)
    assert torch.equal(layer.cpu_linear(torch.eye(32), layer.weight, None), layer.weight.T)
    assert utils.dispatch_cpu_unquantized_gemm is packing


def test_packed_weights_are_not_handed_out(worker: Any) -> None:
    """A CPU's engine in mode adapter has none to write into."""
    with pytest.raises(EngineError, match=r"model\.layers\.0\.self_attn\.qkv_proj\.weight packed"):
        worker.engine.tensors()
