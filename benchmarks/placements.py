"""The same GRPO step under several device maps: seconds per phase, overlap, bytes by route, memory by GPU, memory after close.

    python -m benchmarks.placements                       # all that fit the GPUs that are there
    python -m benchmarks.placements --only apart overlap  # some
    python -m benchmarks.placements --small               # a small model on four CPU slots, to try the script

Random weights at the shape of Qwen2-1.5B, as in ``grpo_step``. Every map runs through Ray, a process per GPU, in one run of this
script: compare within it. The first steps compile; figures are medians over the later ones.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import workbench as wb
from benchmarks.common import write
from benchmarks.grpo_step import read, settings

PLACEMENTS: dict[str, tuple[dict[str, Any], int]] = {  # name -> map, overlap
    "one": ({"actor": "0"}, 0),
    "one_merged": ({"actor": "0", "rollout": {"devices": "0", "mode": "merged"}}, 0),
    "one_zero_copy": ({"actor": "0", "rollout": {"devices": "0", "mode": "zero_copy"}}, 0),
    "ddp": ({"actor": "0-1"}, 0),
    "ddp_merged": ({"actor": "0-1", "rollout": {"devices": "0-1", "mode": "merged"}}, 0),
    "fsdp_merged": ({"actor": "0-1 fsdp", "rollout": {"devices": "0-1", "tp": 2, "mode": "merged"}}, 0),
    "fsdp": ({"actor": "0-1 fsdp", "rollout": "0-1"}, 0),
    "apart": ({"actor": "0", "rollout": "1"}, 0),
    "overlap": ({"actor": "0", "rollout": "1"}, 1),
    "roles": ({"actor": "0-1", "rollout": "2", "reference": "3", "reward": "3"}, 0),
}


def gpus() -> list[dict[str, float | str]]:
    """Name, UUID and memory in use (GiB) of every GPU, by NVML: this process never touches CUDA."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    return [
        {
            "name": pynvml.nvmlDeviceGetName(handle),
            "uuid": pynvml.nvmlDeviceGetUUID(handle),
            "used_gib": pynvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30,
        }
        for handle in handles
    ]


def measure(name: str, arguments: argparse.Namespace, model: Path) -> dict[str, Any]:
    """One map of ``PLACEMENTS``."""
    places, overlap = PLACEMENTS[name]
    return measure_map(name, places, arguments, model, overlap=overlap)


def measure_map(name: str, places: dict[str, Any], arguments: argparse.Namespace, model: Path, **changes: Any) -> dict[str, Any]:
    """One map: medians over all steps but the first ``arguments.skip``, and what is left of it afterwards. ``changes``: of the run."""
    before, began = gpus(), time.monotonic()
    chosen = settings(arguments, model)
    run = wb.Run(
        wb.DeviceMap.load(places),
        **(chosen | changes),
        topology=None if before else wb.Topology.cpu(slots=4),
        runtime="ray",
        checkpoint_every=None,
        trackers=(),
        name=name,
    )
    for step in run.train(arguments.steps):
        print(step, {phase: round(seconds, 3) for phase, seconds in step.phase_seconds.items()}, flush=True)
    ready = time.monotonic()
    figures = of_run(run, arguments.skip)
    run.close()
    return figures | {
        "map": places,
        "seconds_until_the_last_step": ready - began,
        "close_seconds": time.monotonic() - ready,
        "memory_gib": {"before": [g["used_gib"] for g in before], "after_close": [g["used_gib"] for g in gpus()]},
        "driver_initialised_cuda": "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized(),
    }


def of_run(run: wb.Run, skip: int) -> dict[str, Any]:
    """What its records say."""
    steps = run.steps[skip:]
    syncs = [e.record for e in run.events if e.kind == "sync"][-len(steps) :]
    peaks: dict[str, float] = {}
    for event in run.events:
        if event.kind == "memory":
            peaks[event.device] = max(peaks.get(event.device, 0.0), event.record.peak_gib)
    beyond = [1 - sum(s.phase_seconds.values()) / s.seconds for s in steps]
    return {
        "seconds_per_step": median(s.seconds for s in steps),
        "step_seconds": [round(s.seconds, 3) for s in run.steps],
        "phase_seconds": {phase: median(s.phase_seconds.get(phase, 0.0) for s in steps) for phase in steps[0].phase_seconds},
        "rollout_tokens_per_second": median(s.tokens_completion / s.phase_seconds["rollout"] for s in steps),
        "ahead_seconds": median(s.ahead_seconds for s in steps),
        "staleness": max(s.staleness for s in steps),
        "share_beyond_the_phases": {"median": median(beyond), "max": max(beyond)},
        "sync": {
            "seconds": median(s.seconds for s in syncs),
            "proof_seconds": median(s.proof_seconds for s in syncs),
            "mode": syncs[-1].mode,
            "written": syncs[-1].written,
            "scheduled": syncs[-1].scheduled,
            "rounding": syncs[-1].rounding,
            "bytes": syncs[-1].bytes,
        },
        "logprob_diff": {"max": max(s.logprob_diff_max for s in steps), "mean": median(s.logprob_diff_mean for s in steps)},
        "importance_mean": median(s.importance_mean for s in steps),
        "peak_memory_gib": peaks,
        "memory_gib_by_phase": memory_by_phase(run),
        "idle_fraction": run.bubbles(skip + 1).idle_fraction,
        "engine_start_seconds": next(e.record.seconds for e in run.events if e.kind == "engine_ready"),
        "routes": str(run.routes).splitlines(),
    }


def memory_by_phase(run: wb.Run) -> dict[str, dict[str, float]]:
    """Phase -> device -> the most that was taken of its memory while that phase ran, by whomever, as samples a half second apart saw it."""
    found: dict[str, dict[str, float]] = {}
    phase = ""
    for event in run.events:
        phase = event.phase if event.kind == "phase_began" else phase
        if event.kind == "load" and phase:
            for device, taken in zip(event.record.devices, event.record.memory_gib, strict=True):
                if taken is not None:
                    most = found.setdefault(phase, {})
                    most[device] = max(most.get(device, 0.0), round(taken, 3))
    return found


def fits(name: str, count: int) -> bool:
    """Whether a map's devices are there. On a machine without GPUs there are four CPU slots."""
    places = [place["devices"] if isinstance(place, dict) else place for place in PLACEMENTS[name][0].values()]
    numbers = [int(number) for place in places for number in place.split()[0].split("-")]
    return max(numbers) < (count or 4)


def make_elsewhere(folder: str, shape: str) -> Path:
    """The model, made by another process: this one is a driver."""
    code = f"from benchmarks.grpo_step import make_model; from pathlib import Path; make_model(Path({folder!r}), {shape!r})"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
    return Path(folder)


def main() -> None:
    """Parse, measure, write after every map: a later one may fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PLACEMENTS, default=[])
    arguments = read(parser, "placements_h200", steps=6)
    found = gpus()
    names = arguments.only or [name for name in PLACEMENTS if fits(name, len(found))]
    figures: dict[str, Any] = {
        "what": "GRPO, LoRA r16 all-linear, adapter mode, a process per GPU through Ray",
        "gpus": [gpu["name"] for gpu in found],
        "shape": {"model": arguments.shape, **{k: getattr(arguments, k) for k in ("prompts", "group", "prompt_tokens", "tokens")}},
        "steps": {"measured": arguments.steps - arguments.skip, "skipped": arguments.skip},
        "placements": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        model = make_elsewhere(folder, arguments.shape)
        for name in names:
            figures["placements"][name] = {"overlap": PLACEMENTS[name][1]} | measure(name, arguments, model)
            write(arguments.name, figures, arguments.out)


if __name__ == "__main__":
    main()
