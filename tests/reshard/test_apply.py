"""Schedules carried out by one, two and four gloo processes, against the whole weights sliced."""

from functools import partial

import pytest
import torch
import torch.distributed as dist

from tests.models.crew import Crew
from tests.reshard.whole_weights import by_parameter, engine, parameters, shares, together, trained
from workbench.reshard.apply import Moved, apply
from workbench.reshard.lying import Ddp, Engine, Fsdp, Lying
from workbench.reshard.merge import plain
from workbench.reshard.schedule import schedule


def reshard(
    source: Lying, target: Engine, dtype: torch.dtype, tied: bool, bucket_bytes: int, rank: int, group: dist.ProcessGroup | None
) -> tuple[Moved, list[str]]:
    """What moved, and the engine's tensors that are not what they should be."""
    weights, plan = trained(dtype, tied=tied), schedule(parameters(dtype, tied=tied), source, target)
    wanted = engine(weights, target, rank) if rank < target.ranks else {}
    found = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
    read = plain(shares(weights, source, rank)) if rank < source.ranks else plain({})
    into = by_parameter(found, dtype, tied=tied) if found else {}
    moved = apply(plan, read, into, rank=rank, group=group, bucket_bytes=bucket_bytes)
    return moved, [name for name, tensor in wanted.items() if not torch.equal(found[name], tensor)]


def check_moved(crew: Crew, source: Lying, target: Engine, dtype: torch.dtype, *, tied: bool, bucket_bytes: int) -> None:
    """Every engine's tensor is right, and every rank moved what the schedule says within one bucket."""
    ranks = max(source.ranks, target.ranks)
    answers = crew.run(together, ranks, partial(reshard, source, target, dtype, tied, bucket_bytes))[4 - ranks :]
    assert [wrong for _, wrong in answers] == [[]] * ranks
    plan = schedule(parameters(dtype, tied=tied), source, target)
    moved = [one for one, _ in answers]
    assert [(one.received, one.sent, one.stayed) for one in moved] == [(load.received, load.sent, load.stays) for load in plan.loads]
    assert max(one.peak_bytes for one in moved) <= bucket_bytes


@pytest.mark.parametrize("target", [Engine(1, 4), Engine(2, 2), Engine(2, 2, strided=True), Engine(4)], ids=str)
@pytest.mark.parametrize("source", [Ddp(4), Fsdp(4)], ids=str)
@pytest.mark.parametrize(("dtype", "tied"), [(torch.bfloat16, True), (torch.float32, False)])
def test_four_ranks(crew: Crew, source: Lying, target: Engine, dtype: torch.dtype, tied: bool) -> None:
    check_moved(crew, source, target, dtype, tied=tied, bucket_bytes=2**20)
