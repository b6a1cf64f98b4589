"""The model's tokenizer, loaded so that a custom one is never rebuilt as its family's."""

from pathlib import Path
from typing import Any

from workbench.errors import ConfigError


class Tokenizer:
    """Text to token ids as the model was trained on them. ``raw`` is the transformers tokenizer inside."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast

        asked = f"tokenizer of {str(model)!r}"
        try:
            # AutoTokenizer on a llama or qwen2 folder rebuilds that family's class and tokenizes a custom one to nothing
            custom = (model / "tokenizer.json").exists()
            self.raw: Any = PreTrainedTokenizerFast.from_pretrained(model) if custom else AutoTokenizer.from_pretrained(model)
        except (OSError, ValueError) as error:
            raise ConfigError(asked, str(error).strip().splitlines()[0], "give a model with a tokenizer") from error
        if self.raw.eos_token_id is None:
            raise ConfigError(asked, "it has no end-of-text token", "set eos_token: a completion has to end somewhere")

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of ``text``. Raises ConfigError where nothing comes out."""
        ids = tuple(self.raw(text, add_special_tokens=True).input_ids)
        if not ids:
            raise ConfigError(f"tokenize {text!r}", "no tokens came out", "is this the right tokenizer for the task?")
        return ids

    def decode(self, ids: tuple[int, ...]) -> str:
        """Text of ``ids`` without special tokens."""
        text: str = self.raw.decode(ids, skip_special_tokens=True)
        return text
