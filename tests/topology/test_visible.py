"""The visible set. What CUDA does is taken from its programming guide and from torch.cuda's own reading, which the first test runs."""

import os
from unittest import mock

import pytest

from workbench.topology.detection.visible import Candidate, amd, nvidia

FOUR = [Candidate(number, (f"GPU-{'aabc'[number]}{number}000000-0000",), "H200") for number in range(4)]
#  GPU-a0..., GPU-a1..., GPU-b2..., GPU-c3...

SLICES = [
    Candidate(0, ("MIG-aaaa", "MIG-GPU-a000/7/0", "GPU-a000"), "H100 MIG 3g.40gb"),
    Candidate(0, ("MIG-bbbb", "MIG-GPU-a000/9/0", "GPU-a000"), "H100 MIG 1g.10gb"),
    Candidate(1, ("GPU-b111",), "H100"),
]


def seen(value, candidates=FOUR, **others):
    return nvidia(candidates, ({} if value is None else {"CUDA_VISIBLE_DEVICES": value}) | others)


ORDINARY = ("0,1,2,3", "2,1", "3", "", "-1", "0,2,-1,1")
ODD = ("0,0", "7", "0,9,1", "1gpu2,2ampere", " 1, 2", "+1", "abc", "0,abc,1", "1,1,-1", "NoDevFiles")


@pytest.mark.parametrize("value", ORDINARY + ODD)
def test_numbers_as_torch_reads_them(value):
    from torch.cuda import _parse_visible_devices

    with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": value}):
        theirs = _parse_visible_devices()
    valid = theirs[: next((p for p, number in enumerate(theirs) if number >= 4), 4)]
    assert seen(value).positions == tuple(sorted(valid))


@pytest.mark.parametrize(
    ("value", "positions"),
    [
        (None, (0, 1, 2, 3)),
        ("GPU-b2000000-0000,GPU-a0000000-0000", (0, 2)),
        ("GPU-b,GPU-c3", (2, 3)),
        ("GPU-a", ()),  # two GPUs begin so
        ("GPU-c,GPU-x,GPU-b", (3,)),
        ("GPU-c,GPU-c3", ()),
        ("GPU-c,1", (3,)),  # the first entry says that all are UUIDs
        ("1,GPU-c", (1,)),
    ],
)
def test_uuids(value, positions):
    assert seen(value).positions == positions


@pytest.mark.parametrize(
    ("value", "positions"),
    [
        (None, (0, 1, 2)),
        ("MIG-bbbb", (1,)),
        ("MIG-bbbb,MIG-aaaa", (0, 1)),
        ("MIG-GPU-a000/9/0", (1,)),
        ("GPU-a000", (0, 1)),
        ("GPU-b", (2,)),
        ("0", (0, 1)),
        ("1", (2,)),
    ],
)
def test_mig_slices(value, positions):
    assert seen(value, SLICES, CUDA_DEVICE_ORDER="PCI_BUS_ID").positions == positions


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0,0", "names 0 twice: CUDA then sees no GPU at all"),
        ("GPU-c,GPU-c3", "names GPU-c3 twice"),
        ("0,9,1", "'9' names none of the 4 devices, CUDA ends the list there and sees 1"),
        ("NoDevFiles", "Slurm gave this job no GPU"),
        ("all", "'all' names none of the 4 devices"),
        ("GPU-a", "'GPU-a' names none of the 4 devices"),
    ],
)
def test_what_surprises_is_said(value, words):
    (warning,) = seen(value).warnings
    assert words in warning


@pytest.mark.parametrize("value", [None, "0,1", "", "-1", "0,-1,2", "GPU-b,GPU-c"])
def test_what_was_meant_so_is_not(value):
    assert seen(value).warnings == ()


def test_numbers_are_doubtful_where_gpus_differ():
    mixed = [Candidate(0, model="RTX 3090"), Candidate(1, model="RTX 4090")]
    (warning,) = seen("0", mixed).warnings
    assert "fastest GPU first" in warning
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in warning
    assert seen("0", mixed, CUDA_DEVICE_ORDER="PCI_BUS_ID").warnings == ()
    assert seen(None, mixed).warnings == ()


def test_slurm_gave_less_than_the_driver_lists():
    (warning,) = seen(None, SLURM_JOB_GPUS="0,1").warnings
    assert "Slurm gave this job the GPUs 0,1 (SLURM_JOB_GPUS)" in warning
    assert seen(None, SLURM_JOB_GPUS="0,1,2,3").warnings == ()
    assert seen("0,1", SLURM_JOB_GPUS="0,1").warnings == ()


@pytest.mark.parametrize(
    ("environment", "positions"),
    [
        ({}, (0, 1, 2, 3)),
        ({"ROCR_VISIBLE_DEVICES": "1,3"}, (1, 3)),
        ({"HIP_VISIBLE_DEVICES": "0,2"}, (0, 2)),
        ({"ROCR_VISIBLE_DEVICES": "1,3", "HIP_VISIBLE_DEVICES": "1"}, (3,)),  # HIP counts what ROCR left
        ({"CUDA_VISIBLE_DEVICES": "2"}, (2,)),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "2"}, (1,)),
        ({"ROCR_VISIBLE_DEVICES": ""}, ()),
    ],
)
def test_amd(environment, positions):
    assert amd(FOUR, environment).positions == positions


def test_amd_uuids_are_not_dropped_silently():
    found = amd(FOUR, {"ROCR_VISIBLE_DEVICES": "GPU-c3"})
    assert found.positions == (0, 1, 2, 3)
    assert "is not applied" in found.warnings[0]
