"""Where the model's parameters lie in an engine's tensors; and the engine's storage as the trainer's own (``zero_copy``)."""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist

from workbench.errors import ConfigError
from workbench.reshard.apply import apply, at
from workbench.reshard.lying import Ddp
from workbench.reshard.lying import Engine as Engines
from workbench.reshard.parameters import Block, Cut, Parameter, fuse
from workbench.reshard.schedule import Copy, schedule
from workbench.rollout.engine import Engine
from workbench.rollout.tensors import Laid


def parameters_of(laid: Laid, tensor: torch.Tensor) -> tuple[Parameter, ...]:
    """What lies in one of the engine's tensors, as a schedule has to know it. ``tensor``: this rank's."""
    size = tensor.element_size()
    dim = laid.dim
    if dim is None:
        return tuple(Parameter(name, tuple(tensor.shape), size) for name in laid.parameters)
    cut = []
    for name, parts in laid.parameters.items():
        blocks = tuple(Block(part.rows, part.heads, part.repeated, part.padded) for part in parts)
        shape = (*tensor.shape[:dim], sum(part.rows for part in parts), *tensor.shape[dim + 1 :])
        cut.append(Parameter(name, shape, size, Cut(dim, blocks)))
    return fuse(laid.tensor, cut) if len(cut) > 1 else tuple(cut)


def lent(engine: Engine) -> dict[str, torch.Tensor]:
    """This rank's weights for a trainer that is split as the engine is, by transformers' names: views on the engine's tensors.

    A trainer of several ranks keeps its vocabulary whole on each, and an engine does not: those weights are gathered into tensors of
    their own. Every rank has to call this.
    """
    laid, tensors, tp = engine.laid(), engine.tensors(), engine.plan.tp
    vocabulary = [one for one in laid if tp > 1 and one.is_vocabulary]
    found = {name: view for one in laid if one not in vocabulary for name, view in _views(one, tensors[one.tensor], engine).items()}
    return found | (_whole(vocabulary, tensors, engine) if vocabulary else {})


def _views(laid: Laid, tensor: torch.Tensor, engine: Engine) -> dict[str, torch.Tensor]:
    """This rank's part of each parameter. Raises ConfigError where it is not one slice of the engine's tensor."""
    rank, tp, views = engine.ranks.rank % engine.plan.tp, engine.plan.tp, {}
    for parameter in parameters_of(laid, tensor):
        pieces = parameter.share(rank, tp, fused=True).pieces
        if tp > 1 and len(pieces) > 1:
            found = f"{parameter.name} is cut in {len(pieces)} parts there, each by itself, and the trainer cuts it in one"
            raise ConfigError(f"a base on the storage of an engine of tp={tp}", found, "mode: merged or adapter")
        first, last = pieces[0].local, pieces[-1].local
        views[parameter.name] = tensor[tuple(slice(a, b) for (a, _), (_, b) in zip(first, last, strict=True))]
    return views


def _whole(laid: Sequence[Laid], tensors: Mapping[str, torch.Tensor], engine: Engine) -> dict[str, torch.Tensor]:
    """The parameters of ``laid``, whole on every rank."""
    parameters = [parameter for one in laid for parameter in parameters_of(one, tensors[one.tensor])]
    held = {name: tensors[one.tensor] for one in laid for name in one.parameters}
    found = {parameter.name: held[parameter.name].new_empty(parameter.shape) for parameter in parameters}

    def read(copy: Copy) -> torch.Tensor:
        return held[copy.parameter][at(copy.source_slice)]

    ranks = engine.ranks
    way = schedule(parameters, Engines(ranks.tp, ranks.copies), Ddp(ranks.world))
    apply(way, read, found, rank=ranks.rank, group=dist.group.WORLD)
    return found
