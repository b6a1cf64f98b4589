"""The guarded question."""

import subprocess
import sys

import pynvml
import pytest

from tests.topology.fake_nvml import ANSWERS, hgx, mig
from workbench.topology.detection import nvml as nvml_module
from workbench.topology.detection.nvml import P2P_READ, Inquiry, Missing, opened


def test_an_answer_is_the_value():
    with opened(hgx()) as nvml:
        assert nvml.ask("nvmlDeviceGetCount") == 8


def test_a_refusal_is_a_reason_and_not_an_exception():
    fake = hgx()
    fake.refused["nvmlDeviceGetName"] = pynvml.NVML_ERROR_NO_PERMISSION
    with opened(fake) as nvml:
        assert nvml.ask("nvmlDeviceGetName", fake.chips[0]) == Missing("n/a: Insufficient Permissions", 4)


def test_what_a_slice_does_not_have_is_missing_because_of_mig():
    fake = mig()
    fake.refused["nvmlDeviceGetMemoryInfo"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    with opened(fake) as nvml:
        assert nvml.ask("nvmlDeviceGetMemoryInfo", fake.chips[0].slices[0]).reason == "n/a: MIG"
        assert nvml.ask("nvmlDeviceGetMemoryInfo", fake.chips[1]).reason == "n/a: Not Supported"


def test_a_code_that_pynvml_does_not_know_has_a_reason_too():
    fake = hgx()
    fake.refused["nvmlDeviceGetName"] = 4711
    with opened(fake) as nvml:
        assert "4711" in nvml.ask("nvmlDeviceGetName", fake.chips[0]).reason


def test_a_name_that_is_no_text_and_a_function_that_is_not_there(monkeypatch):
    fake = hgx()
    monkeypatch.setitem(ANSWERS, "nvmlDeviceGetName", lambda fake, chip: b"\xff".decode())
    with opened(fake) as nvml:
        assert "utf-8" in nvml.ask("nvmlDeviceGetName", fake.chips[0]).reason
        assert nvml.ask("nvmlDeviceGetFuture") == Missing("n/a: this nvidia-ml-py has no nvmlDeviceGetFuture")


def test_numbers_are_not_taken_for_handles():
    # nvmlDeviceIsMigDeviceHandle(0) would end the process.
    fake = hgx()
    fake.refused["nvmlDeviceGetHandleByIndex"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    with opened(fake) as nvml:
        assert nvml.ask("nvmlDeviceGetHandleByIndex", 0).reason == "n/a: Not Supported"
    assert "nvmlDeviceIsMigDeviceHandle" not in fake.calls


def test_it_is_shut_down_as_often_as_it_was_opened():
    fake = hgx()
    with opened(fake), opened(fake):
        assert fake.open == 2
    assert fake.open == 0
    with pytest.raises(KeyError), opened(fake):
        raise KeyError
    assert fake.open == 0
    fake.refused["nvmlInit"] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    with opened(fake) as nvml:
        assert nvml == Missing("n/a: Driver Not Loaded", 9)
    assert fake.open == 0


def test_gaps_are_told_once_for_each_reason():
    fake = hgx()
    fake.refused["nvmlDeviceGetName"] = pynvml.NVML_ERROR_UNKNOWN
    with opened(fake) as nvml:
        inquiry = Inquiry(nvml)
        for number in (0, 1, 1):
            assert inquiry.ask("name", f"GPU {number}", "nvmlDeviceGetName", fake.chips[number]) is None
        assert inquiry.ask("name", "GPU 2", "nvmlDeviceGetName", fake.chips[2], fine=(999,)) is None
    assert inquiry.warnings == ("name of GPU 0, GPU 1: n/a: Unknown Error",)


def test_our_numbers_are_those_of_the_library():
    assert pynvml.NVML_P2P_CAPS_INDEX_READ == (P2P_READ,)  # the tuple that made our own numbers necessary
    pairs = {
        "P2P_WRITE": "P2P_CAPS_INDEX_WRITE",
        "P2P_NVLINK": "P2P_CAPS_INDEX_NVLINK",
        "P2P_OK": "P2P_STATUS_OK",
        "P2P_UNKNOWN": "P2P_STATUS_UNKNOWN",
        "REMOTE_GPU": "NVLINK_DEVICE_TYPE_GPU",
        "REMOTE_SWITCH": "NVLINK_DEVICE_TYPE_SWITCH",
        "MAX_NVLINKS": "NVLINK_MAX_LINKS",
        "INVALID_ARGUMENT": "ERROR_INVALID_ARGUMENT",
        "NOT_SUPPORTED": "ERROR_NOT_SUPPORTED",
        "NOT_FOUND": "ERROR_NOT_FOUND",
    }
    assert {name: getattr(nvml_module, name) for name in pairs} == {
        name: getattr(pynvml, f"NVML_{theirs}") for name, theirs in pairs.items()
    }


def test_neither_torch_nor_cuda_is_loaded():
    code = """
import sys
from workbench.topology import Topology
Topology.detect()
maps = open("/proc/self/maps").read()
print("torch" in sys.modules, "libcuda.so" in maps, "libcudart" in maps)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"] * 3
