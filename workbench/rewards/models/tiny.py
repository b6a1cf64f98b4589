"""A reward model made on the spot, for tests and lessons: random weights, one token per character. Its scores mean nothing."""

from pathlib import Path

from workbench.quiet import no_bars

CHARACTERS = "".join(map(chr, range(32, 127))) + "\n"
CHAT = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{{ eos_token }}{% endfor %}"


def tiny_reward_model(folder: Path, *, chat: bool = False, seed: int = 0, labels: int = 1) -> Path:
    """Write a checkpoint of two layers into ``folder``, in about a second; returns the folder. ``chat``: with a chat template."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

    ids = {piece: number for number, piece in enumerate(["<pad>", "<eos>", "<unk>", *CHARACTERS])}
    core = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    tokenizer.chat_template = CHAT if chat else None
    config = LlamaConfig(
        vocab_size=len(ids),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        num_labels=labels,
        initializer_range=0.2,  # scores that differ: padding that changed one would show
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]), no_bars():
        torch.manual_seed(seed)
        LlamaForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
