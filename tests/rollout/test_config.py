"""What of vLLM can be chosen: what is refused when it is written, and the arguments that it becomes."""

from pathlib import Path

import pytest

from workbench.errors import ConfigError
from workbench.rollout import inner
from workbench.rollout.config import VLLM, check_device, check_mode
from workbench.rollout.start import EnginePlan, _arguments, _graphs, _memory
from workbench.rollout.world import EngineRanks

FULL = VLLM(
    window=64, memory_gib=20, kv_cache_gib=2, kv_dtype="fp8", kv_offload_gib=4, block_size=32, cuda_graphs=(8, 1), quantization="fp8"
)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: VLLM(memory_gib=0), "more than 0 GiB"),
        (lambda: VLLM(kv_offload_gib=-1), r"kv_offload_gib=-1.*more than 0 GiB"),
        (lambda: VLLM(kv_offload_gib="8"), r"kv_offload_gib='8'.*that is a str"),
        (lambda: VLLM(kv_dtype="fp4"), r"kv_dtype='fp4'.*\n.*\"fp8\""),
        (lambda: VLLM(block_size=40), r"blocks of 16, 32.*\n.*write 32"),
        (lambda: VLLM(block_size=8), r"write 16"),
        (lambda: VLLM(cuda_graphs=0), r"1 sequence or more.*\n.*\(1, 8, 64\)"),
        (lambda: VLLM(cuda_graphs=()), "1 sequence or more"),
        (lambda: VLLM(cuda_graphs=[1, 8]), r"\(1, 8, 64\)"),
        (lambda: VLLM(kv_cache_dtype="fp8"), "write kv_dtype="),
        (lambda: VLLM(extra={"kv_cache_dtype": "fp8"}), r"use VLLM\(kv_dtype="),
        (lambda: VLLM(extra={"cudagraph_capture_sizes": [1]}), r"use VLLM\(cuda_graphs="),
        (lambda: VLLM(quantization="fp9").check_quantization({"fp8", "awq"}), "did you mean 'fp8'"),
        (lambda: VLLM(quantization="int3").check_quantization({"fp8", "awq"}), "one of awq, fp8"),
        (lambda: check_mode(VLLM(), "merge"), r"mode: merge.*\n.*adapter, zero_copy, merged, full"),
        (lambda: check_mode(VLLM(quantization="fp8"), "merged"), r"merged with .*'fp8'.*other weights than the trainer.*\n.*adapter"),
        (lambda: check_device(VLLM(memory_gib=8), "cpu"), r"on a CPU.*\n.*kv_cache_gib"),
        (lambda: check_device(VLLM(kv_offload_gib=8), "cpu"), "in the host's memory already"),
        (lambda: check_device(VLLM(quantization="fp8"), "cpu"), "computes in float32"),
        (lambda: check_device(VLLM(block_size=48), "cpu"), r"32, 64, 96.*\n.*write 32"),
        (lambda: EnginePlan(Path(), None, 4, "cuda", "bfloat16", 0, VLLM(quantization="fp8"), mode="full"), "full with"),
        (lambda: EnginePlan(Path(), None, 4, "cpu", "float32", 0, VLLM(kv_offload_gib=1)), "on a CPU"),
    ],
)
def test_values_that_cannot_work_are_refused_when_written(make: object, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make()


def test_what_can_work_is_not_refused() -> None:
    check_mode(VLLM(quantization="fp8"), "adapter")
    check_device(FULL, "cuda")
    check_device(VLLM(kv_dtype="fp8", block_size=64, cuda_graphs=(1, 2)), "cpu")
    with inner.untouched_process():  # the first import of vLLM writes into the environment
        VLLM(quantization="fp8").check_quantization(inner.known_quantizations())


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        (VLLM(), (1, 4, 16, 64, 128, 256, 384, 512)),
        (VLLM(max_sequences=64), (1, 4, 16, 64)),
        (VLLM(max_sequences=100), (1, 4, 16, 64, 100)),
        (VLLM(max_sequences=2000), (1, 4, 16, 64, 128, 256, 384, 512)),
        (VLLM(cuda_graphs=24), (1, 4, 16, 24)),
        (VLLM(cuda_graphs=1), (1,)),
        (VLLM(cuda_graphs=(64, 8, 8)), (8, 64)),
        (VLLM(cuda_graphs=False), ()),
    ],
)
def test_graphs_are_few_and_the_widest_batch_has_one(config: VLLM, sizes: tuple[int, ...]) -> None:
    assert config.graph_sizes() == sizes


def test_graphs_become_compilation_settings_and_a_user_s_own_go_before_them() -> None:
    few = {"cudagraph_capture_sizes": [1, 4], "cudagraph_specialize_lora": False}
    assert _graphs(VLLM(cuda_graphs=4), "cuda") == {"enforce_eager": False, "compilation_config": few}
    own = VLLM(cuda_graphs=4, extra={"compilation_config": {"cudagraph_capture_sizes": [2], "cudagraph_mode": "PIECEWISE"}})
    assert _graphs(own, "cuda")["compilation_config"] == few | {"cudagraph_capture_sizes": [2], "cudagraph_mode": "PIECEWISE"}
    assert _graphs(VLLM(extra={"compilation_config": 3}), "cuda") == {"enforce_eager": False}
    assert _graphs(VLLM(cuda_graphs=False), "cuda") == _graphs(VLLM(), "cpu") == {"enforce_eager": True}


def test_memory_is_a_share_or_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    class Properties:
        total_memory = 40 * 2**30

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties())
    expected = {"kv_cache_memory_bytes": 2**31, "kv_cache_dtype": "fp8", "kv_offloading_size": 4, "block_size": 32}
    assert _memory(FULL, "cuda") == {"gpu_memory_utilization": 0.5} | expected
    assert _memory(VLLM(), "cuda") == {"gpu_memory_utilization": 0.4}
    assert _memory(VLLM(), "cpu") == {"gpu_memory_utilization": 0.4, "kv_cache_memory_bytes": 2**29}
    with pytest.raises(ConfigError, match=r"memory_gib=40.*has 40\.0 GiB"):
        _memory(VLLM(memory_gib=40), "cuda")


def test_every_argument_is_one_of_vllm_s(small_model: Path) -> None:
    plan = EnginePlan(small_model, None, 4, "cuda", "bfloat16", 0, VLLM(window=64, kv_dtype="fp8", quantization="fp8", kv_offload_gib=1))
    arguments = _arguments(plan, EngineRanks(0, 2, 1))
    with inner.untouched_process():
        assert arguments.keys() <= inner.known_arguments()
    assert arguments["quantization"] == "fp8"
    assert arguments["enable_lora"]
    merged = _arguments(EnginePlan(small_model, None, 4, "cuda", "bfloat16", 0, VLLM(window=64), mode="merged"), EngineRanks(0, 1, 1))
    assert "enable_lora" not in merged
