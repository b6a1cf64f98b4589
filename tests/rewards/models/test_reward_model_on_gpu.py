"""A reward model on a GPU, in both of its types there, against float32 on the CPU. ``make test ARGS="-m gpu"``."""

import pytest
import torch

from workbench.rewards import RewardModel, score_all, tiny_reward_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
ROWS = [(f"sort {'cab' * n}=", "abc" * n, None) for n in range(1, 33)]


@pytest.mark.parametrize(("dtype", "near"), [("bfloat16", 0.05), ("int8", 0.1)])
def test_scores_are_the_cpus(tmp_path, dtype, near):
    folder = tiny_reward_model(tmp_path)
    wanted = torch.tensor(score_all(RewardModel(folder, dtype="float32"), ROWS))
    reward = RewardModel(folder, dtype=dtype, batch_tokens=500)
    reward.prepare("cuda")
    assert {tensor.device.type for tensor in reward._loaded.model.state_dict().values()} == {"cuda"}
    scores = torch.tensor(score_all(reward, ROWS))
    assert float((scores - wanted).norm() / (wanted - wanted.mean()).norm()) < near
