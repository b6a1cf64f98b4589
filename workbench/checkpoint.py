"""Checkpoints of a run: written whole or not at all, checked when read.

A checkpoint is a folder ``checkpoints/step-000040`` (``kept-000040`` where a person asked for it) of three files:
``trainer.safetensors`` (the adapter in float32, Adam's moments and counts), ``state.json`` (where the run was, and its settings) and
``manifest.json`` (the SHA-256 of the others). It is written under a temporary name, flushed to the disk, and renamed at the
end, so that a process killed at any moment leaves the checkpoint before as the last. Randomness is not in it: every draw has
a seed derived from its place in the run.
"""

import copy
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import manifest
from workbench.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
FOLDER = "checkpoints"
STATE, TENSORS = "state.json", "trainer.safetensors"
_NAME = re.compile(r"(step|kept)-(\d{6,})")


@dataclass(frozen=True)
class RunState:
    """Where a run was between two steps. Together with the tensors and the plan it is everything that goes on."""

    step: int  # steps made
    end: int  # the step that was asked for last
    position: int  # prompts used up
    adapter_version: int
    optimizer_steps: int
    settings: dict[str, Any]  # the knobs: name -> value
    reward: Any = None  # what the reward's state_dict() gave, where it has one
    kl: tuple[float, float] | None = None  # the weight of a KL that adapts: as it was set, and as it is now


@dataclass(frozen=True)
class Past:
    """Where a run goes on from: its folder, and a checkpoint in it (None: it has none yet, and begins again)."""

    folder: Path
    checkpoint: Path | None


@dataclass(frozen=True)
class Written:
    """A checkpoint on the disk."""

    path: Path
    bytes: int
    seconds: float


class Checkpoints:
    """The checkpoints of one run's folder."""

    def __init__(self, run: Path, keep: int) -> None:
        self.folder, self.keep = run / FOLDER, keep

    def write(self, state: RunState, tensors: "dict[str, Tensor]", *, requested: bool = False) -> Written:
        """Write one, and remove periodic ones beyond the newest ``keep``. Raises StorageError, with those before untouched."""
        began = time.monotonic()
        final = self.folder / f"{'kept' if requested else 'step'}-{state.step:06d}"
        try:
            self.folder.mkdir(exist_ok=True)
            self._sweep()
            fresh = self._fill(state, tensors)
            if final.exists():
                self._remove(final)
            fresh.rename(final)
            _flush(self.folder)
            self._prune()
        except OSError as error:
            self._sweep()
            raise self._failed(state.step, error) from error
        size = sum(file.stat().st_size for file in final.iterdir())
        return Written(final, size, time.monotonic() - began)

    def all(self) -> list[Path]:
        """Every checkpoint that was written to its end, oldest first; of one step, the periodic one first."""
        if not self.folder.is_dir():
            return []
        return sorted((p for p in self.folder.iterdir() if _NAME.fullmatch(p.name)), key=lambda p: (step_of(p), p.name[0] == "k"))

    def set_aside(self, after: int) -> list[Path]:
        """Rename what lies after step ``after``: a run that goes on from an earlier checkpoint must not find them later."""
        later = [path for path in self.all() if step_of(path) > after]
        return [path.rename(_free(path.with_name(f"aside-{path.name}"))) for path in later]

    # ------------------------------------------------------------ inside

    def _fill(self, state: RunState, tensors: "dict[str, Tensor]") -> Path:
        """The files, under a temporary name, on the disk for good."""
        from safetensors.torch import save

        fresh = self.folder / f".writing-{state.step:06d}"
        fresh.mkdir()
        (fresh / TENSORS).write_bytes(save(tensors))  # not save_file, which reports a full disk as a fault of the data
        _write_json(fresh / STATE, asdict(state))
        manifest.write(fresh, {"format": FORMAT})
        for file in fresh.iterdir():
            _flush(file)
        _flush(fresh)
        return fresh

    def _prune(self) -> None:
        periodic = [path for path in self.all() if path.name.startswith("step-")]
        for path in periodic[: -self.keep]:
            self._remove(path)

    def _remove(self, path: Path) -> None:
        """Rename first: a process killed in the middle must not leave half a checkpoint under a good name."""
        doomed = _free(path.with_name(f".removing-{path.name}"))
        path.rename(doomed)
        shutil.rmtree(doomed)

    def _sweep(self) -> None:
        """Remove what a killed or failed write left. One process writes at a time: the run's folder is locked."""
        for left in (*self.folder.glob(".writing-*"), *self.folder.glob(".removing-*")):
            shutil.rmtree(left, ignore_errors=True)

    def _failed(self, step: int, error: OSError) -> StorageError:
        older = [path.name for path in self.all()]
        kept = f"{older[-1]} stays whole" if older else "there is none before it"
        fix = f"free space or mend the folder, then start(): nothing that was trained is lost while this process lives; {kept}"
        return StorageError(f"checkpoint of step {step} in {self.folder}", error.strerror or str(error), fix)


def find(path: Path) -> Past:
    """The run in the folder ``path`` with its last checkpoint, or the run of the checkpoint ``path``. Raises ConfigError on neither."""
    place = path.resolve()
    if place.parent.name == FOLDER and not (place / "plan.json").is_file():  # a folder of runs may have that name too
        step_of(place)
        check(place)
        return Past(place.parent.parent, place)
    found = Checkpoints(place, 1).all()
    if found:
        check(found[-1])
    return Past(place, found[-1] if found else None)


def read(path: Path) -> "tuple[RunState, dict[str, Tensor]]":
    """A checkpoint's state and tensors. Raises ConfigError where a file is missing or not as it was written."""
    from safetensors.torch import load_file

    check(path)
    data = json.loads((path / STATE).read_text(encoding="utf-8"))
    try:
        return RunState(**data), load_file(path / TENSORS)
    except TypeError as error:
        fix = "restore it with the version that wrote it"
        raise ConfigError(f"checkpoint {str(path)!r}", f"{STATE} is another version's: {error}", fix) from error


def check(path: Path) -> None:
    """Raise ConfigError, naming the checkpoint before, unless every file is as its manifest says."""
    fault = _fault(path)
    if fault is not None:
        others = [other for other in Checkpoints(path.parent.parent, 1).all() if other != path and _fault(other) is None]
        fix = f"Run.restore({str(others[-1])!r}) goes on from the one before" if others else "no other checkpoint of this run is whole"
        raise ConfigError(f"checkpoint {str(path)!r}", fault, fix)


def step_of(path: Path) -> int:
    """The step that a checkpoint's name says. Raises ConfigError on a folder of another name."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise ConfigError(f"checkpoint {str(path)!r}", "its name is no checkpoint's", "give a run's folder, or its checkpoints/step-000040")
    return int(match[2])


def _fault(path: Path) -> str | None:
    found = manifest.damage(path)
    if found is not None:
        return found
    listed = json.loads((path / manifest.NAME).read_text(encoding="utf-8"))
    if listed.get("format") != FORMAT:
        return f"it has format {listed.get('format')}, this version reads {FORMAT}"
    missing = {STATE, TENSORS} - listed["files"].keys()
    return f"its {manifest.NAME} lists no {' and no '.join(sorted(missing))}" if missing else None


def reward_state(reward: Callable[..., Any]) -> Any:
    """What a reward with a memory wants kept: its ``state_dict()``, as JSON can hold it. None of a plain function."""
    give = getattr(reward, "state_dict", None)
    return None if give is None else plain_state(give())


def plain_state(state: Any) -> Any:
    """A reward's memory as JSON holds it. Raises ConfigError where it can't."""
    try:
        return json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError) as error:
        fix = "return numbers, text, lists and dicts of them; of a model that doesn't learn, hand in its method: reward=model.forward"
        raise ConfigError("reward.state_dict()", f"JSON can't hold it: {error}", fix) from error


def load_reward_state(reward: Callable[..., Any], state: Any) -> None:
    """Give a reward back what ``reward_state`` kept of it. Raises ConfigError where it can't take it."""
    if state is None:
        return
    take = getattr(reward, "load_state_dict", None)
    if take is None:
        fix = "hand in the same reward, or give it load_state_dict(state)"
        raise ConfigError("restore the reward's state", "the reward has no load_state_dict", fix)
    take(copy.deepcopy(state))  # the reward may keep it and write into it; what is kept here must stay


def _write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free(path: Path) -> Path:
    """``path``, or with a number where that is taken."""
    number = 1
    taken = path
    while taken.exists():
        taken, number = path.with_name(f"{path.name}-{number}"), number + 1
    return taken
