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


def test_a_phase_runs_from_its_beginning_to_its_end() -> None:
    log = made.begun(made.SMALL)
    assert now_of(log).running == ""
    made.began(log, "rollout", 1)
    now = now_of(log)
    assert (now.running, now.at_work, now.status) == ("rollout", ("rollout",), "step 1 of 50 · rollout")
    made.phase(log, "rollout", 1, 0, 4)
    assert now_of(log).running == ""
    made.began(log, "reference", 1)
    assert now_of(log).at_work == ("reference",)
    assert now_of(log).seconds == {"rollout": 4}


def test_what_is_sampled_ahead_runs_beside_what_is_learnt_and_outlives_the_step() -> None:
    log = made.begun(made.SMALL)
    made.began(log, "rollout", 2)
    made.began(log, "update_actor", 1)
    now = now_of(log)
    assert (now.running, now.at_work) == ("rollout, update_actor", ("rollout", "actor"))
    made.phase(log, "update_actor", 1, 0, 2)
    made.whole(log, 1)
    assert now_of(log).status == "step 2 of 50 · rollout"
    made.began(log, "rollout", 2)  # the next step waits for it
    made.phase(log, "rollout", 2, 0, 9)
    assert now_of(log).running == "rollout"
    made.phase(log, "rollout", 2, 5, 4)
    assert now_of(log).running == ""


def test_what_was_broken_off_runs_no_more() -> None:
    for rest in (State("paused"), State("failed", "a fault"), State("stopped"), Restored(0, "", {})):
        log = made.begun(made.SMALL)
        made.began(log, "rollout", 1)
        log.emit(rest)
        log.emit(State("running"))
        assert now_of(log).running == "", rest


def test_a_step_that_waits_for_its_reward_service_goes_on_where_it_was() -> None:
    log = made.begun(made.SMALL)
    made.began(log, "reward", 1)
    log.emit(State("paused", "the service is down"))
    assert now_of(log).running == ""
    log.emit(State("running"))
    assert now_of(log).running == "reward"


def test_sync_is_work_of_two_roles() -> None:
    log = made.begun(made.SMALL)
    made.began(log, "sync", 2)
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
    made.began(log, "rollout", 3)
    log.emit(Restored(1, "step-000001", {}, {"actor": ["cpu:0"], "rollout": ["cpu:0"]}))
    now = now_of(log)
    assert (now.step, now.running, now.devices) == (1, "", ("cpu:0",))
    assert now.roles_on("cpu:0") == ("actor", "rollout")


def test_samples_of_the_load_change_nothing() -> None:
    assert not Now().feed(made.load("local:0", 1.0, 0.5))
