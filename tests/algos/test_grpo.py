"""GRPO as a whole."""

import math

import pytest
import torch

from workbench.algos import GRPO, TokenTerms


def test_advantages_and_weights_follow_the_fields():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    a = math.sqrt(3) / 2
    assert GRPO().advantages(rewards)[0].tolist() == pytest.approx([a, -a, -a, a], rel=1e-5)
    assert GRPO(normalize_std=False).advantages(rewards)[0].tolist() == [0.5, -0.5, -0.5, 0.5]
    lengths = torch.tensor([1, 3])
    assert GRPO().weights(lengths, max_tokens=8).tolist() == pytest.approx([1 / 2, 1 / 6])
    assert GRPO(reduction="token").weights(lengths, max_tokens=8).tolist() == pytest.approx([1 / 4, 1 / 4])
    assert GRPO(reduction="constant").weights(lengths, max_tokens=8).tolist() == pytest.approx([1 / 16, 1 / 16])


def test_loss_uses_clip_kl_and_cap():
    x = torch.tensor([0.5], dtype=torch.float64).log()
    tokens = TokenTerms(
        logp=x + math.log(1.4),
        old_logp=x,
        engine_logp=x - math.log(3.0),
        advantage=torch.ones_like(x),
        weight=torch.ones_like(x),
        ref_logp=x,
    )
    # ratio 1.4 clipped at 1.3, importance 3 cut at 1.5; d = -ln 1.4: k2 = ln(1.4)²/2
    algo = GRPO(clip=(0.1, 0.3), kl=0.5, kl_estimator="k2", importance_cap=1.5)
    assert algo.loss(tokens).total.item() == pytest.approx(1.5 * -1.3 + 0.5 * math.log(1.4) ** 2 / 2)
    assert GRPO(clip=0.2, importance_cap=None).loss(tokens).total.item() == pytest.approx(-1.2)


@pytest.mark.parametrize("minibatches", [1, 4])
def test_learns_a_bandit(minibatches):
    """Four arms, one of them pays; on and off policy."""
    algo, generator = GRPO(group_size=16, minibatches=minibatches), torch.Generator().manual_seed(0)
    logits = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=0.5)
    for _ in range(30):
        old = logits.detach().log_softmax(0)
        arms = torch.multinomial(old.exp().expand(4, 4), algo.group_size, replacement=True, generator=generator)  # (B, G)
        advantages = algo.advantages((arms == 2).float())
        for rows in torch.arange(arms.numel()).chunk(minibatches):
            chosen, weight = arms.flatten()[rows], algo.weights(torch.ones(len(rows)), max_tokens=1)
            tokens = TokenTerms(logits.log_softmax(0)[chosen], old[chosen], old[chosen], advantages.flatten()[rows], weight)
            optimizer.zero_grad()
            algo.loss(tokens).total.backward()
            optimizer.step()
    assert logits.softmax(0)[2] > 0.9
