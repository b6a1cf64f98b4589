"""A small model's weights as a trainer has them and as an engine lays them, for tests that move them. No code of the package cuts here."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from workbench.reshard.lying import Ddp, Engine, Fsdp, Lying
from workbench.reshard.parameters import Block, Cut, Parameter, fuse

HIDDEN, HEADS, KEYS, HEAD, INNER, WORDS, PADDED = 12, 4, 2, 3, 20, 10, 16
Tensors = dict[str, torch.Tensor]
Body = Callable[[int, dist.ProcessGroup | None], object]


def parameters(dtype: torch.dtype, *, tied: bool) -> list[Parameter]:
    """Two layers; the norms are float32 whatever the rest is."""
    size = torch.finfo(dtype).bits // 8

    def cut(name: str, rows: int, columns: int = 0, dim: int = 0, block: Block | None = None) -> Parameter:
        shape = (rows, columns) if columns else (rows,)
        return Parameter(name, shape, size, Cut(dim, (block or Block(shape[dim]),)))

    words = Block(WORDS, padded=PADDED)
    found = [cut("embed", WORDS, HIDDEN, block=words)] + ([] if tied else [cut("head", WORDS, HIDDEN, block=words)])
    query, key = Block(HEADS * HEAD, HEADS), Block(KEYS * HEAD, KEYS, repeated=True)
    for layer in ("0.", "1."):
        rows = [("q", query), ("k", key), ("v", key)]
        found += fuse(layer + "qkv", [cut(layer + name, block.rows, HIDDEN, block=block) for name, block in rows])
        found += fuse(layer + "qkv.bias", [cut(layer + name + ".bias", block.rows, block=block) for name, block in rows])
        found += fuse(layer + "gate_up", [cut(layer + name, INNER, HIDDEN) for name in ("gate", "up")])
        found += [cut(layer + "o", HIDDEN, HEADS * HEAD, dim=1), cut(layer + "down", HIDDEN, INNER, dim=1)]
        found += [Parameter(layer + "norm", (HIDDEN,), 4)]
    return found


def trained(dtype: torch.dtype, *, tied: bool, seed: int = 1) -> Tensors:
    """All weights whole."""
    generator = torch.Generator().manual_seed(seed)
    return {
        one.name: torch.randn(one.shape, generator=generator).to(torch.float32 if one.name.endswith("norm") else dtype)
        for one in parameters(dtype, tied=tied)
    }


def shares(weights: Tensors, source: Lying, rank: int) -> Tensors:
    """What a trainer's rank holds: all, or torch's own chunk along the first dimension."""
    if isinstance(source, Ddp):
        return weights
    assert isinstance(source, Fsdp)
    chunks = {name: torch.chunk(weight, source.size) for name, weight in weights.items()}
    return {name: parts[rank].clone() for name, parts in chunks.items() if rank < len(parts)}


def engine(weights: Tensors, layout: Engine, rank: int) -> Tensors:
    """What an engine's rank has to hold, by its own names, sliced out of the whole weights."""
    shard = rank // layout.dp if layout.strided else rank % layout.tp
    found = {}
    for name in weights:
        layer, part = name[:2], name[2:]
        if name in ("embed", "head"):
            filled = torch.cat([weights[name], weights[name].new_zeros(PADDED - WORDS, HIDDEN)])
            found[name] = filled.chunk(layout.tp)[shard]
        elif part in ("q", "q.bias"):
            query, key, value = (weights[layer + kind + part[1:]] for kind in "qkv")
            copies = max(1, layout.tp // KEYS)
            grouped = [both.chunk(layout.tp // copies)[shard // copies] for both in (key, value)]
            found[layer + "qkv" + part[1:]] = torch.cat([query.chunk(layout.tp)[shard], *grouped])
        elif part == "gate":
            found[layer + "gate_up"] = torch.cat([weights[layer + kind].chunk(layout.tp)[shard] for kind in ("gate", "up")])
        elif part in ("o", "down"):
            found[name] = weights[name].chunk(layout.tp, dim=1)[shard]
        elif part == "norm":
            found[name] = weights[name]
    return {name: tensor.contiguous().clone() for name, tensor in found.items()}


def by_parameter(tensors: Tensors, dtype: torch.dtype, *, tied: bool) -> Tensors:
    """The engine's tensors by the trainer's names."""
    return {one.name: tensors[one.fused.into if one.fused else one.name] for one in parameters(dtype, tied=tied)}


def together(size: int, body: Body) -> object:
    """What ``body`` gives on each of the last ``size`` ranks of the world, numbered from 0 in a group of their own; None on the others."""
    first = dist.get_world_size() - size
    group = dist.new_group(list(range(first, first + size)))
    here = dist.get_rank() - first
    return body(here, group if size > 1 else None) if here >= 0 else None
