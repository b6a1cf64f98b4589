"""Who listens to the collectives of a process on the CPU: gloo tells the profiler of each, but not over which group it goes."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.telemetry.profile import BARRIERS, ENGINE, NO_CALL, Mark, kind, named

TORCH = ("c10d", "_c10d_functional")
VLLM = "_C"  # on a CPU the ranks of an engine share memory
WITH_PEER = ("send", "recv", "broadcast", "reduce", "gather", "scatter")


class Listener(TorchDispatchMode):  # type: ignore[misc]  # torch is nothing that mypy reads
    """Within, each collective of this thread lies in a range of torch.profiler whose name tells its group, ranks and bytes.

    Every operator passes through here, which takes microseconds each. Not for GPUs: compiled layers would fall back to plain ones, and NCCL
    tells its groups by itself.
    """

    def __torch_dispatch__(self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """``func(*args)``."""
        if any(issubclass(one, DTensor) for one in types):
            return NotImplemented  # its collectives come by here once it has said which
        said = _heard(getattr(func, "namespace", ""), func.__name__.partition(".")[0], args)
        if said is None:
            return func(*args, **(kwargs or {}))
        with torch.profiler.record_function(str(said)):
            return func(*args, **(kwargs or {}))


def _heard(space: str, name: str, args: tuple[Any, ...]) -> Mark | None:
    """What is told of an operator; None where it is no call of a collective."""
    if space in TORCH and kind(name) not in NO_CALL and (group := _group(args)) is not None:
        return _of_torch(name, group, args)
    if space == VLLM and name.startswith("shm_"):  # its first argument is a handle
        sizes = [sum(tensor.nbytes for tensor in _tensors(arg)) for arg in args]
        return Mark(name.removeprefix("shm_"), ENGINE, (), max(sizes), sizes[1])
    return None


def _of_torch(name: str, group: dist.ProcessGroup, args: tuple[Any, ...]) -> Mark:
    ranks = dist.get_process_group_ranks(group)
    sides = [0] if kind(name) in BARRIERS else [sum(tensor.nbytes for tensor in _tensors(arg)) for arg in args[:2]]
    given = sides[1] if len(sides) > 1 and sides[1] else sides[0]  # of two sides c10d has first what comes out
    if name.startswith("all_gather_into_tensor"):  # the functional one has only the rank's part
        sides = [given * len(ranks)]
    numbers = [arg for arg in args if isinstance(arg, int) and not isinstance(arg, bool)]
    peer = ranks[numbers[0]] if kind(name) in WITH_PEER and numbers and 0 <= numbers[0] < len(ranks) else None
    label = named(group.group_desc, group.group_name)
    return Mark(name, label, tuple(ranks), max(sides), given, peer)


def _group(args: tuple[Any, ...]) -> dist.ProcessGroup | None:
    """The process group among the arguments: c10d's have it in a box, the functional ones its name as the last text."""
    boxed = next((arg for arg in args if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type())), None)
    if boxed is not None:
        return dist.ProcessGroup.unbox(boxed)
    names = [arg for arg in args if isinstance(arg, str)]
    return torch._C._distributed_c10d._resolve_process_group(names[-1]) if names else None


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
