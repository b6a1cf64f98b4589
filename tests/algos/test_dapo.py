"""DAPO as a whole."""

import math
from dataclasses import replace

import pytest
import torch

from tests.algos.helpers import tensor
from workbench.algos import DAPO, GRPO, TokenTerms, informative_groups
from workbench.errors import ConfigError


@pytest.mark.parametrize(
    ("length", "punishment"),
    [(0, 0.0), (79, 0.0), (80, 0.0), (81, 1 / 20), (85, 5 / 20), (90, 0.5), (99, 19 / 20), (100, 1.0), (101, 1.0)],
)
def test_punishment_grows_over_the_last_part(length, punishment):
    """Equation 13 with L_max = 100 and L_cache = 20: ((100 - 20) - length) / 20 between 80 and 100."""
    shaped = DAPO(overlong_share=0.2).shaped(tensor(1.0)[None], torch.tensor([[length]]), None, 100)
    assert shaped.item() == pytest.approx(1 - punishment, abs=1e-14)


def test_punishment_of_the_paper():
    # 16384 tokens free, 4096 in which it grows, 20480 in all
    lengths = torch.tensor([[16384, 17408, 20480]])
    assert DAPO().shaped(torch.zeros(1, 3, dtype=torch.float64), lengths, None, 20480)[0].tolist() == pytest.approx([0, -0.25, -1])


def test_punishment_has_a_size_and_can_be_off():
    rewards, lengths = tensor(1.0, 1.0)[None], torch.tensor([[10, 5]])
    assert DAPO(overlong_penalty=0.5).shaped(rewards, lengths, None, 10)[0].tolist() == [0.5, 1.0]
    assert DAPO(overlong_penalty=0).shaped(rewards, lengths, None, 10).tolist() == rewards.tolist()


def test_an_unsolved_group_has_a_variance_only_after_the_punishment():
    """Why dynamic sampling looks at the rewards as they were scored."""
    rewards = torch.zeros(1, 2, dtype=torch.float64)
    assert not informative_groups(rewards).any()
    assert informative_groups(DAPO().shaped(rewards, torch.tensor([[10, 5]]), None, 10)).all()


def test_advantages_and_weights():
    a = math.sqrt(3) / 2
    assert DAPO().advantages(tensor(1.0, 0.0, 0.0, 1.0)[None])[0].tolist() == pytest.approx([a, -a, -a, a], rel=1e-5)
    assert DAPO().weights(torch.tensor([1, 3]), max_tokens=8).tolist() == pytest.approx([1 / 4, 1 / 4])


def test_clip_higher():
    # ratio 1.25: kept; 1.3: cut at 1.28; A < 0, ratio 0.75: cut at 0.8
    x = tensor(0.5, 0.5, 0.5).log()
    logp = (x + tensor(1.25, 1.3, 0.75).log()).requires_grad_()
    loss = DAPO().loss(TokenTerms(logp, x, x, tensor(1.0, 1.0, -1.0), torch.full_like(x, 1 / 3)))
    loss.total.backward()
    assert loss.total.item() == pytest.approx((-1.25 - 1.28 + 0.8) / 3)
    assert logp.grad.tolist() == pytest.approx([-1.25 / 3, 0.0, 0.0])
    assert loss.stats.clipped.item() == 2


def test_the_loss_is_grpos_with_these_settings(make_tokens):
    lengths = torch.tensor([3, 7])
    tokens = make_tokens(lengths, DAPO().weights(lengths, max_tokens=8))
    assert DAPO().loss(tokens).total.item() == GRPO(clip=(0.2, 0.28), reduction="token").loss(tokens).total.item()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sampling_rounds": 0}, r"sampling_rounds=0: it is how often a step may draw prompts"),
        ({"overlong_penalty": -1.0}, r"overlong_penalty=-1\.0: a weight"),
        ({"overlong_share": 0}, r"overlong_share=0: a share lies above 0 and at most at 1"),
        ({"overlong_share": 1.5}, r"overlong_share=1\.5"),
        ({"overlong_buffer_len": 4096}, r"fix: write overlong_share=\.\.\."),
        ({"max_num_gen_batches": 10}, r"fix: write sampling_rounds=\.\.\."),
    ],
)
def test_values_that_cannot_work(values, message):
    with pytest.raises(ConfigError, match=message):
        DAPO(**values)


def test_dynamic_sampling_is_on_and_is_a_knob():
    assert (DAPO().sampling_rounds, replace(DAPO(), sampling_rounds=1).sampling_rounds, GRPO().sampling_rounds) == (10, 1, 1)
    with pytest.raises(ConfigError, match=r"sampling_rounds='2'"):
        replace(DAPO(), sampling_rounds="2")
