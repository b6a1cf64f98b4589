"""The JSON that reward server and client send each other, as models that check it."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

MAX_BODY_MIB = 64  # of one request


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class MessageIn(_Strict):
    """One turn of a prompt."""

    role: str
    content: str


class RowIn(_Strict):
    """One completion to score: ``prompt`` is a text, or messages as data sets write them."""

    prompt: str | list[MessageIn]
    completion: str
    answer: Any = None

    def row(self) -> tuple[Any, str, Any]:
        """As rewards get it."""
        prompt = self.prompt if isinstance(self.prompt, str) else [message.model_dump() for message in self.prompt]
        return prompt, self.completion, self.answer


class SharedIn(_Strict):
    """Where token ids lie in shared memory: see ``shared_memory.Lent``."""

    block: str
    slot: int
    lengths: list[int]


class ScoreIn(_Strict):
    """POST /score: one of three."""

    rows: list[RowIn] | None = None
    ids: list[list[int]] | None = Field(default=None, description="token ids of prompt and completion, one list a row")
    shared: SharedIn | None = None

    @model_validator(mode="after")
    def _one(self) -> "ScoreIn":
        given = [name for name in ("rows", "ids", "shared") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of rows, ids and shared, here are {' and '.join(given) or 'none'}")
        return self


class ScoreOut(_Strict):
    """Its answer: one reward per row, in order, and who gave them."""

    rewards: list[float]
    model: str


class Health(_Strict):
    """GET /health."""

    model: str
    ready: bool
    version: str


class About(_Strict):
    """GET /model: what a client needs that sends token ids. ``tokenizer``: a folder or a name on the hub; None where it takes no ids."""

    model: str
    tokenizer: str | None
    shared_mem_name: str | None


def plain(error: ValidationError) -> str:
    """What is wrong, in a sentence (the most exact of all that pydantic says), and how many others there are."""
    errors = error.errors(include_url=False, include_input=False)
    said = max(errors, key=lambda each: len(each["loc"]))
    where = ".".join(map(str, said["loc"]))
    text = f"{where}: {said['msg']}" if where else str(said["msg"])
    return f"{text} (and {len(errors) - 1} more)" if len(errors) > 1 else text
