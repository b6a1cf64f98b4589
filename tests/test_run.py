"""A run's life on a real engine: one engine for the whole module, random weights, a reward that any policy can raise."""

import importlib.util
import json
import os
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from tests.runtime.conftest import worker_of
from workbench.errors import ConfigError, EngineError, RewardError, StateError
from workbench.events import read_events
from workbench.records import HeldOut, State, Step, Sync
from workbench.rollout import inner
from workbench.run import Run
from workbench.run import _open as open_runs

PROMPTS = [(f"sort {a}{b}=", "".join(sorted(a + b))) for a in "abcdefgh" for b in "mnopqrs"]


def likes_a(prompt: str, completion: str, answer: Any) -> float:
    """More of the letter a is better, so that a random policy has something to learn."""
    return completion.count("a") + len(set(completion)) / 100


def make(model: Path, folder: Path, **changes: Any) -> Run:
    settings = {
        "task": wb.tasks.from_list(PROMPTS, scorer=likes_a),
        "model": model,
        "algo": wb.GRPO(group_size=8),
        "lora": wb.LoRA(rank=4, alpha=8),
        "sampling": wb.Sampling(prompts=8, max_tokens=8),
        "optimizer": wb.Optimizer(learning_rate=0.02),
        "engine": wb.VLLM(window=512, kv_cache_gib=0.2),
        "held_out": 8,
        "folder": folder,
    }
    return Run(**{**settings, **changes})


@pytest.fixture(scope="module")
def run(free_process: None, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = make(small_model, tmp_path_factory.mktemp("runs"), name="life")
    for _ in run.train(3):
        pass
    yield run
    run.close()


@pytest.fixture
def alone(free_process: None) -> None:
    """No engine in this process: the module's run is closed, where it is still open. For the tests at the end."""
    for run in list(open_runs.values()):
        run.close()


@pytest.fixture
def rested(run: Run) -> Run:
    """The run, at rest."""
    run.stop()
    return run


def test_training_raises_the_reward_and_every_step_is_a_record(run: Run) -> None:
    steps = run.steps[:3]
    assert [s.step for s in steps] == [1, 2, 3]
    assert steps[2].reward_mean > steps[0].reward_mean
    for step in steps:
        assert step.groups == 8
        assert step.logprob_diff_max < 1e-3
        assert step.kl >= 0
        assert set(step.phase_seconds) == {"rollout", "reward", "reference", "advantages", "update_actor", "sync"}
        assert sum(step.phase_seconds.values()) == pytest.approx(step.seconds, rel=0.2)
    assert [s.adapter_version for s in steps] == [1, 2, 3]
    assert {(s.staleness, s.ahead_seconds) for s in steps} == {(0, 0.0)}  # in one process nothing is sampled ahead


def test_held_out_prompts_are_scored_before_and_after(run: Run) -> None:
    scores = [e.record for e in run.events if isinstance(e.record, HeldOut)]
    assert [s.step for s in scores[:2]] == [0, 3]
    assert scores[1].reward_mean > scores[0].reward_mean


def test_every_sync_was_proved(run: Run) -> None:
    syncs = [e.record for e in run.events if isinstance(e.record, Sync)]
    assert [s.step for s in syncs[:4]] == [0, 1, 2, 3]
    assert len({s.checksum for s in syncs}) == len(syncs)


def test_the_folder_holds_the_run(run: Run) -> None:
    assert (run.path.parent / "life").resolve() == run.path.resolve()
    metrics = json.loads((run.path / "metrics.json").read_text())
    assert metrics["steps"] >= 3
    assert metrics["rollout_engine"].startswith("vllm")
    assert metrics["held_out_reward"]["after"] > metrics["held_out_reward"]["before"]
    assert metrics["sync"]["bytes"] > 0
    assert [e.seq for e in read_events(run.path / "events.jsonl")] == list(range(len(run.events)))
    seats = json.loads((run.path / "placement.json").read_text())
    assert [(seat["role"], seat["node"], seat["device"], seat["uuid"], seat["pid"], seat["layout"]) for seat in seats] == [
        (role, "local", "cpu:0", None, os.getpid(), "ddp") for role in ("actor", "rollout", "reference", "reward")
    ]
    assert [(seat["rank"], seat["world"], seat["group"]) for seat in seats] == [(0, 1, "actor+rollout+reference")] * 3 + [(0, 1, "driver")]
    assert not [p.name for p in run.path.iterdir() if p.name.startswith(".")]


def test_the_log_says_where_every_role_is(run: Run) -> None:
    (text,) = [text for event in run.events if "Device mapping resolved:" in (text := event.data.get("text", ""))]
    *roles, weights = text.splitlines()[1:]
    assert [line.split()[:2] for line in roles] == [[role, "ddp"] for role in ("actor", "rollout", "reference", "reward")]
    assert weights == "weights reach the engine by mode adapter: only the adapter changes, and the engine keeps a base of its own"
    assert text.count(f"cpu:0 (pid {os.getpid()})") == 4


def test_every_live_view_of_a_run_stands_alone_and_all_together(run: Run) -> None:
    for view in ("curves", "knobs", "topology", "load", "timeline", "samples", "all"):
        live = run.watch(view)
        shown = live.twin()
        assert shown["text/html"]
        assert shown["text/plain"]
        live.close()


def test_routes_of_one_process_stay_in_it(run: Run) -> None:
    assert [(route.phase, route.source, route.target, route.how, route.bytes) for route in run.routes] == [
        ("rollout", "driver", "rollout", "stay", 0),
        ("rollout", "rollout", "driver", "stay", 0),
        ("reference", "driver", "reference", "stay", 0),
        ("reference", "reference", "driver", "stay", 0),
        ("update_actor", "driver", "actor", "stay", 0),
        ("update_actor", "actor", "driver", "stay", 0),
        ("sync", "actor", "rollout", "stay", 0),
    ]


def test_the_adapter_is_read_by_peft_and_says_what_the_engine_says(run: Run, small_model: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    run.stop()
    run._training.save()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(small_model)
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32), run.path / "adapter")
    ids = torch.tensor([tokenizer("sort ab=").input_ids])
    out = model.generate(input_ids=ids, max_new_tokens=8, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
    assert run.generate("sort ab=").trained == (tokenizer.decode(out, skip_special_tokens=True),)


def test_start_returns_at_once_and_a_second_one_is_refused(rested: Run) -> None:
    began = time.monotonic()
    rested.start(50)
    assert time.monotonic() - began < 0.2
    with pytest.raises(StateError, match=r"trains already.*\n.*wait\(\), stop\(\), or resume"):
        rested.start(1)
    with pytest.raises(StateError, match="trains already"):
        rested.train(1)


def test_pause_rests_between_two_steps_and_resume_goes_on(rested: Run) -> None:
    rested.start(50)
    rested.pause()
    assert rested.state == "paused"
    done = len(rested.steps)
    assert rested.batch.batch.rewards  # a batch can be looked at
    rested.generate("sort ab=")
    time.sleep(0.5)
    assert len(rested.steps) == done
    rested.resume()
    until(lambda: len(rested.steps) > done)
    assert rested.state == "running"


def test_resume_and_wait_say_so_where_no_thread_rests(rested: Run) -> None:
    for _ in rested.train(5):
        break
    with pytest.raises(StateError, match=r"no thread of this run rests \(paused.*\n.*train\(n\) or start\(n\)"):
        rested.resume()


def test_wait_until_a_step(rested: Run) -> None:
    done = len(rested.steps)
    rested.start(50).wait(until_step=done + 2)
    assert rested.state == "running"
    assert done + 2 <= len(rested.steps) <= done + 4


def test_stop_ends_a_long_rollout_within_a_second(rested: Run) -> None:
    rested.knobs.max_tokens = 400
    try:
        done = len(rested.steps)
        rested.start(50)
        until(lambda: rested.state == "running")
        time.sleep(0.3)
        began = time.monotonic()
        rested.stop()
        assert time.monotonic() - began < 1
        assert rested.state == "stopped"
        assert len(rested.steps) == done
    finally:
        rested.knobs.max_tokens = 8
    for step in rested.train(1):
        assert step.step == done + 1  # the dropped step is made again


def test_leaving_the_loop_is_a_pause(rested: Run) -> None:
    done = len(rested.steps)
    for step in rested.train(10):
        assert step.step == done + 1
        break
    assert rested.state == "paused"
    assert [s.step for s in rested.train(1)] == [done + 2]
    assert rested.state == "finished"


def test_wait_raises_what_failed_in_the_thread(rested: Run) -> None:
    scorer = rested._training.judge.scorer.fn

    def fails(prompt: str, completion: str, answer: Any) -> float:
        raise LookupError("no such word")

    done = len(rested.steps)
    rested._training.judge.scorer.fn = fails
    try:
        rested.start(2)
        with pytest.raises(RewardError, match=r"prompt .*'sort .*LookupError"):
            rested.wait()
        assert rested.state == "failed"
        assert "no such word" in [e.record for e in rested.events if isinstance(e.record, State)][-1].error
    finally:
        rested._training.judge.scorer.fn = scorer
    assert [s.step for s in rested.train(1)] == [done + 1]  # the run goes on once the reward is mended


def test_a_step_without_any_variance_is_recorded_and_skipped(rested: Run) -> None:
    scorer = rested._training.judge.scorer.fn
    rested._training.judge.scorer.fn = lambda prompt, completion, answer: 0.5
    before = {name: t.clone() for name, t in worker_of(rested._training.crew.team).actor.adapter().items()}
    try:
        (step,) = rested.train(1)
    finally:
        rested._training.judge.scorer.fn = scorer
    assert step.skipped
    assert step.groups_without_variance == step.groups
    assert step.tokens_trained == 0
    assert all(torch.equal(t, before[name]) for name, t in worker_of(rested._training.crew.team).actor.adapter().items())


def test_a_prompt_longer_than_the_window_is_named(rested: Run) -> None:
    with pytest.raises(ConfigError, match=r"prompt \('sort aaa.*window holds 512.*\n.*VLLM\(window=6\d\d\)"):
        rested.generate("sort " + "a" * 600 + "=")


def test_views_of_a_live_run(rested: Run) -> None:
    assert "before" in str(rested.summary())
    assert "image/png" in rested.summary()._repr_mimebundle_()
    assert rested.watch() is not None


def test_generate_falls_between_two_steps_of_a_running_thread(rested: Run) -> None:
    rested.start(2000)
    until(lambda: rested.state == "running")
    answers = [rested.generate("sort ab=") for _ in range(3)]
    assert all(answer.prompt == "sort ab=" for answer in answers)
    assert rested.state == "running"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts what runs in its background with SIGINT ignored, and its children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_pauses_and_training_goes_on(rested: Run) -> None:
    done = len(rested.steps)
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in rested.train(1000):
            pass
    assert rested.state == "paused"
    seen = len(rested.steps)
    assert seen >= done
    assert [s.step for s in rested.train(1)] == [seen + 1]


@pytest.mark.parametrize("steps", [0, -3])
def test_a_run_of_no_steps_is_refused(rested: Run, steps: int) -> None:
    with pytest.raises(ConfigError, match="at least one step"):
        rested.train(steps)


def test_the_same_seed_is_the_same_run_and_close_gives_the_engine_back(run: Run, small_model: Path, tmp_path: Path) -> None:
    """Last: it closes the module's run. On a CPU, every completion has a seed of its own."""
    worker = worker_of(run._training.crew.team)
    held = [weakref.ref(inner.runner(worker.engine._llm)), weakref.ref(worker.actor.model)]
    del worker
    run.close()
    run.close()
    assert [part() for part in held] == [None, None]
    assert run.state == "closed"
    with pytest.raises(StateError, match=r"closed.*\n.*new Run"):
        run.generate("sort ab=")
    assert "before" in str(run.summary())
    with make(small_model, tmp_path, name="again", held_out=0) as again:
        again_steps = list(again.train(2))
        first = [(s.reward_mean, s.loss, s.completion_tokens_mean) for s in run.steps[:2]]
        assert [(s.reward_mean, s.loss, s.completion_tokens_mean) for s in again_steps] == first
        # running the cell that makes the run again: the older one is closed, no harm done
        newer = make(small_model, tmp_path, name="again")
        assert again.state == "closed"
        assert isinstance(next(iter(newer.train(1))), Step)
        newer.close()


# ---------------------------------------------------------------- refused before anything is loaded


def test_a_folder_that_cannot_be_written_is_refused(small_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"run folder '/proc/runs'.*can't be written"):
        make(small_model, Path("/proc/runs"))


def test_a_name_that_is_no_folder_is_refused(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name of a folder"):
        make(small_model, tmp_path, name="a/b")


def test_what_is_no_task_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"task='sorting': that is a str\n.*wb\.tasks"):
        Run(task="sorting")


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        make(Path("./nowhere"), tmp_path)
    run = make("no-such-org/no-such-model", tmp_path)
    with pytest.raises(ConfigError, match=r"hub gave nothing \(HF_HUB_OFFLINE is set\)"):
        next(iter(run.train(1)))
    assert run.state == "failed"
    run.close()


def test_other_libraries_names_lead_to_ours(small_model: Path, tmp_path: Path) -> None:
    for mistake, right in (
        (lambda: wb.Optimizer(lr=1e-3), "learning_rate"),
        (lambda: wb.LoRA(r=8), "rank"),
        (lambda: wb.GRPO(num_generations=8), "group_size"),
        (lambda: wb.GRPO(beta=0.1), "kl"),
        (lambda: wb.Sampling(max_new_tokens=8), "max_tokens"),
        (lambda: wb.VLLM(max_model_len=8), "window"),
        (lambda: make(small_model, tmp_path, rewards=likes_a), "reward"),
        (lambda: wb.Sampling(temprature=1.0), "temperature"),
    ):
        with pytest.raises(ConfigError, match=rf"fix: write {right}="):
            mistake()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"held_out": -1}, "held_out=-1"),
        ({"seed": "x"}, "seed='x'"),
        ({"lora": {"rank": 4}}, r"lora=.*\n.*wb\.LoRA"),
        ({"devices": "0"}, "torch sees no GPU here"),
        ({"devices": "0-1 fsdp"}, "torch sees no GPU here"),
        ({"runtime": "rey"}, r"^Run\(runtime='rey'\): there are two runtimes"),
        ({"overlap": 1}, r"^Run\(overlap=1\): actor and rollout have cpu:0 in common"),
        ({"topology": wb.Topology.preset("dgx-a100")}, r"is a description of GPUs, and a run works on what is there"),
        ({"devices": "0-1", "topology": wb.Topology.cpu(slots=2), "runtime": "inline"}, "the map has 2 worker processes"),
        ({"devices": "cuda:0"}, "No such file|no device"),
    ],
)
def test_values_of_the_wrong_kind_are_refused_when_written(small_model: Path, tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make(small_model, tmp_path, **changes)
    assert list(tmp_path.iterdir()) == []  # nothing is left of a run that never was


def test_learning_rates_as_text_are_refused() -> None:
    with pytest.raises(ConfigError, match="that is a str"):
        wb.Optimizer(learning_rate="1e-3")


def test_waiting_for_nothing_is_refused(small_model: Path, tmp_path: Path) -> None:
    run = make(small_model, tmp_path, name="idle")
    with pytest.raises(StateError, match="nothing was started"):
        run.wait()
    with pytest.raises(StateError, match="made when the run starts"):
        _ = run.path
    run.close()


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="group_size=1"):
        wb.GRPO(group_size=1)


def until(happened: Any, seconds: float = 20) -> None:
    """Wait until it happened, or fail."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_an_engine_that_does_not_fit_says_so_and_the_next_run_starts(alone: None, small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"window=100000\): the model has 1024 positions"):
        next(iter(make(small_model, tmp_path, name="wide", engine=wb.VLLM(window=100_000)).train(1)))
    big = make(small_model, tmp_path, name="big", engine=wb.VLLM(kv_cache_gib=5000))
    with pytest.raises(EngineError, match=r"does not fit in memory .*5000.*\n.*kv_cache_gib"):
        next(iter(big.train(1)))
    assert big.state == "failed"


def test_without_vllm_the_command_that_installs_it_is_named(
    alone: None, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "vllm" else find(name, *rest))
    with pytest.raises(EngineError, match=r"vLLM is not installed\n.*rl-workbench\[cpu\]"):
        next(iter(make(small_model, tmp_path, name="none").train(1)))
