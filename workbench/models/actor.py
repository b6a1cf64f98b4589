"""The policy in training: one frozen base with a LoRA adapter, accelerate around it, packed micro-batches through it."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from workbench.algos import Algorithm, LossStats, LossSummary, TokenTerms, checked_loss
from workbench.errors import ConfigError, DivergedError, Stopped
from workbench.models.logprobs import token_logp
from workbench.models.lora import LoRA, add_adapter, load_base
from workbench.models.optimizer import Masters, Optimizer
from workbench.models.packing import Packed, Row, micro_batches, pack

# Fused, W·x + B·A·x is rounded to bfloat16 once; the engine, as plain layers do, rounds W·x first, and a small B·A·x is lost in the
# addition. A trainer that is more exact than the engine trains another policy than the one that samples (docs/log.md).
ROUNDS_AS_THE_ENGINE = {"emulate_precision_casts": True}
COMPILING_PAYS = 50_000  # tokens scored at once; below, seconds of compiling would save milliseconds


@dataclass(frozen=True)
class ActorPlan:
    """Everything the actor is built from."""

    model: Path
    lora: LoRA
    optimizer: Optimizer
    device: str  # "cpu" or "cuda"
    dtype: str  # "float32" or "bfloat16"
    seed: int


@dataclass(frozen=True)
class Experience:
    """What the actor learns from: N rows, and one value per response token of each."""

    rows: Sequence[Row]
    engine_logp: Sequence[Sequence[float]]
    advantages: Sequence[torch.Tensor]  # (length,) each: one value per response token
    ref_logp: Sequence[torch.Tensor] | None
    temperature: float
    max_tokens: int


@dataclass(frozen=True)
class Update:
    """What came of it."""

    summary: LossSummary
    grad_norm: float
    tokens: int  # that went through the model, prompts included
    optimizer_steps: int


class Actor:
    """Trains the adapter; gives log-probabilities with it and without it (that is the reference)."""

    def __init__(self, plan: ActorPlan) -> None:
        from accelerate import Accelerator

        self.plan = plan
        # given, so that no variable of the environment divides the gradient
        self.accelerator = Accelerator(cpu=plan.device == "cpu", gradient_accumulation_steps=1)
        self.updates = 0  # optimizer steps so far; counted before each, so that a broken-off one counts too
        self.device = self.accelerator.device
        base = load_base(plan.model, self.device, getattr(torch, plan.dtype))
        self.model = add_adapter(base, plan.lora, plan.seed)
        if self.device.type == "cuda":
            # the first layer's input needs no gradient; letting it have one saves compiling that layer apart
            self.model.enable_input_require_grads()
            for layer in base.base_model.layers:
                layer.compile(dynamic=True, options=ROUNDS_AS_THE_ENGINE)
        self.masters = Masters([p for p in self.model.parameters() if p.requires_grad])
        optimizer = torch.optim.AdamW(
            self.masters.parameters, lr=plan.optimizer.learning_rate, betas=plan.optimizer.betas, weight_decay=plan.optimizer.weight_decay
        )
        self.optimizer = self.accelerator.prepare(optimizer)
        self.budget = plan.optimizer.token_budget or (8192 if self.device.type == "cuda" else 4096)

    # ------------------------------------------------------------ log-probabilities

    def logp(self, packed: Packed, temperature: float) -> torch.Tensor:
        """Log-probability of every response token of a micro-batch: (R,) float32, with gradient where it is enabled."""
        body = self.model.get_base_model()
        hidden = body.base_model(
            input_ids=packed.ids,
            position_ids=packed.positions,
            use_cache=False,
            row_starts=packed.starts,
            row_longest=packed.longest,
        ).last_hidden_state[0]
        return token_logp(hidden[packed.source], body.get_output_embeddings().weight, packed.target, temperature)

    @torch.no_grad()
    def score(
        self, rows: Sequence[Row], temperature: float, *, adapter: bool = True, should_stop: Callable[[], bool] = lambda: False
    ) -> list[torch.Tensor]:
        """Log-probabilities of each row's response, without gradient: one (length,) float32 tensor a row."""
        out: list[torch.Tensor] = [torch.empty(0)] * len(rows)
        stance = "default" if sum(map(len, rows)) > COMPILING_PAYS else "force_eager"
        off = nullcontext() if adapter else self.model.disable_adapter()  # the clean base, bit for bit
        with torch.compiler.set_stance(stance), off:
            for packed in self._packed(rows, range(len(rows)), should_stop):
                parts = self.logp(packed, temperature).split(packed.lengths)
                for row, part in zip(packed.rows, parts, strict=True):
                    out[row] = part
        return out

    def _packed(self, rows: Sequence[Row], chosen: Sequence[int], should_stop: Callable[[], bool]) -> Iterator[Packed]:
        for batch in micro_batches([len(rows[r]) for r in chosen], self.budget):
            if should_stop():
                raise Stopped("update")
            yield pack(rows, [chosen[i] for i in batch], self.device)

    # ------------------------------------------------------------ learning

    def update(
        self,
        data: Experience,
        algo: Algorithm,
        learning_rate: float,
        *,
        check: Callable[[LossSummary], None] = lambda summary: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Update:
        """One rollout's optimizer steps. ``check`` sees each one's statistics before it is applied, and may raise.

        On policy (one minibatch) the log-probabilities of the old policy are those of the pass with gradient, detached;
        no second pass is made. A stop drops the gradients of the optimizer step that it falls into; steps already made stay.
        Raises DivergedError on a gradient that is not finite, before it is applied.
        """
        parts = _split(len(data.rows), algo.minibatches)
        later = [r for part in parts[1:] for r in part]
        old = dict(zip(later, self.score([data.rows[r] for r in later], data.temperature, should_stop=should_stop), strict=True))
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        statistics, norms, tokens = [], [], 0
        for part in parts:
            self.optimizer.zero_grad()
            stats, count = self._accumulate(data, algo, part, old, should_stop)
            if count == 0:
                continue
            check(stats.summary())
            norms.append(self._clipped_norm())
            self.updates += 1
            self.optimizer.step()
            self.masters.write_back()
            statistics.append(stats)
            tokens += count
        self.optimizer.zero_grad()
        summary = LossStats.merge(statistics).summary()
        # the losses of several optimizer steps add up in the statistics
        summary = replace(summary, loss=summary.loss / max(1, len(norms)))
        return Update(summary, sum(norms) / max(1, len(norms)), tokens, len(norms))

    def _clipped_norm(self) -> float:
        """Clip the gradient; its norm before. Raises DivergedError where it is not finite."""
        norm = float(self.accelerator.clip_grad_norm_(self.masters.parameters, self.plan.optimizer.clip_norm))
        if not math.isfinite(norm):
            self.optimizer.zero_grad()
            fix = "a smaller learning rate; if it is the first step, look for NaN in the algorithm's loss"
            raise DivergedError("update of the actor", f"the gradient's norm is {norm}", fix)
        return norm

    def _accumulate(
        self, data: Experience, algo: Algorithm, part: Sequence[int], old: dict[int, torch.Tensor], should_stop: Callable[[], bool]
    ) -> tuple[LossStats, int]:
        """Gradients of one optimizer step; returns its statistics and the tokens that went through the model."""
        lengths = torch.tensor([len(data.rows[r].response) for r in part])
        weight = dict(zip(part, algo.weights(lengths, data.max_tokens).tolist(), strict=True))
        chosen = [r for r in part if not algo.skips_zero_advantage or bool(data.advantages[r].any())]
        statistics, tokens = [], 0
        for packed in self._packed(data.rows, chosen, should_stop):
            logp = self.logp(packed, data.temperature)
            loss = checked_loss(algo, self._terms(packed, logp, data, weight, old))
            self.accelerator.backward(loss.total)
            statistics.append(loss.stats)
            tokens += packed.ids.numel()
        return LossStats.merge(statistics), tokens

    def _terms(
        self, packed: Packed, logp: torch.Tensor, data: Experience, weight: dict[int, float], old: dict[int, torch.Tensor]
    ) -> TokenTerms:
        repeat = torch.tensor(packed.lengths)

        rows = packed.rows
        engine_logp = torch.tensor([x for r in rows for x in data.engine_logp[r]], dtype=torch.float32)
        return TokenTerms(
            logp=logp,
            old_logp=torch.cat([old[r] for r in rows]) if rows[0] in old else logp.detach(),
            engine_logp=engine_logp.to(logp.device, non_blocking=True),
            advantage=torch.cat([data.advantages[r] for r in rows]).float().to(logp.device, non_blocking=True),
            weight=torch.tensor([weight[r] for r in rows]).repeat_interleave(repeat).to(logp.device, non_blocking=True),
            ref_logp=None if data.ref_logp is None else torch.cat([data.ref_logp[r] for r in rows]),
            sequence=torch.arange(len(rows)).repeat_interleave(repeat).to(logp.device, non_blocking=True),
        )

    # ------------------------------------------------------------ the adapter

    def adapter(self) -> dict[str, torch.Tensor]:
        """The adapter's tensors by their names in a peft checkpoint (the live ones, no copies)."""
        from peft import get_peft_model_state_dict

        tensors: dict[str, torch.Tensor] = get_peft_model_state_dict(self.model)
        return tensors

    def adapter_config(self) -> dict[str, Any]:
        """The adapter's configuration as peft writes it."""
        config: dict[str, Any] = self.model.peft_config["default"].to_dict()
        return config

    def trainer_state(self) -> dict[str, torch.Tensor]:
        """What training goes on from, on the CPU: ``weight.NAME`` (float32) and, after an update, Adam's ``exp_avg.NAME`` and so on."""
        moments = self.optimizer.state_dict()["state"]
        state = {}
        for number, (name, master) in enumerate(self._named_masters().items()):
            state[f"weight.{name}"] = master.detach()
            state.update({f"{kind}.{name}": value for kind, value in moments.get(number, {}).items()})
        return {name: tensor.to("cpu", copy=True).contiguous() for name, tensor in state.items()}

    @torch.no_grad()
    def load_trainer_state(self, state: dict[str, torch.Tensor], updates: int) -> None:
        """Take over what ``trainer_state`` gave after ``updates`` optimizer steps. Raises ConfigError where it is another adapter's."""
        masters = self._named_masters()
        saved = {name.removeprefix("weight."): value for name, value in state.items() if name.startswith("weight.")}
        if {n: v.shape for n, v in saved.items()} != {n: v.shape for n, v in masters.items()}:
            found = "it belongs to another model or LoRA"
            raise ConfigError("load the trainer's state", found, "restore with the model and LoRA of the run")
        whole = self.optimizer.state_dict()
        whole["state"] = {}
        for number, (name, master) in enumerate(masters.items()):
            master.copy_(saved[name])
            kinds = {key.split(".", 1)[0]: value for key, value in state.items() if key.split(".", 1)[1] == name}
            del kinds["weight"]
            if kinds:
                whole["state"][number] = kinds
        self.optimizer.load_state_dict(whole)
        self.masters.write_back()
        self.updates = updates

    def _named_masters(self) -> dict[str, torch.Tensor]:
        names = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        return dict(zip(names, self.masters.parameters, strict=True))

    def is_finite(self) -> bool:
        """Whether every weight of the adapter is a finite number."""
        return bool(torch.stack([tensor.isfinite().all() for tensor in self.adapter().values()]).all())

    def save(self, path: Path) -> None:
        """Write the adapter in peft's format: ``PeftModel.from_pretrained`` and vLLM read it. Raises OSError, also on a full disk."""
        from safetensors import SafetensorError

        try:
            self.model.save_pretrained(path)
        except SafetensorError as error:  # so it calls a full disk
            raise OSError(str(error)) from error


def _split(count: int, parts: int) -> list[range]:
    """0..count-1 in ``parts`` runs of nearly equal length."""
    cuts = [count * i // parts for i in range(parts + 1)]
    return [range(a, b) for a, b in pairwise(cuts) if b > a]
