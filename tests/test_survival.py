"""What a hostile user does to a run: each of these once gave a wrong number, a dead run, or a lie."""

import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import workbench as wb
from tests.runtime.conftest import worker_of
from tests.test_run import likes_a, make, until
from workbench import checkpoint
from workbench.errors import ConfigError, DivergedError, EngineError, StateError, StorageError, SyncError
from workbench.events import EventLog, read_events
from workbench.folder import RunFolder
from workbench.models import passes
from workbench.records import Notice
from workbench.run import Run


@pytest.fixture(scope="module")
def run(free_process: None, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = make(small_model, tmp_path_factory.mktemp("runs"), name="survival", algo=wb.GRPO(group_size=8, minibatches=2))
    next(iter(run.train(1)))
    yield run
    run.close()


@pytest.fixture
def rested(run: Run) -> Run:
    run.stop()
    return run


def another_algorithm(run: Run, algo: wb.algos.Algorithm) -> None:
    """From the next step on; nobody can do that from outside."""
    knobs = run._training.knobs
    knobs._wanted = replace(knobs._wanted, algo=algo)


def test_a_stop_between_two_minibatches_is_synced_before_the_next_step(rested: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    team = rested._training.crew.team
    calls, accumulate = [], passes.accumulate

    def breaks_off(*args: Any) -> Any:
        calls.append(args)
        return accumulate(*args[:-1], lambda: len(calls) == 2)  # the last one says whether to stop

    monkeypatch.setattr(passes, "accumulate", breaks_off)
    assert list(rested.train(1)) == []
    monkeypatch.undo()
    assert not team.in_sync  # one optimizer step was made, and the engine does not know
    rested.generate("sort ab=")
    assert team.in_sync
    (step,) = rested.train(1)
    assert step.logprob_diff_max < 1e-3


def test_the_canary_looks_at_every_minibatch(rested: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last group has a variance; the trainer is no longer what sampled."""
    worker = worker_of(rested._training.crew.team)
    calls = []

    def late(prompt: str, completion: str, answer: Any) -> float:
        calls.append(prompt)
        return float(len(calls)) if len(calls) > 56 else 0.0

    scorer, roll = rested._training.judge.scorer.fn, worker.rollout

    def shifted(*args: Any) -> Any:
        out = roll(*args)
        with torch.no_grad():
            for parameter in worker.actor.masters.parameters:
                parameter += 0.1
        return out

    kept = {name: tensor.clone() for name, tensor in worker.actor.adapter().items()}
    rested._training.judge.scorer.fn = late
    monkeypatch.setattr(worker, "rollout", shifted)
    try:
        with pytest.raises(SyncError, match="canary"):
            list(rested.train(1))
    finally:
        rested._training.judge.scorer.fn = scorer
        with torch.no_grad():
            for name, tensor in worker.actor.adapter().items():
                tensor.copy_(kept[name])


def test_a_loss_that_is_not_finite_is_neither_applied_nor_saved(rested: Run) -> None:
    class Bad(wb.GRPO):
        def loss(self, tokens: Any) -> Any:
            loss = super().loss(tokens)
            return replace(loss, total=loss.total * math.nan)

    algo, adapter = rested.plan.algo, worker_of(rested._training.crew.team).actor.adapter()
    before = {name: tensor.clone() for name, tensor in adapter.items()}
    another_algorithm(rested, Bad(group_size=8))
    try:
        with pytest.raises(DivergedError, match="gradient's norm is nan"):
            list(rested.train(1))
    finally:
        another_algorithm(rested, algo)
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapter.items())
    (step,) = rested.train(1)
    assert math.isfinite(step.loss)


def test_a_policy_that_diverged_stops_the_run(rested: Run) -> None:
    team = rested._training.crew.team
    worker = worker_of(team)
    kept = {name: tensor.clone() for name, tensor in worker.actor.adapter().items()}
    with torch.no_grad():
        for tensor in worker.actor.adapter().values():
            tensor.fill_(math.nan)
    worker.actor.learner.steps, team._updates = worker.actor.updates + 1, None
    with pytest.raises(DivergedError, match="not finite"):
        list(rested.train(1))
    saved = load_file(rested.path / "adapter" / "adapter_model.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in saved.values())  # the last good one is kept
    with torch.no_grad():
        for name, tensor in worker.actor.adapter().items():
            tensor.copy_(kept[name])
    worker.actor.learner.steps, team._updates = worker.actor.updates + 1, None
    assert math.isfinite(next(iter(rested.train(1))).loss)


def test_an_interrupted_rollout_leaves_nothing_behind(rested: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = worker_of(rested._training.crew.team).engine
    llm = engine._llm.llm_engine
    add, calls = llm.add_request, []

    def interrupted(*args: Any, **named: Any) -> Any:
        calls.append(args)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return add(*args, **named)

    monkeypatch.setattr(llm, "add_request", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(rested.train(1))
    monkeypatch.undo()
    assert not llm.has_unfinished_requests()
    assert len(list(rested.train(1))) == 1


def test_pause_right_after_resume_really_rests(rested: Run) -> None:
    rested.start(5000)
    for _ in range(10):
        rested.pause()
        done = len(rested.steps)
        time.sleep(0.05)
        assert len(rested.steps) == done
        rested.resume()


def test_pause_that_follows_resume_at_once_never_hangs(rested: Run) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    rested.start(100_000)
    done = threading.Event()

    def quick() -> None:
        for _ in range(150):
            rested.pause()
            rested.resume()
        done.set()

    try:
        threading.Thread(target=quick, daemon=True).start()
        assert done.wait(240)  # a step each, on a machine that may be busy
    finally:
        sys.setswitchinterval(interval)


def test_an_interrupt_at_the_very_beginning_does_not_block_the_run(rested: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    for name in ("_set", "_drive"):
        with monkeypatch.context() as patch:
            patch.setattr(rested, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                rested.start(1) if name == "_set" else list(rested.train(1))
        rested.stop()
        assert len(list(rested.train(1))) == 1


def test_a_stop_from_elsewhere_leaves_evaluate_usable(rested: Run) -> None:
    threading.Timer(0.3, rested.stop).start()
    list(rested.train(100_000))
    assert rested.state == "stopped"
    rested.evaluate()
    assert [event for event in rested.events if event.kind == "held_out"][-1].data["step"] == len(rested.steps)


def test_a_held_loop_is_ended_by_stop(rested: Run) -> None:
    loop = rested.train(5)
    next(loop)
    with pytest.raises(StateError, match=r"finish the loop that holds it, or stop\(\)"):
        rested.start(1)
    rested.stop()
    assert rested.state == "stopped"
    assert len(list(rested.train(1))) == 1


def test_evaluate_after_stop(rested: Run) -> None:
    rested.start(1000)
    until(lambda: rested.state == "running")
    rested.stop()
    rested.evaluate()
    assert [event for event in rested.events if event.kind == "held_out"][-1].data["step"] == len(rested.steps)


def test_a_checkpoint_from_a_cell_and_the_save_at_a_rest_take_turns(rested: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    flush = checkpoint._flush
    monkeypatch.setattr(checkpoint, "_flush", lambda path: (time.sleep(0.05), flush(path)))
    for rest in (rested.stop, lambda: rested.pause(wait=False)):
        done = len(rested.steps)
        rested.start(1000)
        until(lambda done=done: len(rested.steps) > done)
        thread = threading.Thread(target=rest)
        thread.start()
        rested.checkpoint()
        thread.join()
        rested.stop()
        assert rested.state == "stopped", rested.error


def test_waiting_for_a_paused_run_says_what_to_do(rested: Run) -> None:
    rested.start(1000)
    rested.pause()
    with pytest.raises(StateError, match=r"paused\n.*resume\(\)"):
        rested.wait()


def test_a_mistake_in_the_cell_leaves_the_open_run_alone(rested: Run, small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        make(small_model, tmp_path, name="survival", reward=5)
    assert rested.state != "closed"


def test_a_reward_that_calls_generate_is_told_so(rested: Run) -> None:
    scorer = rested._training.judge.scorer.fn
    rested._training.judge.scorer.fn = lambda prompt, completion, answer: float(len(str(rested.generate("sort ab="))))
    try:
        with pytest.raises(Exception, match="the step that waits for this reward holds the models"):
            list(rested.train(1))
    finally:
        rested._training.judge.scorer.fn = scorer


def test_the_environment_of_other_cells_survives_the_start_of_an_engine(rested: Run) -> None:
    from workbench.rollout import inner

    with inner.untouched_process():
        os.environ["MY_SETTING"] = "from a cell"
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    assert os.environ.pop("MY_SETTING") == "from a cell"
    assert "TORCHINDUCTOR_COMPILE_THREADS" not in os.environ


def test_a_run_closed_in_its_own_loop_stays_closed(run: Run) -> None:
    """Last: it closes the module's run."""
    run.stop()
    for _ in run.train(3):
        run.close()
    assert run.state == "closed"
    for call in (lambda: run.generate("sort ab="), lambda: run.train(1), run.evaluate):
        with pytest.raises(StateError, match="closed"):
            call()


def test_of_two_runs_that_start_at_once_one_gets_the_engine_and_the_other_the_reason(small_model: Path, tmp_path: Path) -> None:
    runs = [make(small_model, tmp_path, name=name, held_out=0) for name in ("one", "two")]
    for run in runs:
        run.start(1)
    errors = []
    for run in runs:
        try:
            run.wait()
        except EngineError as error:
            errors.append(str(error))
    assert sorted(run.state for run in runs) == ["failed", "finished"]
    assert "this process has one already" in errors[0]
    for run in runs:
        run.close()


# ---------------------------------------------------------------- files


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.emit(Notice("one"))
    file = log._file

    class Full:
        def write(self, line: bytes) -> int:
            return file.write(line[:10])

        def fileno(self) -> int:
            return file.fileno()

        name = "events.jsonl"

    log._file = Full()
    seen = []
    log.subscribe(seen.append, replay=False)
    with pytest.raises(StorageError, match="No space"):
        log.emit(Notice("two"))
    assert [event.data["text"] for event in seen] == ["two"]
    assert [event.data["text"] for event in read_events(tmp_path / "events.jsonl")] == ["one"]
    log._file = file
    log.emit(Notice("three"))
    log.close()
    assert [event.data["text"] for event in read_events(tmp_path / "events.jsonl")] == ["one", "two", "three"]  # nothing is lost


def test_a_folder_is_never_absent_while_it_is_written_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "x")

    def fill(path: Path) -> None:
        path.mkdir()
        (path / "weights").write_text("w")
        (path / "config").write_text("c")

    folder.write("adapter", fill)
    (folder.path / f".adapter.{os.getpid()}").mkdir()  # an interrupted save
    seen, over = [], threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.append((folder.path / "adapter" / "weights").exists())

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(200):
        folder.write("adapter", fill)
    over.set()
    thread.join()
    assert all(seen)
    assert sorted(path.name for path in folder.path.iterdir()) == ["adapter", "run.lock"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: wb.LoRA(alpha=math.nan),
        lambda: wb.Optimizer(learning_rate=math.inf),
        lambda: wb.Optimizer(warmup_steps=-10),
        lambda: wb.Optimizer(betas=(2, 0.9)),
        lambda: wb.Sampling(temperature=3.0),
        lambda: wb.Sampling(max_tokens=2.5),
        lambda: wb.LoRA(rank=True),
        lambda: wb.VLLM(window=0),
    ],
)
def test_numbers_that_cannot_work_are_refused_when_written(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        wrong()


@pytest.mark.parametrize("targets", [("embed_tokens",), ("q_proj", "nope")])
def test_every_target_has_to_be_a_linear_layer(small_model: Path, targets: tuple[str, ...]) -> None:
    from workbench.models.actor import Actor, ActorPlan

    with pytest.raises(ConfigError, match="no linear layer of this model is called so"):
        Actor(ActorPlan(small_model, wb.LoRA(targets=targets), wb.Optimizer(), "cpu", "float32", 0))


def test_records_of_algorithms_with_tensors_are_json(small_model: Path, tmp_path: Path) -> None:
    class Mine(wb.algos.Algorithm):
        group_size = 4

        def __init__(self) -> None:
            self.table = torch.ones(3)

        def advantages(self, rewards_BG: Any) -> Any:
            return rewards_BG

        def loss(self, tokens: Any) -> Any:
            return wb.algos.reduce_loss(tokens, -tokens.logp)

    run = make(small_model, tmp_path, name="mine", algo=Mine(), reward=likes_a)
    record = run.events[0].data["algo"]
    assert record["group_size"] == 4
    assert json.dumps(record)
    run.close()
