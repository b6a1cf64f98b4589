"""How a model lies over its ranks: whole on each (ddp), in shards gathered layer by layer (fsdp), or split by heads (tp).

What was asked is set up and then looked at: a model that lies otherwise is a LayoutError, before anything is trained with it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.errors import ConfigError, LayoutError
from workbench.models.ranks import Ranks
from workbench.models.shards import piece

SHARDINGS = ("FULL_SHARD", "SHARD_GRAD_OP")
STYLES = ("colwise", "rowwise")
# What stays whole: parameters whose gradient would be partial, of which a frozen base has none; and the embedding, which often is
# the output head too, from which log-probabilities are taken chunk by chunk.
WHOLE_STYLES = ("replicated_with_grad_allreduce", "embedding_rowwise", "colwise_gather_output")


@dataclass(frozen=True)
class Layout:
    """``kind``: ddp, fsdp or tp."""

    kind: str
    tp: int = 1
    sharding: str = "FULL_SHARD"

    @classmethod
    def parse(cls, text: str, sharding: str = "FULL_SHARD") -> "Layout":
        """ "ddp", "fsdp" or "tp=2"; ``sharding`` is fsdp's. Raises ConfigError on anything else."""
        found = re.fullmatch(r"(ddp|fsdp)|tp=([1-9]\d*)", text)
        if not found:
            raise ConfigError(f"layout={text!r}", "no layout is called so", "write 'ddp', 'fsdp' or 'tp=2'")
        if sharding not in SHARDINGS:
            raise ConfigError(f"sharding={sharding!r}", "fsdp has no such strategy here", f"write {' or '.join(SHARDINGS)}")
        return cls(found[1] or "tp", int(found[2] or 1), sharding)

    def over(self, ranks: Ranks) -> "Layout":
        """This layout on these ranks: one rank holds everything whole. Raises ConfigError where they were grouped for another tp."""
        if self.tp != ranks.tp:
            raise ConfigError(f"layout with tp={self.tp}", f"the ranks are grouped for tp={ranks.tp}", "give both the same")
        return self if ranks.size > 1 else Layout("ddp")

    @property
    def in_step(self) -> bool:
        """Whether a forward pass is a collective, so that every rank has to make as many of them."""
        return self.kind != "ddp"

    @property
    def purpose(self) -> str:
        """Which group of ranks holds the pieces of one model."""
        return "tensor" if self.kind == "tp" else "shards"

    @property
    def reshard(self) -> bool:
        """Whether fsdp drops a layer's gathered weights after its forward pass, and gathers them again for its backward pass."""
        return self.sharding == "FULL_SHARD"


# ---------------------------------------------------------------- fsdp


def shard_fully(root: torch.nn.Module, layers: Sequence[torch.nn.Module], layout: Layout, mesh: Any) -> None:
    """FSDP2 over ``mesh``: each of ``layers`` by itself, then what else is in ``root``. Moves the shards to the mesh's device.

    Not by ``Accelerator.prepare``: on a CPU that silently makes ddp of it. Gradients are summed over the ranks, not averaged, in
    float32.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    exact = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for module in (*layers, root):
        fully_shard(module, mesh=mesh, reshard_after_forward=layout.reshard, mp_policy=exact)
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # gloo has no other; NCCL then gives the same
    _verify_shards(root, layers, layout)


def drop_gathered(root: torch.nn.Module) -> None:
    """Drop the weights that fsdp has gathered; the next pass gathers them again."""
    from torch.distributed.fsdp import FSDPModule

    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _verify_shards(root: torch.nn.Module, layers: Sequence[torch.nn.Module], layout: Layout) -> None:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    asked = f"layout='fsdp', sharding={layout.sharding!r}"
    fix = "use layout='ddp', and report the versions of torch and transformers"
    for module in (*layers, root):
        if not isinstance(module, FSDPModule):
            raise LayoutError(asked, f"{type(module).__name__} is not sharded", fix)
        group = module._get_fsdp_state()._fsdp_param_group
        if group is not None and group._reshard_after_forward != layout.reshard:
            raise LayoutError(asked, f"{type(module).__name__} has reshard_after_forward={group._reshard_after_forward}", fix)
    for name, parameter in root.named_parameters():
        if not isinstance(parameter, DTensor) or not parameter.placements[0].is_shard():
            raise LayoutError(asked, f"{name} lies whole on every rank", fix)


# ---------------------------------------------------------------- tp


def split_by_heads(body: Any, tp: int, mesh: Any) -> None:
    """Tensor parallelism over ``mesh`` by transformers' plan for this family.

    Raises ConfigError on a family without a plan, on a plan with styles that adapters can't follow, and on sizes that ``tp``
    doesn't divide.
    """
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    body._tp_plan = _plan_of(body, tp)
    apply_tensor_parallelism(body, mesh)  # its second argument is the plan only in later versions
    _verify_split(body, tp)


def split_adapters(body: Any, tp: int, mesh: Any) -> None:
    """The adapters on ``body`` as their layers are split: B with the outputs of a colwise one, A with the inputs of a rowwise one.

    By hand: peft does the same in some versions and nothing in others. The other factor is whole on every rank, and so is its
    gradient, since what lies between the two is summed over the ranks.
    """
    from transformers.distributed.tensor_parallel import ALL_PARALLEL_STYLES

    for name, module in body.named_modules():
        style = _style_of(body, name)
        if style is None or not hasattr(module, "lora_A"):
            continue
        for factor in (module.lora_B if style == "colwise" else module.lora_A).values():
            ALL_PARALLEL_STYLES[style].shard_param(factor, "weight", mesh)
            ALL_PARALLEL_STYLES[style].install_forward(factor, mesh)
            _verify_factor(name, factor, style, tp)


def _style_of(body: Any, name: str) -> str | None:
    style: str | None = body._tp_plan.get(re.sub(r"\.\d+\.", ".*.", name))
    return style


def _plan_of(body: Any, tp: int) -> dict[str, str]:
    config = body.config.get_text_config()
    asked = f"layout='tp={tp}' of a {config.model_type} model"
    fix = "use layout='ddp' or 'fsdp'"
    plan = {name: style for name, style in body.tp_plan.items() if style not in WHOLE_STYLES}
    if not plan:
        raise ConfigError(asked, "transformers has no plan for this family", fix)
    strange = sorted(set(plan.values()) - set(STYLES))
    if strange:
        raise ConfigError(asked, f"its plan has {', '.join(strange)}, which adapters can't follow", fix)
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        if getattr(config, name) % tp:
            raise ConfigError(asked, f"its {name} is {getattr(config, name)}", f"use a tp that divides it, or {fix.removeprefix('use ')}")
    return plan


def _verify_split(body: Any, tp: int) -> None:
    """Every planned linear layer holds its part of the weight."""
    for name, module in body.named_modules():
        if (style := _style_of(body, name)) is not None:
            _verify_factor(name, module, style, tp)


def _verify_factor(name: str, linear: Any, style: str, tp: int) -> None:
    wanted = [linear.out_features, linear.in_features]
    wanted[STYLES.index(style)] //= tp
    held = list(piece(linear.weight).shape)
    if held != wanted:
        fix = "use layout='ddp', and report the versions of torch and transformers"
        raise LayoutError(f"layout='tp={tp}'", f"{name} holds {held} of its weight, and not {wanted}", fix)
