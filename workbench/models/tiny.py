"""A model of a million and a half parameters, made on the spot: a Llama with a tokenizer of one token per character.

It is an ordinary checkpoint folder, which transformers and vLLM load as any other. ``warm_start.ensure`` makes it and warms it up.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.quiet import no_bars

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

PAD, END, UNKNOWN = "<pad>", "<eos>", "<unk>"  # token ids 0, 1, 2

Pairs = list[tuple[str, str]]
Demonstrations = Callable[[int, int], Pairs]
"""``(seed, count) -> [(prompt, completion), ...]``"""
Report = Callable[[int, int, str], None]
"""``(done, total, note)``, for a progress bar. What it raises ends the work."""


@dataclass(frozen=True)
class Shape:
    """The network's sizes. Heads are even in number, so that two ranks of tensor parallelism can share them."""

    hidden: int = 192
    layers: int = 4
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32  # a multiple of 32: every attention kernel takes it
    feed_forward: int = 512
    window: int = 512  # tokens

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads or self.head_dim % 32:
            raise ConfigError(
                f"Shape(heads={self.heads}, kv_heads={self.kv_heads}, head_dim={self.head_dim})",
                "heads are shared out evenly among kv_heads, and head_dim is a multiple of 32",
                "write heads=6, kv_heads=2, head_dim=32",
            )


def vocabulary(pairs: Pairs) -> tuple[str, ...]:
    """The pieces that texts like these are made of: what all prompts begin with, as one token, and every other character."""
    start = os.path.commonprefix([prompt for prompt, _ in pairs])  # noqa: RUF071 - characters are meant
    characters = set("".join(prompt[len(start) :] + completion for prompt, completion in pairs))
    if len(start) == 1:
        characters.add(start)
    return tuple([start] * (len(start) > 1) + sorted(characters))


def build_tokenizer(pieces: Iterable[str], window: int = Shape.window) -> "PreTrainedTokenizerFast":
    """A tokenizer that cuts a text into ``pieces``, the longest first; anything else is the unknown token, one per character.

    Saved, it loads right with AutoTokenizer too: its class is written as ``TokenizersBackend``, and Llama has no tokenizer
    class of its own that AutoTokenizer would put in its place (as it does for Qwen2). transformers 5.17 and 5.19.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = list(pieces)
    ids = {piece: number for number, piece in enumerate([PAD, END, UNKNOWN, *pieces])}
    if len(ids) < 3 + len(pieces) or "" in ids:
        raise ConfigError(f"a tokenizer of {len(pieces)} pieces", "a piece is empty, there twice, or a special token", "leave it out")
    core = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    long = sorted((re.escape(piece) for piece in pieces if len(piece) > 1), key=len, reverse=True)
    core.pre_tokenizer = pre_tokenizers.Split(Regex("|".join([*long, r"[\s\S]"])), "isolated")
    core.decoder = decoders.Fuse()  # without it, decoding puts blanks between tokens
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token=PAD, eos_token=END, unk_token=UNKNOWN, model_max_length=window)


def build(tokens: int, shape: Shape | None = None, seed: int = 0) -> "LlamaForCausalLM":
    """An untrained Llama for ``tokens`` different tokens, in float32 on the CPU, its weights drawn from ``seed`` alone."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = shape or Shape()
    config = LlamaConfig(
        vocab_size=tokens,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.window,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def save(model: "LlamaForCausalLM", tokenizer: "PreTrainedTokenizerFast", folder: Path) -> None:
    """Write a checkpoint folder: config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json."""
    with no_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
