"""What is said of environment variables: each rule on a value where it applies and on one where it does not."""

import time

import pytest

from workbench.findings import CODES
from workbench.mapping.advice import RULES, advice, anchors, known


def said(**variables: str) -> list[tuple[str, str]]:
    return [(found.code, found.asked) for found in advice(variables)]


def test_a_clean_environment_is_left_in_peace() -> None:
    assert advice({}) == ()
    assert said(PATH="/usr/bin", NCCL_DEBUG="INFO", CUDA_VISIBLE_DEVICES="0,1", OMP_NUM_THREADS="1", NCCL_VERSION="2.28.9-1") == []


@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [
        ("NCCL_BLOCKING_WAIT", "0", "WB604"),
        ("NCCL_BLOCKING_WAIT", "1", "WB605"),
        ("TORCH_NCCL_BLOCKING_WAIT", "false", "WB604"),
        ("TORCH_NCCL_BLOCKING_WAIT", "1", "WB605"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "WB605"),
        ("NCCL_ASYNC_ERROR_HANDLING", "0", "WB605"),
        ("TORCH_NCCL_AVOID_RECORD_STREAMS", "1", "WB604"),
        ("CUDA_LAUNCH_BLOCKING", "0", "WB604"),
        ("CUDA_LAUNCH_BLOCKING", "1", "WB605"),
        ("TORCH_DISTRIBUTED_DEBUG", "detail", "WB605"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "WB605"),
        ("NCCL_P2P_DISABLE", "1", "WB605"),
        ("NCCL_P2P_LEVEL", "LOC", "WB605"),
        ("NCCL_P2P_LEVEL", "NVL", "WB605"),
        ("NCCL_P2P_LEVEL", "nvl", "WB604"),
        ("NCCL_TIMEOUT", "1800", "WB604"),
        ("NCCL_TREE_THRESHOLD", "0", "WB604"),
        ("TORCH_CUDA_MEMORY_FRACTION", "0.9", "WB604"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "true", "WB604"),
        ("VLLM_USE_V1", "1", "WB604"),
        ("TRANSFORMERS_CACHE", "/data", "WB604"),
        ("HF_HUB_ENABLE_HF_TRANSFER", "1", "WB604"),
    ],
)
def test_what_is_found(variable: str, value: str, code: str) -> None:
    (found,) = advice({variable: value})
    assert (found.code, found.role, found.asked) == (code, "", f"{variable}={value}")
    assert found.severity == CODES[code].severity
    assert found.fix.patch is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NCCL_BLOCKING_WAIT", ""),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),  # torchrun sets it
        ("NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO"),
        ("NCCL_P2P_DISABLE", "0"),
        ("NCCL_P2P_LEVEL", "SYS"),
        ("NCCL_P2P_LEVEL", "4"),
        ("HF_HUB_ENABLE_HF_TRANSFER", "0"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("PYTORCH_ALLOC_CONF", "max_split_size_mb:128"),
    ],
)
def test_what_is_right_as_it_is(variable: str, value: str) -> None:
    assert advice({variable: value}) == ()


def test_the_fix_names_the_entry_with_the_evidence() -> None:
    (found,) = advice({"NCCL_TIMEOUT": "1800"})
    assert found.fix.text == (
        "remove it; the time-out of collectives is torch.distributed.init_process_group(timeout=...) (docs/myths.md#nccl-timeout)"
    )
    every = "NCCL_P2P_LEVEL", "CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONFIG"
    for found in advice(dict.fromkeys(every, "NVL")):
        assert found.fix.text.rpartition("#")[2].removesuffix(")") in anchors()


def test_expandable_segments_beside_sleep_mode() -> None:
    on, other = "expandable_segments:True", "max_split_size_mb:512"
    assert said(PYTORCH_ALLOC_CONF=on) == [("WB605", f"PYTORCH_ALLOC_CONF={on}")]
    assert said(PYTORCH_ALLOC_CONF=on, PYTORCH_CUDA_ALLOC_CONF=on) == []
    assert said(PYTORCH_CUDA_ALLOC_CONF=f"{on},{other}") == [("WB605", f"PYTORCH_CUDA_ALLOC_CONF={on},{other}")]
    assert said(PYTORCH_CUDA_ALLOC_CONF=f"{on},") == []
    assert said(PYTORCH_CUDA_ALLOC_CONF=other) == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NLLC_P2P_LEVEL", "NCCL_P2P_LEVEL"),
        ("NCCL_DEUBG", "NCCL_DEBUG"),
        ("PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_CUDA_ALLOC_CONF"),
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
    ],
)
def test_a_slip_of_the_pen(written: str, meant: str) -> None:
    (found,) = advice({written: "a secret"})
    assert (found.code, found.asked) == ("WB604", written)
    assert found.found == f"nothing reads a variable of that name; {meant} is one"
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    "name",
    [
        *("VLLM_HOST", "VLLM_SERVICE_HOST", "CUDA_VERSION", "NVIDIA_REQUIRE_CUDA", "OLD_CUDA_VISIBLE_DEVICES", "MASTER_HOST", "nccl_deubg"),
        *("HCCL_SOCKET_IFNAME", "TORCH_XCCL_BLOCKING_WAIT", "ROCR_VISIBLE_DEVICES", "PYTORCH_XPU_ALLOC_CONF"),  # other vendors' own
    ],
)
def test_names_that_only_look_alike(name: str) -> None:
    assert advice({name: "1"}) == ()


def test_known_names_are_no_slips_of_one_another() -> None:
    assert len(known()) > 900
    ruled = {rule.variable for rule in RULES}
    assert advice(dict.fromkeys(known() - ruled - {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}, "1")) == ()


def test_a_large_environment_takes_no_time() -> None:
    environment = {f"SERVICE_{number}_PORT_8080_TCP_ADDR": "10.0.0.1" for number in range(300)}
    advice({})
    begin = time.process_time()
    assert advice(environment) == ()
    assert time.process_time() - begin < 0.1
