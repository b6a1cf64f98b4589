"""Eight bits a weight: by hand, where they are used, and how near they stay."""

import pytest
import torch
from torch import nn

from workbench.rewards import RewardModel, tiny_reward_model
from workbench.rewards.models.int8 import Int8Linear, to_int8


def test_int8_by_hand():
    linear = nn.Linear(3, 2)
    linear.weight.data = torch.tensor([[1.27, -0.64, 0.0], [0.0, 0.0, 0.0]])
    linear.bias.data = torch.tensor([0.5, -1.0])
    small = Int8Linear(linear)
    assert small.q.tolist() == [[127, -64, 0], [0, 0, 0]]
    assert small(torch.tensor([[2.0, 1.0, 9.0]]))[0].tolist() == pytest.approx([2 * 1.27 - 0.64 + 0.5, -1.0])


def test_int8_leaves_the_head_and_no_other_linear_layer(tmp_path):
    reward = RewardModel(tiny_reward_model(tmp_path), dtype="int8")
    reward.prepare("cpu")
    model = reward._loaded.model
    assert [name for name, module in model.named_modules() if type(module) is nn.Linear] == ["score"]
    assert sum(isinstance(module, Int8Linear) for module in model.modules()) == 2 * 7
    assert {buffer.dtype for name, buffer in model.named_buffers() if name.endswith(".q")} == {torch.int8}


def test_int8_keeps_outputs_of_a_wide_layer():
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(512, 256))
    x = torch.randn(8, 512)
    before = layer(x).detach()
    after = to_int8(layer)(x).detach()
    assert float((after - before).norm() / before.norm()) < 0.01
