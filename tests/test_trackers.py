"""Trackers: TensorBoard's files are read back; what fails is said and stops nothing."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.test_metrics import a_step
from workbench import trackers
from workbench.errors import ConfigError
from workbench.events import EventLog
from workbench.records import HeldOut, Knob, Memory, Notice
from workbench.trackers import Numbers, attach, check_trackers, numbers_of


def notices(log: EventLog) -> list[str]:
    return [event.data["text"] for event in log.events if event.kind == "notice"]


class Scripted:
    """A tracker that notes what it is told, and fails or hangs when told to."""

    def __init__(self, fails_at: int | None = None, hangs: threading.Event | None = None) -> None:
        self.fails_at, self.hangs = fails_at, hangs
        self.told: list[Any] = []
        self.thread = ""

    def start(self) -> None:
        self.thread = threading.current_thread().name

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.told.append(values)

    def log(self, values: dict[str, float], step: int) -> None:
        if self.hangs is not None:
            self.hangs.wait()
        if step == self.fails_at:
            raise ConnectionError("the network is down")
        self.told.append((step, values))

    def finish(self) -> None:
        self.told.append("finished")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Scripted]:
    """Two trackers in the place of real ones."""
    made = {"tensorboard": Scripted(), "wandb": Scripted()}
    monkeypatch.setattr(trackers, "make_tracker", lambda name, folder: made[name])
    monkeypatch.setattr(trackers, "_is_installed", lambda name: True)
    return made


def test_tensorboard_files_hold_what_was_recorded(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventLog()
    close = attach(log, ["tensorboard"], tmp_path, {"model": "tiny", "lora": {"rank": 16, "targets": ["q"]}, "seeded": None})
    log.emit(HeldOut(0, 0.25, 0.03, 64))
    for step in (1, 2):
        log.emit(Memory(1.5 * step))
        log.emit(a_step(step, reward_mean=step / 4))
    log.emit(Knob(3, "clip", 0.2, [0.1, 0.3]))
    close()
    assert notices(log) == []
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    scalars = {tag: [(point.step, point.value) for point in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert scalars["reward/mean"] == [(1, 0.25), (2, 0.5)]
    assert scalars["time/rollout"] == [(1, 0.5), (2, 0.5)]
    assert scalars["memory/peak_gib"] == [(1, 1.5), (2, 3.0)]
    assert scalars["held_out/reward_mean"] == [(0, 0.25)]
    assert scalars["knob/clip_high"] == [(3, pytest.approx(0.3))]
    settings = next((tmp_path / "tensorboard").glob("*/hparams.yml")).read_text()
    assert "lora.rank: 16" in settings
    assert "model: tiny" in settings


def test_a_folder_that_cannot_be_written_is_one_notice(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").write_text("a file in the way")
    log = EventLog()
    close = attach(log, ["tensorboard"], tmp_path, {})
    log.emit(a_step(1))
    log.emit(a_step(2))
    close()
    (notice,) = notices(log)
    assert notice.startswith("tracker tensorboard is left out from now on: FileExistsError")


def test_one_that_fails_is_left_out_and_the_others_go_on(tmp_path: Path, scripted: dict[str, Scripted]) -> None:
    scripted["wandb"].fails_at = 2
    log = EventLog()
    close = attach(log, ["tensorboard", "wandb"], tmp_path, {"seed": 3})
    for step in (1, 2, 3):
        log.emit(a_step(step))
    close()
    close()  # twice is harmless
    log.emit(a_step(4))  # and nothing is heard after it
    assert notices(log) == ["tracker wandb is left out from now on: ConnectionError: the network is down"]
    assert [told[0] for told in scripted["wandb"].told[1:]] == [1]
    assert [told if told == "finished" else told[0] for told in scripted["tensorboard"].told[1:]] == [1, 2, 3, "finished"]
    assert scripted["tensorboard"].told[0] == {"seed": 3}
    assert scripted["tensorboard"].thread == f"trackers-{tmp_path.name}"


def test_a_network_that_hangs_holds_up_nothing(tmp_path: Path, scripted: dict[str, Scripted], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "SECONDS_TO_CLOSE", 0.2)
    monkeypatch.setattr(trackers, "make_tracker", lambda name, folder: scripted[name])
    hangs = scripted["wandb"].hangs = threading.Event()
    log = EventLog()
    close = attach(log, ["wandb"], tmp_path, {})
    log.emit(a_step(1))
    began = time.monotonic()
    for step in range(2, 50):
        log.emit(a_step(step))
    assert time.monotonic() - began < 0.2
    close()
    hangs.set()
    assert notices(log) == ["trackers wandb: not all was sent within 0 s"]


def test_nothing_recorded_starts_nothing(tmp_path: Path) -> None:
    log = EventLog()
    close = attach(log, ["tensorboard"], tmp_path, {})
    log.emit(Notice("hello"))
    close()
    assert list(tmp_path.iterdir()) == []


def test_by_default_tensorboard_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog()
    assert check_trackers(None) == ("tensorboard",)
    attach(log, None, tmp_path, {})()
    assert notices(log) == [f"tracker: tensorboard, in {tmp_path / 'tensorboard'}"]
    monkeypatch.setattr(trackers, "_is_installed", lambda name: False)
    log = EventLog()
    attach(log, None, tmp_path, {})()
    assert notices(log) == ["no tracker: tensorboard is not installed"]
    attach(log, (), tmp_path, {})()
    assert len(notices(log)) == 1


def test_names_are_checked_where_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_trackers("tensorboard") == check_trackers(["tensorboard", "tensorboard"]) == ("tensorboard",)
    assert check_trackers(()) == ()
    with pytest.raises(ConfigError, match=r"'tensorbord' is none that is known\n  fix: use some of tensorboard, wandb, trackio, mlflow"):
        check_trackers(["tensorbord"])
    monkeypatch.setattr(trackers, "_is_installed", lambda name: name == "tensorboard")
    with pytest.raises(ConfigError, match=r"mlflow is not installed\n  fix: pip install mlflow"):
        check_trackers(["tensorboard", "mlflow"])


def test_what_is_not_finite_is_left_out() -> None:
    assert numbers_of(HeldOut(3, float("nan"), 0.5, 8)) == Numbers(3, {"held_out/reward_stderr": 0.5})
    assert numbers_of(Knob(4, "kl", 0.0, 0.01)) == Numbers(4, {"knob/kl": 0.01})
    assert numbers_of(Knob(4, "kl_estimator", "k1", "k3")) is None
    assert numbers_of(Notice("")) is None


def test_what_a_critic_and_a_reward_tell_has_names_of_its_own() -> None:
    told = numbers_of(
        a_step(
            3,
            value_loss=0.25,
            explained_variance=0.5,
            value_clip_fraction=float("nan"),
            critic_grad_norm=1.5,
            kl_weight=0.01,
            repetition=0.125,
            reward_numbers={"style/cut_rows": 2.0, "len<20": 1.0},
        )
    )
    assert told is not None
    new = {name: value for name, value in told.values.items() if name.startswith(("critic/", "reward_numbers/", "kl_", "completion/rep"))}
    assert new == {
        "critic/value_loss": 0.25,
        "critic/explained_variance": 0.5,
        "critic/grad_norm": 1.5,
        "kl_weight": 0.01,
        "completion/repetition": 0.125,
        "reward_numbers/style/cut_rows": 2.0,
        "reward_numbers/len_20": 1.0,
    }


def test_a_step_without_a_critic_says_nothing_of_one() -> None:
    told = numbers_of(a_step(3))
    assert told is not None
    assert not any(name.startswith(("critic/", "reward_numbers/", "kl_weight")) for name in told.values)


def test_importing_it_loads_no_tracker() -> None:
    code = "import sys, workbench.trackers; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "accelerate", "tensorboard"} & set(shown) == set()
