"""Tiny random checkpoints of several families, made on the spot, and what transformers computes with their weights."""

from pathlib import Path
from typing import Any

import torch

SIZES = {
    "vocab_size": 40,  # padded to 64
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "bos_token_id": None,
    "dtype": "float32",
}
CHANGES: dict[str, dict[str, Any]] = {
    "qwen2": {"num_key_value_heads": 1, "tie_word_embeddings": True},  # biases; two ranks hold the same keys
    "qwen3": {"tie_word_embeddings": False},  # norms of queries and keys
    "llama": {"tie_word_embeddings": False},
    "phi3": {"tie_word_embeddings": False, "num_key_value_heads": 1},  # queries, keys and values in one matrix, gate and up in another
    "glm4": {"tie_word_embeddings": False},  # gate and up in one matrix, of which vLLM's table says two
    "mistral": {"sliding_window": None},
    "smollm3": {"tie_word_embeddings": True},  # vLLM has no model of its own for it
    "olmo2": {"tie_word_embeddings": False},  # nor for it; norms behind attention and feed-forward
    "gpt_neox": {"tie_word_embeddings": False},  # named otherwise in vLLM
}


def made(family: str, folder: Path, tokenizer: Any) -> Path:
    """A checkpoint of ``family`` with ``tokenizer``."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **(SIZES | CHANGES[family])), dtype=torch.float32)
    moved(model, 0)
    model.save_pretrained(folder / family)
    tokenizer.save_pretrained(folder / family)
    return folder / family


def moved(model: Any, seed: int) -> None:
    """Give every weight another value, strong enough to change every completion; norms stay near 1."""
    own = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=own)
            parameter.copy_(1 + 0.1 * drawn if parameter.dim() == 1 and bool((parameter - 1).abs().max() < 0.6) else 0.15 * drawn)


def loaded(folder: Path) -> Any:
    """The checkpoint as transformers loads it."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@torch.no_grad()
def greedy(model: Any, prompt: tuple[int, ...], drawn: tuple[int, ...]) -> tuple[tuple[int, ...], list[float]]:
    """What the model itself would choose after ``prompt`` and each beginning of ``drawn``, and its log-probabilities of ``drawn``."""
    logp = model(torch.tensor([[*prompt, *drawn]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    return tuple(logp.argmax(-1).tolist()), logp.gather(1, torch.tensor(drawn)[:, None])[:, 0].tolist()
