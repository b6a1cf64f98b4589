"""A short supervised phase, so that a model made on the spot has something for a reward to choose from; kept in a cache."""

import hashlib
import json
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.models import cache, tiny
from workbench.models.tiny import Demonstrations, Pairs, Report, Shape

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

REPORT_EVERY = 5  # steps; about half a second


@dataclass(frozen=True)
class Recipe:
    """How a tiny model is warmed up: AdamW (betas 0.9, 0.98) with a linear warm-up of 10 steps and a linear decay to 0."""

    name: str
    seed: int = 0  # of the weights and of the demonstrations
    steps: int = 300
    batch: int = 64  # demonstrations per step, each seen once
    learning_rate: float = 2e-3
    shape: Shape = field(default_factory=Shape)

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 1 or not self.learning_rate > 0:
            raise ConfigError(
                f"Recipe(steps={self.steps}, batch={self.batch}, learning_rate={self.learning_rate})",
                "each of them is above 0",
                "leave them out for 300, 64 and 2e-3",
            )


def ensure(task: str, demonstrations: Demonstrations, seed: int = 0, progress: Report | None = None) -> Path:
    """The folder of a tiny model warmed up on ``demonstrations``: from the cache, or made now (half a minute on two cores).

    ``task`` names it; what it is made of decides whether a cached one fits. See ``warm_start`` for errors and warnings.
    """
    return warm_start(demonstrations, Recipe(name=task, seed=seed), progress=progress)


def warm_start(demonstrations: Demonstrations, recipe: Recipe, progress: Report | None = None) -> Path:
    """The folder of a tiny model that imitates ``demonstrations``: from the cache, or made now.

    The key of the cache is a hash of everything the weights depend on: the demonstrations themselves, the recipe, and the
    source of this file and of ``tiny``. The same key gives the same weights (on one machine, with one number of threads).
    ``progress(done, total, note)`` is told about twice a second; what it raises ends the work and leaves nothing behind.
    Warns where a cache entry is damaged, and makes it again. Raises ConfigError on demonstrations that can't be learnt from
    and on a cache that can't be written.
    """
    report = progress or (lambda done, total, note: None)
    pairs = demonstrations(recipe.seed, recipe.steps * recipe.batch)
    _check(pairs, recipe)
    name = f"{re.sub(r'[^a-z0-9]+', '-', recipe.name.lower())[:40]}-{_key(pairs, recipe)}"

    def say(share: float, note: str) -> None:
        report(round(share * recipe.steps), recipe.steps, note)

    return cache.kept(name, lambda folder: _make(pairs, recipe, folder, report), say)


def _key(pairs: Pairs, recipe: Recipe) -> str:
    """16 hex digits that differ wherever the weights would."""
    digest = hashlib.sha256(json.dumps([asdict(recipe), pairs]).encode())
    for source in (Path(tiny.__file__), Path(__file__)):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


# ---------------------------------------------------------------- learning


def _make(pairs: Pairs, recipe: Recipe, folder: Path, report: Report) -> dict[str, Any]:
    """Build, train, save. Returns what the manifest says."""
    report(0, recipe.steps, "building a tiny model")
    begin = time.monotonic()
    tokenizer = tiny.build_tokenizer(tiny.vocabulary(pairs), recipe.shape.window)
    model = tiny.build(len(tokenizer), recipe.shape, recipe.seed)
    loss = _imitate(model, _rows(pairs, tokenizer, recipe.shape.window), recipe, report)
    tiny.save(model, tokenizer, folder)
    return {"recipe": asdict(recipe), "loss": loss, "seconds": time.monotonic() - begin}


def _imitate(model: "LlamaForCausalLM", rows: list[tuple[list[int], int]], recipe: Recipe, report: Report) -> float:
    """Train ``model`` on ``rows``, cross-entropy averaged over completion tokens. Returns the last loss, in nats per token."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    model.train()
    value = float("nan")
    for step in range(recipe.steps):
        optimizer.param_groups[0]["lr"] = recipe.learning_rate * min(1.0, (step + 1) / 10) * (1 - step / recipe.steps)
        tokens_BT, learnt_BT = _pad(rows[step * recipe.batch : (step + 1) * recipe.batch])
        # Padding stands on the right, so causal attention needs no mask; only the positions learnt from get logits.
        hidden_BTH = model.model(tokens_BT, use_cache=False).last_hidden_state
        logits_NV = model.lm_head(hidden_BTH[:, :-1][learnt_BT[:, 1:]])
        loss = torch.nn.functional.cross_entropy(logits_NV, tokens_BT[:, 1:][learnt_BT[:, 1:]])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % REPORT_EVERY == 0 or step == recipe.steps - 1:
            value = _finite(loss.item(), step, recipe)
            report(step + 1, recipe.steps, f"imitating demonstrations, loss {value:.2f}")
    model.eval()
    return value


def _rows(pairs: Pairs, tokenizer: "PreTrainedTokenizerFast", window: int) -> list[tuple[list[int], int]]:
    """Every pair as (token ids with the end of text, how many of them are the prompt's)."""
    rows = []
    prompts = tokenizer([prompt for prompt, _ in pairs]).input_ids
    completions = tokenizer([completion for _, completion in pairs]).input_ids
    for (prompt, completion), ids, more in zip(pairs, prompts, completions, strict=True):
        row = [*ids, *more, tokenizer.eos_token_id]
        if len(row) > window:
            asked = f"demonstration {prompt[:40]!r} -> {completion[:40]!r}"
            raise ConfigError(asked, f"{len(row)} tokens, and the tiny model's window holds {window}", "shorten it, or Shape(window=...)")
        rows.append((row, len(ids)))
    return rows


def _pad(rows: list[tuple[list[int], int]]) -> "tuple[Tensor, Tensor]":
    """Token ids (B, T), padded on the right with 0, and which of them are learnt (B, T)."""
    import torch

    longest = max(len(row) for row, _ in rows)
    tokens_BT = torch.tensor([row + [0] * (longest - len(row)) for row, _ in rows])
    learnt_BT = torch.tensor([[prompt <= place < len(row) for place in range(longest)] for row, prompt in rows])
    return tokens_BT, learnt_BT


def _finite(loss: float, step: int, recipe: Recipe) -> float:
    if loss != loss or loss == float("inf"):
        found = f"the loss is {loss} at step {step + 1}"
        raise ConfigError(f"warm start of {recipe.name!r}, learning_rate={recipe.learning_rate}", found, "lower the learning rate")
    return loss


def _check(pairs: Pairs, recipe: Recipe) -> None:
    """There are as many demonstrations as were asked for, and each has a prompt and a completion."""
    wanted = recipe.steps * recipe.batch
    if len(pairs) != wanted:
        found = f"{len(pairs)} came when asked for {wanted} ({recipe.steps} steps of {recipe.batch})"
        raise ConfigError(f"demonstrations of {recipe.name!r}", found, "let demonstrations(seed, count) return count pairs")
    for prompt, completion in pairs:
        if not prompt or not completion:
            found = f"{prompt!r} -> {completion!r} has an empty side"
            raise ConfigError(f"demonstrations of {recipe.name!r}", found, "give a text for both the prompt and the completion")
