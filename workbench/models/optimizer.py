"""Adam on float32 masters of whatever precision the adapter computes in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from workbench.errors import ConfigError, check_kind, spelled
from workbench.models.shards import piece


@spelled(lr="learning_rate", max_grad_norm="clip_norm", grad_clip="clip_norm", warmup="warmup_steps")
@dataclass(frozen=True)
class Optimizer:
    """AdamW (arXiv 1711.05101) with a constant rate, or one that falls linearly over all steps asked for, after a linear warm-up.

    ``token_budget``: tokens of one packed micro-batch, the trainer's memory knob; None: 4096 on a CPU, 8192 on a GPU.
    """

    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    warmup_steps: int = 0
    decay: bool = False  # linearly, to 1/n of the rate at the last of n steps
    token_budget: int | None = None

    def __post_init__(self) -> None:
        check_kind("Optimizer: learning_rate", self.learning_rate, float, "a number such as 1e-4 (YAML wants 1.0e-4)")
        check_kind("Optimizer: clip_norm", self.clip_norm, float, "a number such as 1.0")
        if not self.learning_rate > 0:
            raise ConfigError(
                f"Optimizer(learning_rate={self.learning_rate})",
                "the rate has to be above 0",
                "write 1e-4, say; adapters take 10 times what full weights do",
            )
        if self.token_budget is not None and self.token_budget < 1:
            raise ConfigError(
                f"Optimizer(token_budget={self.token_budget})", "a micro-batch holds at least one token", "leave it out for the default"
            )
        check_kind("Optimizer: warmup_steps", self.warmup_steps, int, "a number of steps, 0 for none")
        check_kind("Optimizer: weight_decay", self.weight_decay, float, "a number such as 0.01, 0 for none")
        if self.warmup_steps < 0 or self.weight_decay < 0:
            asked = f"Optimizer(warmup_steps={self.warmup_steps}, weight_decay={self.weight_decay})"
            raise ConfigError(asked, "neither can be negative", "give 0 for none")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"Optimizer(betas={self.betas})", "Adam takes two numbers from 0 to below 1", "leave them at (0.9, 0.95)")
        if not self.clip_norm > 0:
            raise ConfigError(f"Optimizer(clip_norm={self.clip_norm})", "gradients are scaled down to this norm", "write 1.0")

    def rate(self, step: int, steps: int | None) -> float:
        """The learning rate of ``step`` (from 1) in a run of ``steps`` (None: not known, no decay)."""
        warm = min(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0
        left = 1.0 - (step - 1) / steps if self.decay and steps else 1.0
        return self.learning_rate * warm * max(left, 0.0)


class Masters:
    """What the optimizer sees of the trained parameters: float32, and of a parameter in pieces this rank's piece.

    In bfloat16 a weight of 1 swallows an update below 0.004, so Adam must not work on it: it works on float32 copies, which the
    parameters get back, rounded. Gradients of micro-batches are added up in float32 too. A float32 parameter of which this
    process holds everything is its own master; the master of a float32 piece shares the piece's memory.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self.trained = list(parameters)
        self.parameters = [_master_of(parameter) for parameter in parameters]
        self.pairs = [(p, m) for p, m in zip(self.trained, self.parameters, strict=True) if p is not m]
        for parameter, master in self.pairs:
            active = parameter.requires_grad  # peft turns it off for adapters that wait
            parameter.requires_grad_(True).register_post_accumulate_grad_hook(_collector(master))
            parameter.requires_grad_(active)

    @torch.no_grad()
    def write_back(self) -> None:
        """Round the masters into the parameters."""
        apart = [(piece(p), m) for p, m in self.pairs if p.dtype != m.dtype]
        if apart:
            pieces, masters = zip(*apart, strict=True)
            torch._foreach_copy_(list(pieces), list(masters))


def _master_of(parameter: torch.nn.Parameter) -> torch.nn.Parameter:
    mine = piece(parameter)
    return parameter if mine is parameter and mine.dtype == torch.float32 else torch.nn.Parameter(mine.detach().float())


def _collector(master: torch.nn.Parameter) -> Any:
    def collect(parameter: torch.Tensor) -> None:
        grad, parameter.grad = parameter.grad, None
        if grad is not None:
            mine = piece(grad).to(master.dtype)
            master.grad = mine if master.grad is None else master.grad.add_(mine)

    return collect
