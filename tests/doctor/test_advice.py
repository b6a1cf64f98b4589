"""What the doctor says of the environment."""

from workbench.doctor import Check
from workbench.doctor.advice import environment


def test_quiet_where_nothing_applies():
    assert environment({"PATH": "/usr/bin", "NCCL_DEBUG": "WARN"}) == []


def test_what_hurts_is_a_warning_and_what_does_nothing_is_ok():
    checks = environment({"CUDA_LAUNCH_BLOCKING": "1", "NCCL_BLOCKING_WAIT": "0"})
    assert [(check.name, check.status) for check in checks] == [("environment", "ok"), ("environment", "warning")]
    assert checks[0] == Check(
        "environment",
        "ok",
        "NCCL_BLOCKING_WAIT=0: that is the default; collectives are asynchronous on the GPU with or without it",
        "remove it (docs/myths.md#nccl-blocking-wait)",
    )
    assert checks[1].found.startswith("CUDA_LAUNCH_BLOCKING=1: every kernel is waited for")


def test_the_doctor_looks_at_its_own_environment(monkeypatch):
    from workbench.doctor import machine

    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    assert "NCCL_P2P_DISABLE=1" in " ".join(check.found for check in machine.examine("vllm-cpu") if check.name == "environment")
    monkeypatch.delenv("NCCL_P2P_DISABLE")
    assert "NCCL_P2P_DISABLE=1" not in " ".join(check.found for check in machine.examine("vllm-cpu"))
