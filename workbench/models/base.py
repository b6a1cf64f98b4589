"""The frozen model over its ranks, with adapters or without: log-probabilities of given tokens. A reference is nothing else."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from workbench.errors import ConfigError, Stopped
from workbench.models.borrow import borrow
from workbench.models.layouts import Layout, drop_gathered, shard_fully, split_adapters, split_by_heads
from workbench.models.logprobs import token_logp
from workbench.models.lora import LoRA, add_adapter, load_base
from workbench.models.packing import Packed, Row, micro_batches, pack
from workbench.models.ranks import Ranks
from workbench.models.shards import whole
from workbench.models.weights import named, pieces
from workbench.quiet import no_bars

# Fused, W·x + B·A·x is rounded to bfloat16 once; the engine, as plain layers do, rounds W·x first, and a small B·A·x is lost in the
# addition. A trainer that is more exact than the engine trains another policy than the one that samples (docs/log.md).
ROUNDS_AS_THE_ENGINE = {"emulate_precision_casts": True}
COMPILING_PAYS = 50_000  # tokens scored at once; below, seconds of compiling would save milliseconds


@dataclass(frozen=True)
class BasePlan:
    """Everything the model is built from. Raises ConfigError on a layout that isn't there, or that can't train what is to be trained."""

    model: Path
    device: str  # "cpu" or "cuda"
    dtype: str  # "float32" or "bfloat16"
    layout: str = "ddp"  # "ddp", "fsdp" or "tp=2"
    sharding: str = "FULL_SHARD"  # or "SHARD_GRAD_OP": of fsdp
    token_budget: int | None = None  # of one packed micro-batch; None: 4096 on a CPU, 8192 on a GPU
    trained: str = "adapters"  # or "all" weights, or the "body": all but an output head that nothing reads
    head: bool = True  # whether its output head is read, so that it has to be in the checkpoint

    def __post_init__(self) -> None:
        layout = Layout.parse(self.layout, self.sharding)
        if self.trained != "adapters" and layout.tp > 1:
            found = "transformers splits a frozen model: gradients of what stays whole would be partial"
            fix = "use fsdp, or an adapter: lora=wb.LoRA(), Critic(lora=wb.LoRA())"
            raise ConfigError(f"train all weights under tp={layout.tp}", found, fix)


class Base:
    """A model that reads packed rows. Where it lies in pieces (fsdp, tp) every rank has to make the same calls, with its own rows."""

    def __init__(
        self,
        plan: BasePlan,
        ranks: Ranks | None = None,
        adapters: Mapping[str, tuple[LoRA, int]] | None = None,  # name -> (what it is, its seed)
        handlers: Sequence[Any] = (),  # accelerate's
        *,
        storage: Mapping[str, torch.Tensor] | None = None,  # weights that are there already, by transformers' names
    ) -> None:
        """With ``storage`` nothing is read from disk: the base's parameters are these tensors, which stay the lender's (``borrow``)."""
        from accelerate import Accelerator

        self.base_plan, self.ranks = plan, ranks or Ranks.alone()
        self.layout = Layout.parse(plan.layout, plan.sharding).over(self.ranks)
        # given, so that no variable of the environment divides the gradient
        self.accelerator = Accelerator(cpu=plan.device == "cpu", gradient_accumulation_steps=1, kwargs_handlers=list(handlers) or None)
        # in a world of ranks accelerate says "cpu:0", and what is on "cpu" would be copied there
        self.device = torch.device("cpu") if plan.device == "cpu" else self.accelerator.device
        self.budget = plan.token_budget or (8192 if self.device.type == "cuda" else 4096)
        if storage is not None:
            self._check_lent()
        mesh = self.ranks.mesh(self.layout.purpose, self.device.type) if self.layout.in_step else None
        body = self._load() if storage is None else self._borrow(storage, mesh)
        self.hidden_size = int(body.config.get_text_config().hidden_size)
        if plan.trained != "adapters":
            _train_all(body, head=plan.trained == "all")
        if self.layout.kind == "tp" and storage is None:
            split_by_heads(body, self.layout.tp, mesh)
        self.body = self.model = body  # as transformers knows it, and with adapters around its layers
        for name, (lora, seed) in (adapters or {}).items():
            self.model = add_adapter(self.model, lora, seed, name)
        if self.layout.kind == "tp":
            split_adapters(body, self.layout.tp, mesh)
        self.reader = _Reader(body)
        if self.device.type == "cuda":
            self._compile(body, on_frozen=bool(adapters))
        if self.layout.kind == "fsdp":
            shard_fully(self.reader, body.base_model.layers, self.layout, mesh)
        self.reader.to(self.device)

    def _load(self) -> Any:
        plan = self.base_plan
        # in pieces it is cut on the CPU: no rank's device ever holds the whole
        device = torch.device("cpu") if self.layout.in_step else self.device
        return load_base(plan.model, device, getattr(torch, plan.dtype), head=plan.head)

    def _check_lent(self) -> None:
        plan = self.base_plan
        if plan.trained != "adapters":
            found = "an engine must not sample from weights that are being trained"
            raise ConfigError("train all weights in the engine's storage", found, "use an adapter, or mode='full'")
        if self.layout.kind == "fsdp":
            found = "this layout keeps its weights in pieces of its own, and the engine's lie otherwise"
            raise ConfigError(f"a base on the engine's storage, layout={plan.layout!r}", found, "use layout='ddp', or mode='merged'")

    def _borrow(self, storage: Mapping[str, torch.Tensor], mesh: Any) -> Any:
        plan = self.base_plan

        def split(body: Any) -> None:
            if self.layout.kind == "tp":
                split_by_heads(body, self.layout.tp, mesh)

        return borrow(plan.model, storage, self.device, getattr(torch, plan.dtype), split)

    def _compile(self, body: Any, *, on_frozen: bool) -> None:
        """Compile each layer by itself. Not under tp: its collectives are inside of the layers."""
        if on_frozen:
            # the first layer's input needs no gradient; letting it have one saves compiling that layer apart
            body.enable_input_require_grads()
        for layer in body.base_model.layers:
            if self.layout.kind == "ddp":
                layer.compile(dynamic=True, options=ROUNDS_AS_THE_ENGINE)
            elif self.layout.kind == "fsdp":  # what gathers the weights happens around this, uncompiled
                layer.forward = torch.compile(layer.forward, dynamic=True, options=ROUNDS_AS_THE_ENGINE)

    def parameters_of(self, adapter: str) -> dict[str, torch.nn.Parameter]:
        """The parameters of one adapter, by their names in the model."""
        return {name: parameter for name, parameter in self.model.named_parameters() if f".{adapter}." in name}

    def parameters_whole(self) -> dict[str, torch.nn.Parameter]:
        """All that are trained where no adapter is, by their names in the model."""
        return {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}

    def weights(self) -> dict[str, torch.Tensor]:
        """This rank's pieces of the weights, by transformers' names: live, tied ones once, what adapters add left out."""
        return pieces(self._named)

    @cached_property
    def _named(self) -> dict[str, torch.nn.Parameter]:
        """Looked up once: fsdp shows other parameters while it holds them whole."""
        return named(self.body)

    def save_whole(self, path: Path) -> None:
        """Write the model into ``path``. Every rank has to call this; the first one writes, from the CPU. Raises OSError."""
        tensors = {}
        for name, parameter in self.body.named_parameters():  # one after the other: no device holds the whole of a model in pieces
            tensor = whole(parameter.detach())
            if not self.ranks.rank:
                tensors[name] = tensor.cpu()
        if tensors:
            self._write(path, tensors)

    def save_adapter(self, name: str, path: Path) -> None:
        """Write an adapter into ``path``, in peft's format. Every rank has to call this; the first one writes. Raises OSError."""
        state = self.model.state_dict()
        tensors = {key: whole(tensor) for key, tensor in state.items() if "lora_" in key and f".{name}." in key}
        if self.ranks.rank:
            return
        self._write(path, tensors, selected_adapters=[name])
        if name != "default":  # peft puts the others in folders of their names
            for file in (path / name).iterdir():
                file.replace(path / file.name)
            (path / name).rmdir()

    def _write(self, path: Path, tensors: Mapping[str, torch.Tensor], **how: Any) -> None:
        from safetensors import SafetensorError

        try:
            with no_bars():
                self.model.save_pretrained(path, state_dict=tensors, **how)
        except SafetensorError as error:  # so it calls a full disk
            raise OSError(str(error)) from error

    # ------------------------------------------------------------ reading

    def logp(self, packed: Packed, temperature: float) -> torch.Tensor:
        """Log-probability of every response token of a micro-batch: (R,) float32, with gradient where it is enabled."""
        return self._read(packed, temperature, None)

    def values(self, packed: Packed, head: torch.nn.Module) -> torch.Tensor:
        """What ``head`` says of the state before every response token of a micro-batch: (R,), with gradient where it is enabled."""
        return self._read(packed, 1.0, head)

    def _read(self, packed: Packed, temperature: float, head: torch.nn.Module | None) -> torch.Tensor:
        with _compiled_once() if self.device.type == "cuda" else nullcontext():
            out: torch.Tensor = self.reader(packed, temperature, head)
        return out

    @contextmanager
    def using(self, adapter: str) -> Iterator[None]:
        """Within: the model is the base with ``adapter``, which alone is trained; afterwards it is the one that was there before.

        A backward pass has to be inside too: peft lets go of an adapter's gradients the moment another becomes active.
        """
        before = self.model.active_adapter
        self.model.set_adapter(adapter)
        try:
            yield
        finally:
            self.model.set_adapter(before)

    def score(self, rows: Sequence[Row], temperature: float, *, should_stop: Callable[[], bool] = lambda: False) -> list[torch.Tensor]:
        """Log-probabilities of each row's response, without gradient: one (length,) float32 tensor a row.

        Raises Stopped; on all ranks alike where the model lies in pieces.
        """
        return self.each(rows, lambda packed: self.logp(packed, temperature), should_stop)

    @torch.no_grad()
    def each(
        self, rows: Sequence[Row], read: Callable[[Packed], torch.Tensor], should_stop: Callable[[], bool] = lambda: False
    ) -> list[torch.Tensor]:
        """What ``read`` gives for a micro-batch, (R,), of all of them and cut by rows: one (length,) tensor a row. Raises Stopped."""
        out: list[torch.Tensor] = [torch.empty(0)] * len(rows)
        stance = "default" if sum(map(len, rows)) > COMPILING_PAYS else "force_eager"
        with torch.compiler.set_stance(stance), self.afresh():
            for packed in self.packed(rows, range(len(rows)), should_stop):
                found = read(packed)
                for row, part in zip(packed.rows, found.split(packed.lengths) if packed.rows else (), strict=True):
                    out[row] = part
        return out

    def packed(self, rows: Sequence[Row], chosen: Sequence[int], should_stop: Callable[[], bool]) -> Iterator[Packed]:
        """Micro-batches of the ``chosen`` rows. Raises Stopped between them.

        Where the model lies in pieces, all ranks get as many: those that have run out get some without ``rows``, whose
        results count for nothing, and a stop on one is a stop on all.
        """
        batches = micro_batches([len(rows[r]) for r in chosen], self.budget)
        while self._goes_on(should_stop(), bool(batches)):
            yield pack(rows, [chosen[i] for i in batches.pop(0)], self.device) if batches else self._idle()

    def _goes_on(self, stopped: bool, more: bool) -> bool:
        turns = self.ranks.agree((stopped, more)) if self.layout.in_step else [(stopped, more)]
        going = any(more for _, more in turns)
        if going and any(stopped for stopped, _ in turns):
            raise Stopped("update")
        return going

    def _idle(self) -> Packed:
        return replace(pack([Row((0,), (0,))], [0], self.device), rows=(), lengths=())

    @contextmanager
    def afresh(self) -> Iterator[None]:
        """Leave no gathered weights behind: the next pass has to see what the optimizer or a checkpoint wrote."""
        try:
            yield
        finally:
            if self.layout.kind == "fsdp":
                drop_gathered(self.reader)


def _train_all(body: Any, *, head: bool) -> None:
    """Let every weight have a gradient; an output head of its own only with ``head``."""
    body.requires_grad_(True)
    out = body.get_output_embeddings().weight
    if not head and out is not body.get_input_embeddings().weight:
        out.requires_grad_(False)


def _compiled_once() -> AbstractContextManager[None]:
    """How layers are compiled: with numbers like LoRA's scaling in the code, and for every adapter, with gradient and without.

    ``dynamic=True`` makes inputs of such numbers, on the CPU: then every layer has a part in C++, and looking for what the CPU can do
    takes forty seconds of a process's first update (docs/log.md). Two adapters, none, and both kinds of pass make eight variants of a
    layer, which is as many as torch compiles before it gives up without a word.
    """
    from torch._dynamo import config

    patched: AbstractContextManager[None] = config.patch(specialize_float=True, recompile_limit=32)
    return patched


class _Reader(torch.nn.Module):
    """Body and output head in one forward pass, so that fsdp has gathered the head's weight when it is read."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body

    def forward(self, packed: Packed, temperature: float, head: torch.nn.Module | None) -> torch.Tensor:
        """Log-probability of every response token, or what another ``head`` makes of the state before it: (R,)."""
        hidden = self.body.base_model(
            input_ids=packed.ids,
            position_ids=packed.positions,
            use_cache=False,
            row_starts=packed.starts,
            row_longest=packed.longest,
        ).last_hidden_state[0]
        if head is not None:
            seen: torch.Tensor = head(hidden[packed.source])
            return seen
        return token_logp(hidden[packed.source], self.body.get_output_embeddings().weight, packed.target, temperature)
