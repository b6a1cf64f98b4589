"""The visible set: which of a machine's GPUs this process may use, by the variables that CUDA and ROCm read.

What CUDA does with odd values is written in its programming guide (environment variables) and in ``torch.cuda``'s own reading:
the first entry says whether all are UUIDs or numbers; the list ends at the first entry that names nothing; a GPU named twice
empties it. Containers (NVIDIA_VISIBLE_DEVICES) and Slurm's control groups act below: what they hide, the driver does not list.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Candidate:
    """A GPU or a MIG slice that may be visible. ``number``: of the physical GPU, in PCI order; ``names``: UUIDs, its own and its GPU's."""

    number: int
    names: tuple[str, ...] = ()
    model: str | None = None


@dataclass(frozen=True)
class Visible:
    """``positions``: of the visible candidates, ascending. ``warnings``: what surprises."""

    positions: tuple[int, ...]
    warnings: tuple[str, ...] = ()


def nvidia(candidates: Sequence[Candidate], environment: Mapping[str, str]) -> Visible:
    """What CUDA sees of ``candidates``. Only the set matters to us, not the order in which CUDA counts it."""
    value = environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return Visible(tuple(range(len(candidates))), _slurm(candidates, environment))
    seen = select(candidates, "CUDA_VISIBLE_DEVICES", value)
    models = {candidate.model for candidate in candidates}
    if len(models) > 1 and value[:1].isdigit() and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        warning = (
            f"CUDA_VISIBLE_DEVICES={value!r} is read here as numbers in PCI order; CUDA counts the fastest GPU first, and the GPUs differ. "
            "Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID"
        )
        return replace(seen, warnings=(*seen.warnings, warning))
    return seen


def amd(candidates: Sequence[Candidate], environment: Mapping[str, str]) -> Visible:
    """What HIP sees: ROCR_VISIBLE_DEVICES first, then HIP_VISIBLE_DEVICES (or CUDA_VISIBLE_DEVICES) counts what that left."""
    left = Visible(tuple(range(len(candidates))))
    second = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environment else "CUDA_VISIBLE_DEVICES"
    for variable in ("ROCR_VISIBLE_DEVICES", second):
        value = environment.get(variable)
        if value is None:
            continue
        if value.startswith("GPU-"):
            warning = f"{variable}={value!r} names UUIDs, which rocm-smi's matrix does not: it is not applied"
            left = replace(left, warnings=(*left.warnings, warning))
            continue
        renumbered = [Candidate(number) for number in range(len(left.positions))]
        seen = select(renumbered, variable, value)
        left = Visible(tuple(left.positions[position] for position in seen.positions), (*left.warnings, *seen.warnings))
    return left


def select(candidates: Sequence[Candidate], variable: str, value: str) -> Visible:
    """The candidates that ``value`` names, as CUDA reads it."""
    prefix = next((prefix for prefix in ("GPU-", "MIG-") if value.startswith(prefix)), "")
    picked: list[int] = []
    warning = ""
    for entry in value.split(","):
        found = _named(candidates, entry, prefix) if prefix else _numbered(candidates, entry)
        if set(found) & set(picked):
            asked = f"{variable}={value!r} names {entry.strip()} twice"
            return Visible((), (f"{asked}: CUDA then sees no GPU at all. Name each once",))
        if not found:
            warning = _ended(candidates, f"{variable}={value!r}", entry.strip(), len(picked))
            break
        picked += found
    return Visible(tuple(sorted(picked)), (warning,) if warning else ())


def _ended(candidates: Sequence[Candidate], asked: str, entry: str, seen: int) -> str:
    """What to say of the entry that ended the list; nothing of "-1" and "", which are written to end it."""
    if re.match(r"-\d", entry) or not entry:
        return ""
    if entry == "NoDevFiles":
        return f"{asked}: Slurm gave this job no GPU. Ask for some: --gpus=1"
    return f"{asked}: {entry!r} names none of the {len(candidates)} devices, CUDA ends the list there and sees {seen}"


def _numbered(candidates: Sequence[Candidate], entry: str) -> list[int]:
    number = re.match(r"\+?(\d+)", entry.strip())  # CUDA reads as strtoul does: "1gpu" is 1
    return [p for p, candidate in enumerate(candidates) if number and candidate.number == int(number[1])]


def _named(candidates: Sequence[Candidate], entry: str, prefix: str) -> list[int]:
    """Positions of the one GPU (with all its slices) that a UUID, or the beginning of one, names; none where several match."""
    if not entry.startswith(prefix):
        return []
    whole = [p for p, candidate in enumerate(candidates) if entry in candidate.names]
    found = whole or [p for p, candidate in enumerate(candidates) if any(name.startswith(entry) for name in candidate.names)]
    devices = {candidates[p].number if prefix == "GPU-" else p for p in found}
    return found if len(devices) == 1 else []


def _slurm(candidates: Sequence[Candidate], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Slurm sets CUDA_VISIBLE_DEVICES itself; where it is gone and the driver lists more than the job got, say so."""
    variable = next((name for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS") if environment.get(name)), None)
    if variable is None:
        return ()
    given, here = environment[variable], len({candidate.number for candidate in candidates})
    if here <= len(given.split(",")) or "-" in given:
        return ()
    return (f"Slurm gave this job the GPUs {given} ({variable}), but CUDA_VISIBLE_DEVICES is not set and the driver lists {here}",)
