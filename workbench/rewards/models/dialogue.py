"""A prompt and its completion as the token ids that a reward model was trained on."""

import json
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.rewards.rows import Row


class Dialogue:
    """The tokenizer of a reward model, with its chat template where it has one.

    With a template the prompt is a user's message, or the messages that it is, and the completion the assistant's. Without one prompt
    and completion are put together as they stand. What is longer than ``max_length`` tokens loses its beginning.
    Raises ConfigError where there is no tokenizer.
    """

    def __init__(self, model: str, max_length: int | None = None) -> None:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast

        try:
            # AutoTokenizer on a llama or qwen2 folder rebuilds that family's class and tokenizes a custom one to nothing
            custom = (Path(model) / "tokenizer.json").exists()
            self.raw: Any = PreTrainedTokenizerFast.from_pretrained(model) if custom else AutoTokenizer.from_pretrained(model)
        except (OSError, ValueError) as error:
            found = str(error).strip().splitlines()[0]
            raise ConfigError(f"tokenizer of {model!r}", found, "give a reward model with a tokenizer") from error
        self.model, self.max_length = model, max_length

    def ids(self, row: Row) -> list[int]:
        """Token ids of a row's prompt and completion. Raises ConfigError where the template refuses the messages."""
        prompt, completion, _ = row
        if self.raw.chat_template:
            ids = self.raw(self._rendered(prompt, completion), add_special_tokens=False).input_ids  # the template has written them
        elif isinstance(prompt, str):
            ids = self.raw(prompt + completion).input_ids
        else:
            fix = "take a reward model with a template, or prompts that are texts (chat=False)"
            raise ConfigError("a prompt of messages", f"the tokenizer of {self.model!r} has no chat template", fix)
        if not ids:
            raise ConfigError(f"tokenize {completion!r}", "no tokens came out", "is this the right tokenizer?")
        return list(ids)

    def about(self) -> str:
        """What the ids depend on: vocabulary, template and length, as a text that differs where they do."""
        return json.dumps([sorted(self.raw.get_vocab().items()), self.raw.chat_template, self.max_length])

    def shortened(self, ids: list[int]) -> list[int]:
        """``ids`` without their beginning, where they are too many."""
        return ids if self.max_length is None else ids[-self.max_length :]

    def _rendered(self, prompt: Any, completion: str) -> str:
        from jinja2 import TemplateError

        asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
        try:
            text: str = self.raw.apply_chat_template([*asked, {"role": "assistant", "content": completion}], tokenize=False)
        except (TemplateError, ValueError) as error:
            roles = ", ".join(str(message["role"]) for message in asked)
            fix = "leave out the roles that it doesn't know (system=None), or take another reward model"
            raise ConfigError(f"a conversation ({roles})", f"the reward model's chat template refuses it: {error}", fix) from error
        return text
