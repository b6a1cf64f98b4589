"""Parts and padded copies of a packed micro-batch; an algorithm's whole way from rewards to a loss."""

from dataclasses import fields, replace

import torch

from workbench.algos import (
    Algorithm,
    StepTokens,
    TokenTerms,
    checked_advantages,
    checked_shaped,
    checked_token_advantages,
)

# what stands in a padded place: finite, and far from anything that a completion has
JUNK = {"logp": 800.0, "old_logp": -900.0, "engine_logp": -3.0, "advantage": -5.0, "weight": 0.0, "ref_logp": 900.0, "sequence": 0}


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def pick(tokens, mask):
    """The part of ``tokens`` under ``mask``."""
    return TokenTerms(**{f.name: None if (v := getattr(tokens, f.name)) is None else v[mask] for f in fields(tokens)})


def padded(flat, lengths):
    """``flat`` as (B, L) with two columns more than needed, and the mask of its tokens."""
    mask = torch.arange(int(lengths.max()) + 2)[None] < lengths[:, None]
    values = {name: getattr(flat, name).detach() for name in JUNK}
    terms = {name: torch.full(mask.shape, JUNK[name], dtype=v.dtype).masked_scatter(mask, v) for name, v in values.items()}
    terms["logp"].requires_grad_()
    return TokenTerms(**terms), mask


def split_losses(loss_of, tokens, parts):
    """The losses of ``tokens`` in ``parts`` random micro-batches of whole completions, and the gradient that they add up to."""
    split = replace(tokens, logp=tokens.logp.detach().clone().requires_grad_())
    row_part = torch.randint(parts, (int(tokens.sequence.max()) + 1,), generator=torch.Generator().manual_seed(parts))
    losses = [loss_of(pick(split, row_part[tokens.sequence] == part)) for part in range(parts)]
    for loss in losses:
        loss.total.backward()
    return losses, split.logp.grad


def step_advantages(algo: Algorithm, rewards_BG, lengths_BG, *, kl_T=None, values_T=None, max_tokens=16):
    """Advantages per token (T,) by the algorithm's own hooks, in the order in which a step asks for them; a new critic says 0."""
    lengths_N = lengths_BG.flatten()
    sequence = torch.arange(len(lengths_N)).repeat_interleave(lengths_N)
    nothing_T, kl_BG = torch.zeros(len(sequence), dtype=torch.float64), None
    if algo.needs_reference:
        kl_T = nothing_T if kl_T is None else kl_T
        kl_BG = torch.zeros(len(lengths_N), dtype=torch.float64).index_add(0, sequence, kl_T).view_as(rewards_BG)
    shaped_BG = checked_shaped(algo, rewards_BG, lengths_BG, kl_BG, max_tokens)
    advantage = checked_advantages(algo, shaped_BG).flatten().repeat_interleave(lengths_N)
    values_T = nothing_T if values_T is None else values_T
    tokens = StepTokens(advantage, sequence, kl_T if algo.needs_reference else None, values_T if algo.needs_critic else None)
    return checked_token_advantages(algo, tokens)
