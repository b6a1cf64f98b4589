"""A run whose map names a reward service: a real server, killed and started again in the middle of a step."""

from pathlib import Path

import pytest

import workbench as wb
from tests.rewards.serving import serving
from tests.test_run import PROMPTS, likes_a, make, until
from workbench.errors import ConfigError
from workbench.run import Run

TASK = wb.tasks.from_list(PROMPTS, scorer=likes_a)


def rollouts(run: Run, step: int) -> int:
    return len([event for event in run.events if event.kind == "phase" and event.phase == "rollout" and event.data["step"] == step])


def test_a_service_that_is_killed_pauses_the_run_and_nothing_is_lost(free_process: None, small_model: Path, tmp_path: Path) -> None:
    with serving("serving:lengths") as server:
        places = wb.DeviceMap(actor="cpu", reward=server.url)
        run = make(small_model, tmp_path, devices=places, name="served", held_out=0, trackers=(), checkpoint_every=1)
        assert isinstance(run.plan.reward, wb.rewards.Service)
        run.plan.reward.backoff = 0.05
        (step,) = run.train(1)
        assert step.reward_numbers["tries"] == 1
        assert any(server.url in event.data["text"] for event in run.events if event.kind == "notice")  # where every role is
        assert [route.phase for route in run.routes if server.url in (route.source, route.target)] == ["reward", "reward"]
        assert list(run._training.batch.rewards) == [float(len(c.text)) for c in run._training.batch.completions]
        server.kill()
        run.start(2)
        until(lambda: run.state == "paused")
        server.start()
        run.wait()  # it asks again by itself
        assert [step.step for step in run.steps] == [1, 2, 3]
        assert rollouts(run, 2) == 1
        second = run.steps[1]
        assert second.rested_seconds > 0
        assert sum(second.phase_seconds.values()) <= second.seconds + 0.1
        assert second.phase_seconds["reward"] < second.rested_seconds
        run.close()
        again = Run.restore(run.path, task=TASK)  # the reward is in the map: it need not be handed in
        assert len(list(again.train(1))) == 1
        again.close()


def test_a_wrong_token_is_noticed_before_anything_is_loaded(small_model: Path, tmp_path: Path) -> None:
    with serving("serving:lengths", "--token", "right") as server:
        reward = wb.rewards.Service(server.url, token="wrong")
        run = make(small_model, tmp_path, devices=wb.DeviceMap(actor="cpu", reward=server.url), reward=reward, name="token")
        with pytest.raises(ConfigError, match="token"):
            list(run.train(1))
        assert not [event for event in run.events if event.kind == "progress" and event.data["what"] == "engine"]
        run.close()


def test_a_map_with_a_service_and_another_reward(small_model: Path, tmp_path: Path) -> None:
    places = wb.DeviceMap(actor="cpu", reward="http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"is the service at http://127\.0\.0\.1:9, and Run\(reward=likes_a\).*\n.*Weighted"):
        make(small_model, tmp_path, devices=places, reward=likes_a)
