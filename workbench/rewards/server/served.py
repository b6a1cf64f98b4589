"""What a reward server serves: a reward model or any other reward, behind one interface."""

import asyncio
import importlib
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from workbench.errors import ConfigError, RewardError
from workbench.rewards.check import Reward, check_reward
from workbench.rewards.fingerprint import of_source
from workbench.rewards.models.reward_model import RewardModel
from workbench.rewards.rows import Row
from workbench.rewards.score import Scorer


class Served(Protocol):
    """Scores items; an item is what ``of_rows`` or ``of_ids`` makes of a row.

    ``name``: what it answers as. Once it is ready that ends in a fingerprint, so that clients notice another version: "folder@1f3a9c07".
    """

    name: str
    tokenizer: str | None

    def make_ready(self) -> None:
        """Load what has to be loaded."""

    def of_rows(self, rows: Sequence[Row]) -> Sequence[Any]:
        """Items of rows. Raises ConfigError where a row can't be scored."""
        ...

    def of_ids(self, ids: Sequence[list[int]]) -> Sequence[Any]:
        """Items of token ids. Raises ConfigError where they can't be scored."""
        ...

    def score(self, items: Sequence[Any]) -> list[float]:
        """One finite number per item. Raises RewardError."""
        ...


class ServedModel:
    """A reward model; items are token ids."""

    def __init__(self, model: RewardModel, device: str | None) -> None:
        self.model, self.device, self.name = model, device, model.name
        self.tokenizer: str | None = model.name

    def make_ready(self) -> None:
        """Load it, and score once: the first pass is slow."""
        self.model.prepare(self.device or default_device())
        self.name = f"{self.model.name}@{self.model.fingerprint()}"
        self.score(self.of_rows([("warm", "up", None)]))

    def of_rows(self, rows: Sequence[Row]) -> Sequence[list[int]]:
        """Through its tokenizer."""
        return [self.model.dialogue.ids(row) for row in rows]

    def of_ids(self, ids: Sequence[list[int]]) -> Sequence[list[int]]:
        """As they are, if it knows them."""
        self.model.check_ids(ids)
        return ids

    def score(self, items: Sequence[list[int]]) -> list[float]:
        """In its own batches."""
        scores = asyncio.run(self.model.score_ids(items))
        if not all(map(math.isfinite, scores)):
            raise RewardError(
                f"reward model {self.model.name!r}", "it gave a number that is not finite", "try --dtype float32; look at its weights"
            )
        return scores


class ServedFunction:
    """Any other reward; items are rows."""

    tokenizer: str | None = None

    def __init__(self, reward: Reward, name: str, device: str | None) -> None:
        if device is None:
            device = default_device() if hasattr(reward, "prepare") else "cpu"
        self.scorer, self.name = Scorer(reward, device=device), name

    def make_ready(self) -> None:
        """Whatever it has to make ready."""
        self.scorer.prepare()

    def of_rows(self, rows: Sequence[Row]) -> Sequence[Row]:
        """As they are."""
        return rows

    def of_ids(self, ids: Sequence[list[int]]) -> Sequence[Any]:
        """Never."""
        raise ConfigError(
            "ids", "the reward here is a function of texts", 'send {"rows": [{"prompt": ..., "completion": ..., "answer": ...}]}'
        )

    def score(self, items: Sequence[Row]) -> list[float]:
        """One after the other, or as it takes rows."""
        scores = self.scorer.score(items)
        self.scorer.numbers()  # nobody asks for them here: they would pile up
        return scores


def served(model: str, dtype: str, device: str | None) -> ServedModel | ServedFunction:
    """What ``model`` names: a folder or hub name of a reward model, or ``module:function``. Raises ConfigError where it is neither."""
    if ":" not in model or Path(model).expanduser().exists():
        return ServedModel(RewardModel(model, dtype=dtype), device)
    module, reward = _imported(model)
    if isinstance(reward, RewardModel):
        return ServedModel(reward, device)
    return ServedFunction(check_reward(reward), f"{model}@{of_source(module)}", device)


def default_device() -> str:
    """ "cuda" where there is a GPU."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _imported(name: str) -> tuple[ModuleType, Any]:
    """The module of "module:attribute", and the attribute."""
    module, _, attribute = name.partition(":")
    fix = "write module:function, where `python -c 'import module'` works from this folder"
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as python -m does
    try:
        found = importlib.import_module(module)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"reward {name!r}", f"{module!r} can't be imported: {error}", fix) from error
    if not hasattr(found, attribute):
        raise ConfigError(f"reward {name!r}", f"{module} has no {attribute!r}", fix)
    return found, getattr(found, attribute)
