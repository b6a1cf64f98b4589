"""A profiled step on two GPUs: NCCL's own records and kernels. Run with ``make test ARGS="-m gpu"``."""

import json
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.gpu.test_ray_on_gpu import a_run, gpus
from workbench.records import Traffic
from workbench.telemetry.profile import ENGINE, UNTOLD

pytestmark = [pytest.mark.gpu, pytest.mark.skipif("len(gpus()) < 2", reason="needs two GPUs")]
DEVICES = [["local:0", "local:1"]]


def gradients_bytes(run: wb.Run) -> int:
    """Of the adapter that was saved, in float32: the masters' precision."""
    from safetensors.torch import load_file

    return sum(4 * tensor.numel() for tensor in load_file(run.path / "adapter" / "adapter_model.safetensors").values())


def rows_of(run: Any) -> dict[tuple[str, str, str], Traffic]:
    return {(one.phase, one.record.group, one.record.collective): one.record for one in run.profile.steps[-1].traffic}


def test_copies_add_up_their_gradients_by_nccl(gpu_model: Path, tmp_path: Path) -> None:
    assert len(gpus()) >= 2
    with a_run(gpu_model, tmp_path, {"actor": "0-1", "rollout": "0-1"}, name="profiled", profile=range(2, 3)) as run:
        list(run.train(2))
        rows, (link, *others) = rows_of(run), run.profile.steps[-1].links
        shown = repr(run.profile)
    gradients = rows["update_actor", "actor.gradients", "all_reduce"]
    assert gradients.bytes == [gradients_bytes(run)] * 2
    assert (gradients.count, gradients.members, gradients.timed) == ([1, 1], DEVICES, "kernel")
    assert all(0 < seconds < 1 for seconds in gradients.seconds)
    assert rows["update_actor", UNTOLD, "all_gather"].timed == "gloo"  # what ranks decide alike goes over gloo
    assert (link.there, link.back, others) == (gradients_bytes(run), gradients_bytes(run), [])
    assert link.link != "not known"
    assert repr(wb.Run.load(run.path).profile) == shown
    events = json.loads((run.path / "profile/step-000002/all.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {"actor · rank 0 of 2 · local:0", "actor · rank 0 of 2 · local:0 · GPU"} <= names
    assert any("nccl" in event["name"] for event in events if event.get("cat") == "kernel")


def test_shards_sends_and_an_engine_of_two(gpu_model: Path, tmp_path: Path) -> None:
    places = {"actor": "0-1 fsdp", "rollout": {"devices": [0, 1], "tp": 2, "mode": "merged"}}
    with a_run(gpu_model, tmp_path, places, name="profiled-shards", profile=[1]) as run:
        list(run.train(1))
        rows = rows_of(run)
        sync = [event.record for event in run.events if event.kind == "sync" and event.data["step"] == 1][-1]
    reduced = rows["update_actor", "actor.shards", "reduce_scatter"]
    assert (reduced.bytes, reduced.members, reduced.timed) == ([gradients_bytes(run)] * 2, DEVICES, "kernel")
    sends = rows["sync", "actor.shards", "send"]
    assert (sum(count or 0 for count in sends.bytes), sends.timed) == (sync.bytes, "kernel")
    engine = rows["rollout", ENGINE, "all_reduce"]  # vLLM calls NCCL past torch
    assert engine.count[0] > 0
    assert (engine.bytes, engine.timed) == ([None, None], "kernel")
