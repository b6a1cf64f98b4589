"""What micro-batches join: only tokens that count, nothing of nothing."""

import torch

from tests.algos.helpers import tensor
from workbench.algos.sums import counted_max, counted_sum, joined

COUNTED = torch.tensor([True, False, True])


def test_only_what_counts():
    values = tensor(1.0, float("nan"), 2.5).requires_grad_()
    assert counted_sum(values, COUNTED).item() == 3.5
    assert counted_max(values, COUNTED).item() == 2.5
    assert not counted_sum(values, COUNTED).requires_grad
    assert counted_sum(torch.tensor([True, True, True]), COUNTED).item() == 2.0


def test_of_nothing():
    nothing = torch.zeros(0, dtype=torch.bool)
    assert (counted_sum(tensor(), nothing).item(), counted_max(tensor(), nothing).item()) == (0.0, 0.0)
    assert joined("kl", []).item() == 0.0


def test_sums_add_up_and_maxima_do_not():
    assert joined("kl", [torch.tensor(1.0), torch.tensor(3.0)]).item() == 4.0
    assert joined("importance_max", [torch.tensor(1.0), torch.tensor(3.0)]).item() == 3.0
