"""A packed micro-batch to test on."""

import pytest
import torch

from workbench.algos import TokenTerms


@pytest.fixture
def make_tokens():
    """Random terms of packed completions in float64: (lengths, weight per completion, seed) -> (TokenTerms, sequence of each token)."""

    def make(lengths_N, weights_N, *, reference=True, seed=0):
        generator = torch.Generator().manual_seed(seed)
        count = int(lengths_N.sum())

        def noise(scale):
            return scale * torch.randn(count, generator=generator, dtype=torch.float64)

        old = -noise(1.0).abs()
        advantages_N = torch.randn(len(lengths_N), generator=generator, dtype=torch.float64)
        return TokenTerms(
            logp=(old + noise(0.3)).requires_grad_(),
            old_logp=old,
            engine_logp=old + noise(0.5),
            advantage=advantages_N.repeat_interleave(lengths_N),
            weight=weights_N.repeat_interleave(lengths_N),
            ref_logp=old + noise(0.2) if reference else None,
            sequence=torch.arange(len(lengths_N)).repeat_interleave(lengths_N),
        )

    return make
