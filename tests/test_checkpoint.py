"""Checkpoints as files: whole or not at all, checked when read, kept as many as asked."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench import checkpoint
from workbench.checkpoint import Checkpoints, RunState, find, load_reward_state, read, reward_state
from workbench.errors import ConfigError, StorageError

TENSORS = {"weight.a": torch.arange(6.0).view(2, 3), "step.a": torch.tensor(4.0)}


def state(step: int) -> RunState:
    return RunState(step, 50, step * 8, step + 1, step, {"temperature": 0.9, "clip": [0.1, 0.2]}, {"asked": 3})


def names(run: Path) -> list[str]:
    return [path.name for path in Checkpoints(run, 1).all()]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = Checkpoints(tmp_path, 2).write(state(40), TENSORS)
    assert written.path == tmp_path / "checkpoints" / "step-000040"
    assert written.bytes == sum(file.stat().st_size for file in written.path.iterdir())
    found, tensors = read(written.path)
    assert found == state(40)
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_the_newest_are_kept_and_those_asked_for_too(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.write(state(5), TENSORS, requested=True)
    for step in (10, 20, 30):
        checkpoints.write(state(step), TENSORS)
    assert names(tmp_path) == ["kept-000005", "step-000020", "step-000030"]
    assert find(tmp_path).checkpoint == tmp_path / "checkpoints" / "step-000030"


@pytest.mark.parametrize("name", ["trainer.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["cut", "gone", "changed"])
def test_damage_is_found_and_the_one_before_named(tmp_path: Path, name: str, damage: str) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    for step in (10, 20):
        checkpoints.write(state(step), TENSORS)
    file = tmp_path / "checkpoints" / "step-000020" / name
    if damage == "gone":
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes(content[:-7] if damage == "cut" else b"?" + content[1:])
    with pytest.raises(ConfigError, match=rf"step-000020.*{name}[\s\S]*step-000010.*goes on from the one before"):
        find(tmp_path)
    assert read(find(tmp_path / "checkpoints" / "step-000010").checkpoint)[0].step == 10


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path, 2).write(state(10), TENSORS).path
    manifest = json.loads((path / "manifest.json").read_text()) | {"format": 99}
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match=r"format 99, this version reads 1[\s\S]*no other checkpoint"):
        read(path)


def test_a_full_disk_leaves_those_before_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.write(state(10), TENSORS)

    def full(path: Path, data: Any) -> None:
        path.write_text("{")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "_write_json", full)
    with pytest.raises(StorageError, match=r"checkpoint of step 20.*No space left[\s\S]*step-000010 stays whole"):
        checkpoints.write(state(20), TENSORS)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000010"]
    monkeypatch.undo()
    checkpoints.write(state(20), TENSORS)
    assert names(tmp_path) == ["step-000010", "step-000020"]


def test_what_a_killed_write_left_is_swept_and_never_taken_for_a_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.write(state(10), TENSORS)
    (tmp_path / "checkpoints" / ".writing-000020").mkdir()
    (tmp_path / "checkpoints" / ".removing-step-000000").mkdir()
    assert names(tmp_path) == ["step-000010"]
    checkpoints.write(state(20), TENSORS)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000010", "step-000020"]


def test_later_ones_are_set_aside_when_a_run_goes_on_from_an_earlier(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 3)
    for step in (10, 20, 30):
        checkpoints.write(state(step), TENSORS)
    checkpoints.set_aside(10)
    assert names(tmp_path) == ["step-000010"]
    assert (tmp_path / "checkpoints" / "aside-step-000030").is_dir()


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "best").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"its name is no checkpoint's"):
        find(tmp_path / "checkpoints" / "best")
    assert find(tmp_path).checkpoint is None


def test_a_reward_with_a_memory() -> None:
    class Remembers:
        def __init__(self) -> None:
            self.seen: Any = {"mean": 0.5}

        def __call__(self, *row: Any) -> float:
            return 0.0

        def state_dict(self) -> Any:
            return self.seen

        def load_state_dict(self, state: Any) -> None:
            self.seen = state

    reward = Remembers()
    kept = reward_state(reward)
    reward.seen = {"mean": 0.9}
    load_reward_state(reward, kept)
    assert reward.seen == {"mean": 0.5}
    reward.seen["mean"] = 0.7  # it writes into what it was given
    load_reward_state(reward, kept)
    assert reward.seen == {"mean": 0.5}
    reward.seen = {"mean": object()}
    with pytest.raises(ConfigError, match="JSON can't hold it"):
        reward_state(reward)
    assert reward_state(lambda prompt, completion, answer: 1.0) is None
    with pytest.raises(ConfigError, match="no load_state_dict"):
        load_reward_state(lambda prompt, completion, answer: 1.0, {"mean": 0.5})
