"""One optimizer over some parameters of a base: gradients summed over the ranks, clipped, applied. Actor and critic each have one."""

import math
from collections.abc import Mapping

import torch

from workbench.errors import ConfigError, DivergedError
from workbench.models.base import Base
from workbench.models.compression import Carrier
from workbench.models.optimizer import Masters, Optimizer
from workbench.models.shards import is_shard, piece_as, whole_as


class Learner:
    """AdamW on the float32 masters of ``parameters`` (by name) of ``base``. Every rank makes the same calls.

    Gradients of the ranks are added up, not averaged: losses are weighed over the rows of all ranks.
    """

    def __init__(self, base: Base, parameters: Mapping[str, torch.nn.Parameter], plan: Optimizer, compression: str | None = None) -> None:
        self.base, self.plan, self.named = base, plan, dict(parameters)
        self.masters = Masters(list(parameters.values()))
        self.steps = 0  # so far; counted before each, so that a broken-off one counts too
        self.optimizer = base.accelerator.prepare(
            torch.optim.AdamW(self.masters.parameters, lr=plan.learning_rate, betas=plan.betas, weight_decay=plan.weight_decay)
        )
        self.carrier = Carrier(self.masters.parameters, base.accelerator) if compression else None

    def set_rate(self, rate: float) -> None:
        """The learning rate of the steps that follow."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def clear(self) -> None:
        """Drop the gradients."""
        self.optimizer.zero_grad()

    def sum_gradients(self) -> None:
        """Add up the gradients of the ranks that saw different rows; fsdp has done so in each backward pass for what lies in pieces."""
        if self.carrier is not None:
            self.carrier.sum_gradients(self.masters.parameters)
            return
        done = self.base.layout.kind == "fsdp"
        pairs = zip(self.named.values(), self.masters.parameters, strict=True)
        self.base.ranks.sum_gradients([master for parameter, master in pairs if not (done and is_shard(parameter))])

    def clip(self, doing: str) -> float:
        """Clip the gradient; its norm before, over all ranks. Raises DivergedError, on all ranks alike, where it is not finite."""
        norm = self._clipped_norm()
        if not math.isfinite(norm):
            self.clear()
            fix = "a smaller learning rate; if it is the first step, look for NaN in the algorithm's loss"
            raise DivergedError(doing, f"the gradient's norm is {norm}", fix)
        return norm

    def step(self) -> None:
        """Apply the gradients."""
        self.steps += 1
        self.optimizer.step()
        self.masters.write_back()

    def _clipped_norm(self) -> float:
        if not any(map(is_shard, self.named.values())):
            return float(self.base.accelerator.clip_grad_norm_(self.masters.parameters, self.plan.clip_norm))
        # pieces are counted on the rank that has them, and what all ranks hold once
        squares = torch.zeros(2, dtype=torch.float64, device=self.base.device)
        for parameter, master in zip(self.named.values(), self.masters.parameters, strict=True):
            if master.grad is not None:
                squares[int(is_shard(parameter))] += master.grad.double().square().sum()
        total = (squares[0] + self.base.ranks.sum(squares[1], self.base.layout.purpose)).sqrt().float()
        torch.nn.utils.clip_grads_with_norm_(self.masters.parameters, self.plan.clip_norm, total)
        return float(total)

    def whole_gradients(self) -> dict[str, torch.Tensor]:
        """The gradients as they are, by name, whole on every rank; each of them has to call this. For a look and for tests."""
        masters = zip(self.named.items(), self.masters.parameters, strict=True)
        return {name: whole_as(torch.zeros_like(m) if m.grad is None else m.grad, like) for (name, like), m in masters}

    # ------------------------------------------------------------ what training goes on from

    def state(self, *, keep: bool = True) -> dict[str, torch.Tensor]:
        """``weight.NAME`` (float32) and, after a step, Adam's ``exp_avg.NAME`` and so on: whole, on the CPU, the same in every layout.

        Every rank has to call this; with ``keep`` False this one takes part and gets nothing: of all weights it is 12 bytes a parameter.
        """
        moments = self.optimizer.state_dict()["state"]
        state = {}
        for number, ((name, like), master) in enumerate(zip(self.named.items(), self.masters.parameters, strict=True)):
            pieces = {"weight": master.detach(), **moments.get(number, {})}
            for kind, tensor in pieces.items():
                is_one_number = tensor.shape != master.shape  # Adam's count of steps
                full = tensor if is_one_number else whole_as(tensor.to(self.base.device), like)
                if keep:
                    state[f"{kind}.{name}"] = full.to("cpu", copy=True).contiguous()
        return state

    @torch.no_grad()
    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take over what ``state`` gave, in whatever layout. Raises ConfigError where it is of other parameters."""
        saved = {name.removeprefix("weight."): value for name, value in state.items() if name.startswith("weight.")}
        if {n: v.shape for n, v in saved.items()} != {n: v.shape for n, v in self.named.items()}:
            found = "it belongs to another model or LoRA"
            raise ConfigError("load the trainer's state", found, "restore with the model and LoRA of the run")
        taken = self.optimizer.state_dict()
        taken["state"] = {}
        for number, ((name, like), master) in enumerate(zip(self.named.items(), self.masters.parameters, strict=True)):
            master.copy_(self._mine(saved[name], like))
            kinds = {key.split(".", 1)[0]: value for key, value in state.items() if key.split(".", 1)[1] == name}
            del kinds["weight"]
            if kinds:  # copies: the optimizer works in place on what it is given
                taken["state"][number] = {kind: self._mine(value, like).clone() for kind, value in kinds.items()}
        self.optimizer.load_state_dict(taken)
        self.masters.write_back()

    def _mine(self, value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """This rank's piece of a checkpoint's tensor; a single number (Adam's count of steps) stays where it is."""
        return piece_as(value.to(self.base.device), like) if value.shape == like.shape else value
