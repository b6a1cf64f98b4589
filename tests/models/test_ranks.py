"""Who trains together: groups, sums, and what happens where somebody does not arrive. Four gloo processes."""

import time
from collections.abc import Iterator

import pytest
import torch

from tests.models.crew import Crew
from workbench.errors import CollectiveError, ConfigError
from workbench.models import ranks
from workbench.models.ranks import Ranks


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew(4)
    yield crew
    crew.close()


def groups_of_two() -> tuple[int, int, float, float, str]:
    ranks = Ranks.of_world(role="actor", tp=2)
    mine = torch.tensor(10.0**ranks.rank)
    sums = [float(ranks.sum(mine.clone(), purpose)) for purpose in ("tensor", "gradients")]
    return ranks.data_index, ranks.data_size, *sums, ranks.groups["gradients"].group_desc


def test_tensor_groups_are_consecutive_and_data_groups_strided(crew: Crew) -> None:
    assert crew.run(groups_of_two) == [
        (0, 2, 11.0, 101.0, "actor.gradients"),
        (0, 2, 11.0, 1010.0, "actor.gradients"),
        (1, 2, 1100.0, 101.0, "actor.gradients"),
        (1, 2, 1100.0, 1010.0, "actor.gradients"),
    ]


def summed() -> list[list[float]]:
    """Of three parameters in two precisions; the ranks from 2 on have no gradient of the second."""
    ranks = Ranks.of_world(role="actor")
    parameters = [torch.zeros(2), torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1, 1)]
    for number, parameter in enumerate(parameters):
        if number != 1 or ranks.rank < 2:
            parameter.grad = torch.full_like(parameter, (ranks.rank + 1) * 10**number)
    ranks.sum_gradients(parameters)
    return [parameter.grad.flatten().tolist() for parameter in parameters]


def test_gradients_are_added_up_and_none_is_nothing(crew: Crew) -> None:
    assert crew.run(summed) == [[[10.0, 10.0], [30.0], [1000.0]]] * 4


def test_no_more_gradients_are_copied_at_once_than_fill_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "BUCKET_BYTES", 16)
    tensors = [torch.zeros(2), torch.zeros(1, dtype=torch.bfloat16), torch.zeros(9), torch.zeros(2), torch.zeros(2), torch.zeros(1)]
    sizes = [[tensor.nbytes for tensor in bucket] for bucket in ranks._buckets(tensors)]
    assert sizes == [[2], [8], [36], [8, 8], [4]]


def agreed() -> list[str]:
    return Ranks.of_world(role="actor").agree(f"from {torch.distributed.get_rank()}")


def test_all_ranks_know_what_all_said(crew: Crew) -> None:
    assert crew.run(agreed) == [["from 0", "from 1", "from 2", "from 3"]] * 4


def waited() -> tuple[float, float]:
    ranks = Ranks.of_world(role="actor")
    for _ in range(2):  # the first meeting also makes connections
        before, began = ranks.waits.seconds, time.monotonic()
        time.sleep(0.3 if ranks.rank == 2 else 0.0)
        ranks.agree(None)
        ranks.sum(torch.zeros(1), "gradients")
        took, waits = time.monotonic() - began, ranks.waits.seconds - before
    return took - waits, waits


def test_waits_for_the_last_rank_are_counted_apart_from_work(crew: Crew) -> None:
    own, waits = zip(*crew.run(waited), strict=True)
    assert own[2] >= 0.3
    assert max(own[:2] + own[3:]) < 0.2
    assert min(waits[:2] + waits[3:]) > 0.2


def without(absent: tuple[int, ...]) -> tuple[str, float]:
    ranks = Ranks.of_world(role="actor", timeouts={"control": 1.0})
    began = time.monotonic()
    if ranks.rank in absent:
        return "absent", 0.0
    try:
        ranks.agree(None)
    except CollectiveError as error:
        return str(error), time.monotonic() - began
    return "all there", 0.0


def test_who_does_not_arrive_is_named_in_time(crew: Crew) -> None:
    (first, seconds), (second, _), (third, waited), (fourth, _) = crew.run(without, (1, 3))
    assert first.startswith("actor.control, rank 0: rank 1, 3 of 4 did not arrive within 1 s\n  fix: look at what that rank says")
    assert second == fourth == "absent"
    assert "rank 0 did not arrive, or found others missing" in third
    assert max(seconds, waited) < 5


def test_where_the_first_is_missing(crew: Crew) -> None:
    said = [text for text, _ in crew.run(without, (0,))]
    assert said[0] == "absent"
    assert all("rank 0 did not arrive, or found others missing within 1 s" in text for text in said[1:])


def refused() -> list[str]:
    said = []
    for options in ({"timeouts": {"gradient": 3.0}}, {"tp": 3}):
        try:
            Ranks.of_world(role="critic", **options)  # type: ignore[arg-type]
        except ConfigError as error:
            said.append(str(error))
    return said


def test_groups_that_cannot_be(crew: Crew) -> None:
    purpose, size = crew.run(refused)[0]
    assert "timeouts of critic: 'gradient': no group has this purpose\n  fix: use control, gradients, shards, tensor" in purpose
    assert "critic with tp=3: it has 4 ranks\n  fix: give it a multiple of 3 devices" in size


def test_alone_nobody_is_waited_for() -> None:
    ranks, parameter = Ranks.alone(), torch.zeros(1)
    ranks.sum_gradients([parameter])
    assert parameter.grad is None
    assert ranks.agree("mine") == ["mine"]
    assert ranks.waits.seconds == 0
