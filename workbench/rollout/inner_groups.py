"""Which of torch's ranks hold an engine of vLLM's together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from workbench.rollout.world import EngineRanks


@contextmanager
def groups_of(ranks: EngineRanks) -> Iterator[None]:
    """While engines start: their groups are those that ``ranks`` says, where these are not the consecutive ones that vLLM makes.

    vLLM counts through the world in the order of ranks, an engine after the other. Here the n-th that it counts is the n-th when the
    world is counted engine by engine; inside a group the order of ranks stays, so that a rank's shard is its place in its group.
    """
    if not ranks.strided:
        yield
        return
    from vllm.distributed import parallel_state

    plain, order = parallel_state.init_model_parallel_group, ranks.engine_by_engine

    def placed(group_ranks: Sequence[Sequence[int]], *args: Any, **how: Any) -> Any:
        return plain([[order[rank] for rank in group] for group in group_ranks], *args, **how)

    parallel_state.init_model_parallel_group = placed
    try:
        yield
    finally:
        parallel_state.init_model_parallel_group = plain
