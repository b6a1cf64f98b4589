"""Prompts that are conversations: messages for a model's chat template, beside prompts that are plain text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from workbench.errors import ConfigError, check_kind

ROLES = ("system", "developer", "user", "assistant", "tool")
EXAMPLE = '[{"role": "user", "content": "..."}]'


class Message(NamedTuple):
    """One turn: who speaks ("system", "developer", "user", "assistant" or "tool"), and what."""

    role: str
    content: str


@dataclass(frozen=True)
class Conversation:
    """Messages that the model answers through its chat template; iterates as (role, content) pairs.

    ``asked``: the plain text that it was made of, where it was one (``chat=True``).
    """

    messages: tuple[Message, ...]
    asked: str | None = None

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __str__(self) -> str:
        return "\n".join(f"{role}: {content}" for role, content in self.messages)

    def dicts(self) -> list[dict[str, str]]:
        """As data sets write it: ``[{"role": ..., "content": ...}, ...]``."""
        return [message._asdict() for message in self.messages]


PromptText = str | Conversation
"""A prompt before any template: plain text, or a conversation."""


def given(prompt: PromptText) -> str | list[dict[str, str]]:
    """The prompt as its data set has it, for scorers and rewards: a text, or a list of message dicts."""
    if isinstance(prompt, str):
        return prompt
    return prompt.dicts() if prompt.asked is None else prompt.asked


def split_key(prompt: PromptText) -> str:
    """The text whose hash says on which side of the split a prompt is. ``chat`` and ``system`` move no prompt over it."""
    said = given(prompt)
    return said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)


def read_prompt(value: Any, place: str) -> PromptText:
    """A text, or messages as dicts or (role, content) pairs. Raises ConfigError, with ``place``, on anything else."""
    if isinstance(value, Conversation):
        value = value.messages
    if isinstance(value, str) and value:
        return _encodable(value, place)
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence) or not value:
        raise ConfigError(place, f"its prompt is {value!r}", f"a prompt is a text that is not empty, or messages: {EXAMPLE}")
    messages = tuple(_message(item, f"{place}, message {number}") for number, item in enumerate(value))
    if "system" in [role for role, _ in messages[1:]]:
        raise ConfigError(place, "a system message stands after others", "put it first: chat templates take it only there")
    if messages[-1].role == "assistant":
        raise ConfigError(
            place, "its last message is the assistant's", "leave it out: the model is to write it (answer=... holds a solution)"
        )
    return Conversation(messages)


def _message(value: Any, place: str) -> Message:
    if isinstance(value, Mapping):
        filled = {key: part for key, part in value.items() if part is not None}  # Arrow fills keys that a message lacks with None
        if filled.keys() != {"role", "content"}:
            raise ConfigError(place, f"its keys are {', '.join(map(repr, filled)) or 'none'}", f"'role' and 'content' alone: {EXAMPLE}")
        value = (filled["role"], filled["content"])
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise ConfigError(place, f"{value!r} is no message", f"write {EXAMPLE}")
    role, content = value
    if role not in ROLES:
        raise ConfigError(place, f"its role is {role!r}", f"a role is one of {', '.join(ROLES)}")
    if not isinstance(content, str):
        raise ConfigError(
            place, f"its content is a {type(content).__name__}", "a content is one text; images and other parts are not supported"
        )
    return Message(role, _encodable(content, place))


def _encodable(text: str, place: str) -> str:
    """``text``, if it is one: JSON can hold half of a character that is written as two."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(place, f"its text holds {text[error.start]!r}, which is half a character", "write the file again") from error
    return text


@dataclass(frozen=True)
class Chat:
    """How prompts are put to the model. Raises ConfigError where ``system`` would have no effect.

    ``on``: a plain text becomes a user's message, after ``system`` where that is given, and goes through the chat template.
    Off, which is the default, it stays plain text. Conversations go through the template in either case.
    """

    on: bool = False
    system: str | None = None

    def __post_init__(self) -> None:
        check_kind("chat", self.on, bool, "True or False")
        if self.system is not None:
            check_kind("system", self.system, str, "a text for the system message")
        if self.system == "":
            raise ConfigError("system=''", "an empty system message says nothing, but chat templates write it", "leave system out")

    def check(self, prompt: PromptText, place: str) -> None:
        """Raise ConfigError where ``prompt`` and ``system`` don't fit together."""
        if self.system is None:
            return
        if isinstance(prompt, str) and not self.on:
            raise ConfigError(
                f"system={self.system!r}", "without chat=True plain prompts have no system message", "add chat=True, or leave system out"
            )
        if not isinstance(prompt, str) and prompt.messages[0].role == "system":
            raise ConfigError(
                f"system={self.system!r}", f"{place} has a system message of its own", "leave system out, or take that message out"
            )

    def __call__(self, prompt: PromptText) -> PromptText:
        """``prompt`` as the model gets it."""
        first = () if self.system is None else (Message("system", self.system),)
        if isinstance(prompt, str):
            return Conversation((*first, Message("user", prompt)), asked=prompt) if self.on else prompt
        return Conversation(first + prompt.messages, prompt.asked)
