"""Knobs without a run: what may be turned, what is refused, when it acts, what is recorded."""

import resource
import signal
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.errors import ConfigError, StateError, StorageError
from workbench.events import EventLog, read_events
from workbench.knobs import Knobs, Settings, turned_after
from workbench.records import Knob, Restored


class Own(wb.algos.Algorithm):
    """No dataclass: its settings are attributes of the class."""

    group_size = 4

    def advantages(self, rewards_BG: Any) -> Any:
        return rewards_BG

    def loss(self, tokens: Any) -> Any:
        return wb.algos.reduce_loss(tokens, tokens.logp)


def make(algo: wb.algos.Algorithm | None = None) -> tuple[Knobs, EventLog]:
    log = EventLog()
    return Knobs(Settings(algo or wb.GRPO(group_size=8, kl=0.1), wb.Sampling(), wb.Optimizer()), log), log


def recorded(log: EventLog) -> list[tuple[int, str, Any, Any]]:
    return [(k.step, k.name, k.old, k.new) for event in log.events if isinstance(k := event.record, Knob)]


def test_a_new_value_acts_at_the_next_step_and_is_an_event() -> None:
    knobs, log = make()
    assert knobs.take(1).optimizer.learning_rate == 1e-4
    knobs.learning_rate = 3e-4  # while step 1 runs
    assert knobs.settings.optimizer.learning_rate == 1e-4
    assert knobs.pending == {"learning_rate": (1e-4, 3e-4)}
    assert "learning_rate = 0.0001 -> 0.0003 at step 2" in repr(knobs)
    assert knobs.take(2).optimizer.learning_rate == 3e-4
    assert knobs.pending == {}
    assert recorded(log) == [(2, "learning_rate", 1e-4, 3e-4)]


def test_all_seven_can_be_turned() -> None:
    knobs, log = make()
    values = {"learning_rate": 1e-3, "temperature": 0.7, "prompts": 4, "max_tokens": 9, "group_size": 2, "kl": 0.0, "clip": (0.1, 0.3)}
    knobs.set(**values)
    settings = knobs.take(1)
    assert (settings.optimizer.learning_rate, settings.sampling.temperature, settings.sampling.prompts) == (1e-3, 0.7, 4)
    assert (settings.sampling.max_tokens, settings.algo.group_size, settings.algo.kl, settings.algo.clip) == (9, 2, 0.0, (0.1, 0.3))
    assert not settings.algo.needs_reference
    assert {name for _, name, _, _ in recorded(log)} == values.keys() == set(knobs.names)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("learning_rate", 0, "above 0"),
        ("learning_rate", "3e-4", "that is a str"),
        ("learning_rate", float("nan"), "no finite number"),
        ("temperature", 0, "no policy gradient"),
        ("temperature", 3.0, "up to 2"),
        ("prompts", 0, "at least one prompt"),
        ("prompts", True, "that is a bool"),
        ("max_tokens", 1.5, "that is a float"),
        ("group_size", 1, "every advantage is 0"),
        ("kl", -1, "not negative"),
        ("clip", 1.5, "between 0 and 1"),
        ("clip", (0.1, 0.2, 0.3), "a pair"),
        ("lr", 1e-3, "write run.knobs.learning_rate"),
        ("batch", 4, "write run.knobs.prompts"),
        ("temprature", 1.0, "write run.knobs.temperature"),
        ("lora", 4, "use one of these"),
    ],
)
def test_a_bad_value_is_refused_at_once_and_nothing_changes(name: str, value: Any, match: str) -> None:
    knobs, log = make()
    with pytest.raises(ConfigError, match=match):
        setattr(knobs, name, value)
    assert (knobs.pending, recorded(log)) == ({}, [])


def test_several_are_turned_all_or_none() -> None:
    knobs, log = make()
    with pytest.raises(ConfigError, match="above 0"):
        knobs.set(temperature=0.5, learning_rate=-1.0)
    assert knobs.temperature == 1.0
    assert recorded(log) == []


def test_knobs_that_an_algorithm_does_not_have() -> None:
    knobs, _ = make(wb.algos.RLOO())
    assert "clip" not in knobs.names
    with pytest.raises(ConfigError, match=r"RLOO has no clip"):
        knobs.clip = 0.1


def test_an_algorithm_that_is_no_dataclass_is_copied() -> None:
    algo = Own()
    knobs, _ = make(algo)
    assert knobs.names == ("learning_rate", "temperature", "prompts", "max_tokens", "group_size")
    knobs.group_size = 16
    assert (algo.group_size, knobs.take(1).algo.group_size) == (4, 16)
    with pytest.raises(ConfigError, match="completions per prompt"):
        knobs.group_size = 0


def test_a_dropped_step_takes_what_is_wanted_when_it_is_made_again() -> None:
    knobs, _ = make()
    knobs.take(5)
    knobs.temperature = 0.5
    knobs.give_back(5)
    assert knobs.take(5).sampling.temperature == 0.5


def test_what_a_crash_undid_is_turned_again_at_its_step() -> None:
    knobs, log = make()
    knobs.resume(10, [Knob(11, "temperature", 1.0, 0.9), Knob(13, "clip", 0.2, [0.1, 0.3]), Knob(14, "kl", 0.1, 0.2)])
    assert knobs.temperature == 0.9  # due at the next step
    assert knobs.take(12).algo.clip == 0.2
    assert knobs.take(13).algo.clip == (0.1, 0.3)
    knobs.kl = 0.3  # a person's word is the last
    assert knobs.take(14).algo.kl == 0.3
    assert [knob[:2] for knob in recorded(log)] == [(11, "temperature"), (13, "clip"), (14, "kl")]


def test_listeners_hear_every_change_until_they_leave() -> None:
    knobs, _ = make()
    heard: list[tuple[str, Any]] = []
    leave = knobs.subscribe(lambda name, value: heard.append((name, value)))
    knobs.temperature = 0.5
    knobs.temperature = 0.5
    leave()
    knobs.temperature = 0.6
    assert heard == [("temperature", 0.5)]


def test_the_knobs_of_a_closed_run_are_fixed() -> None:
    knobs, _ = make()
    knobs.close()
    with pytest.raises(StateError, match="the run is closed"):
        knobs.temperature = 0.5


def test_what_several_crashes_undid_is_still_due() -> None:
    def life(log: EventLog, after: int, *turned: Knob) -> list[tuple[int, Any]]:
        for knob in turned:
            log.emit(knob)
        return [(knob.step, knob.new) for knob in turned_after(after, log.events)]

    log = EventLog()
    fourth, sixth = Knob(4, "temperature", 1.0, 0.9), Knob(6, "temperature", 0.9, 0.8)
    assert life(log, 2, Knob(2, "kl", 0.1, 0.2), fourth, sixth) == [(4, 0.9), (6, 0.8)]
    log.emit(Restored(2, "step-000002", {}))
    assert life(log, 2) == [(4, 0.9), (6, 0.8)]  # killed again before step 4
    log.emit(Restored(2, "step-000002", {}))
    assert life(log, 4, fourth) == [(6, 0.8)]  # step 4 was made
    log.emit(Restored(4, "step-000004", {}))
    assert life(log, 4, Knob(5, "temperature", 0.9, 0.7)) == [(5, 0.7)]  # a person's word is the last


def test_a_method_of_an_algorithm_is_no_knob_and_a_computed_value_cannot_be_turned() -> None:
    class Odd(Own):
        def clip(self, values: Any) -> Any:
            return values

        @property
        def group_size(self) -> int:  # type: ignore[override]
            return 4

    knobs, _ = make(Odd())
    assert "clip" not in knobs.names
    with pytest.raises(ConfigError, match="Odd computes it"):
        knobs.group_size = 8


def test_what_is_no_knob_is_no_attribute() -> None:
    knobs, _ = make()
    assert not hasattr(knobs, "shape")
    with pytest.raises(AttributeError, match="use one of these"):
        _ = knobs.shape


def test_on_a_full_disk_every_change_is_recorded_all_the_same(tmp_path: Path) -> None:
    knobs, log = make()
    log.write_to(tmp_path / "events.jsonl")
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # the system refuses to let any file grow
    try:
        with pytest.raises(StorageError, match="File too large"):
            knobs.set(temperature=0.9, prompts=4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert {name for _, name, _, _ in recorded(log)} == {"temperature", "prompts"}
    knobs.kl = 0.2
    assert len(list(read_events(tmp_path / "events.jsonl"))) == 3  # what could not be written then is written now
