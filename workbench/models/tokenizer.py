"""The model's tokenizer, loaded so that a custom one is never rebuilt as its family's."""

from collections.abc import Iterable
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
        self._model = model

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of ``text``. Raises ConfigError where nothing comes out."""
        return self._encode(text, add_special_tokens=True)

    def encode_prompt(self, prompt: str | Iterable[tuple[str, str]]) -> tuple[str, tuple[int, ...]]:
        """A prompt's text as the model sees it, and its token ids.

        A text is taken as it stands. Messages, as (role, content) pairs, go through the model's chat template, up to where the
        assistant begins to answer. Raises ConfigError where the model has no template, or one that refuses these messages.
        """
        if isinstance(prompt, str):
            return prompt, self.encode(prompt)
        text = self._render([{"role": role, "content": content} for role, content in prompt])
        return text, self._encode(text, add_special_tokens=False)  # the template has written them: no second begin-of-text

    def decode(self, ids: tuple[int, ...]) -> str:
        """Text of ``ids`` without special tokens."""
        text: str = self.raw.decode(ids, skip_special_tokens=True)
        return text

    def _encode(self, text: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        ids = tuple(self.raw(text, add_special_tokens=add_special_tokens).input_ids)
        if not ids:
            raise ConfigError(f"tokenize {text!r}", "no tokens came out", "is this the right tokenizer for the task?")
        return ids

    def _render(self, messages: list[dict[str, str]]) -> str:
        from jinja2 import TemplateError

        asked = f"a conversation ({', '.join(message['role'] for message in messages)})"
        if not self.raw.chat_template:
            fix = "give the task chat=False and prompts that are texts, or take a model with a template (its name often ends in -Instruct)"
            raise ConfigError(asked, f"the tokenizer of {str(self._model)!r} has no chat template", fix)
        try:
            text: str = self.raw.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except (TemplateError, ValueError) as error:
            fix = "leave out the roles that it doesn't know (system=None), or take another model"
            raise ConfigError(asked, f"the model's chat template refuses it: {error}", fix) from error
        return text
