"""What is under way, from events alone."""

from workbench.records import Restored, State
from workbench.views.now import Now

from . import made


def now_of(log: made.EventLog) -> Now:
    now = Now()
    for event in log.events:
        now.feed(event)
    return now


def test_before_the_run_begins_nothing_runs() -> None:
    now = Now()
    assert (now.state, now.running, now.at_work, now.status) == ("new", "", (), "not started yet")


def test_the_first_step_goes_by_the_usual_order_of_the_roles_that_there_are() -> None:
    log = made.begun(made.SMALL)
    assert now_of(log).running == "rollout"
    made.phase(log, "rollout", 1, 0, 4)
    made.phase(log, "reward", 1, 4, 1)
    now = now_of(log)
    assert (now.running, now.at_work) == ("reference", ("reference",))
    made.phase(log, "reference", 1, 5, 1)
    assert now_of(log).running == "update_actor"  # no critic, so no values


def test_a_later_step_goes_by_the_one_before() -> None:
    log = made.begun(made.SMALL)
    for name in ("rollout", "reference", "reward"):
        made.phase(log, name, 1, 0, 1)
    made.whole(log, 1)
    made.phase(log, "rollout", 2, 9, 4)
    now = now_of(log)
    assert now.running == "reference"
    assert now.status == "step 2 of 50 · reference"
    assert now.seconds["sync"] == 1


def test_what_is_sampled_ahead_is_no_phase_of_this_step() -> None:
    log = made.begun(made.SMALL)
    made.whole(log, 1)
    made.phase(log, "rollout", 3, 9, 4)
    assert now_of(log).running == "rollout"


def test_sync_is_work_of_two_roles() -> None:
    log = made.begun(made.SMALL)
    made.whole(log, 1)
    for name, _ in made.PHASES[:-1]:
        made.phase(log, name, 2, 0, 1)
    assert now_of(log).at_work == ("actor", "rollout")


def test_a_run_that_rests_does_nothing() -> None:
    log = made.begun(made.SMALL)
    made.whole(log, 1)
    log.emit(State("paused"))
    now = now_of(log)
    assert (now.running, now.at_work, now.status, now.sentence) == ("", (), "step 1 of 50", "a run · paused · step 1 of 50")


def test_a_closed_run_is_shown_as_it_ended() -> None:
    log = made.begun(made.SMALL)
    made.whole(log, 1)
    for state in ("finished", "closed"):
        log.emit(State(state))
    now = now_of(log)
    assert (now.state, now.shown, now.sentence) == ("closed", "finished", "a run · finished · step 1 of 50")
    log.emit(State("running"))
    assert now_of(log).shown == "running"


def test_a_restore_goes_on_where_it_says_and_may_move_the_roles() -> None:
    log = made.begun(made.SMALL)
    made.whole(log, 1)
    made.whole(log, 2, 9)
    made.phase(log, "rollout", 3, 18, 4)
    log.emit(Restored(1, "step-000001", {}, {"actor": ["cpu:0"], "rollout": ["cpu:0"]}))
    now = now_of(log)
    assert (now.step, now.running, now.devices) == (1, "rollout", ("cpu:0",))
    assert now.roles_on("cpu:0") == ("actor", "rollout")


def test_samples_of_the_load_change_nothing() -> None:
    assert not Now().feed(made.load("local:0", 1.0, 0.5))
