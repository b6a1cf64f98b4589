"""Another version behind the same name and address: servers that are ended and started again."""

import os

import pytest

from tests.rewards.serving import serving
from workbench.rewards import RewardModel, Service, score_all, tiny_reward_model

BLOCK = f"wb-test-versions-{os.getpid()}"
ROWS = [("prompt", "completion", None), ("prompt", "other", None)]


def again(server):
    assert server.end() == 0
    server.start()


def test_a_function_whose_file_was_edited(tmp_path):
    file = tmp_path / "scoring.py"
    file.write_text("def reward(prompt, completion, answer):\n    return 1.0\n")
    with serving("scoring:reward", folder=tmp_path) as server:
        service = Service(server.url, backoff=0.05)
        assert service.score(ROWS) == [1.0, 1.0]
        first = service.model
        assert first.startswith("scoring:reward@")
        again(server)
        assert service.score(ROWS) == [1.0, 1.0]
        assert (service.model, service.numbers()["model_changed"]) == (first, 0.0)
        file.write_text("def reward(prompt, completion, answer):\n    return 22.0\n")
        again(server)
        assert service.score(ROWS) == [22.0, 22.0]
        assert service.numbers()["model_changed"] == 1.0
        assert service.model.startswith("scoring:reward@")
        service.score(ROWS)
        assert service.numbers()["model_changed"] == 0.0, "told once"


def test_other_weights_in_the_same_folder(tmp_path):
    """Also through shared memory, where the client has the tokenizer of the model that was there before: here one without a template."""
    tiny_reward_model(tmp_path, seed=0)
    with serving(tmp_path, "--dtype", "float32", "--shared-mem", BLOCK, "--shared-mem-mib", 1) as server:
        services = [Service(server.url, backoff=0.05), Service(server.url, backoff=0.05, shared_mem_name=BLOCK)]
        before = [service.score(ROWS) for service in services]
        tiny_reward_model(tmp_path, seed=1, chat=True)
        again(server)
        expected = score_all(RewardModel(tmp_path, dtype="float32"), ROWS)
        for service, scores in zip(services, before, strict=True):
            now = service.score(ROWS)
            assert service.numbers()["model_changed"] == 1.0
            assert now == pytest.approx(expected, abs=1e-5)
            assert now != pytest.approx(scores, abs=1e-3)
            assert service.model == f"{tmp_path}@{RewardModel(tmp_path, dtype='float32').fingerprint()}"
