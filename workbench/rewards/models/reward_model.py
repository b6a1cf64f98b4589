"""A reward model: a transformers model with one number per text (sequence classification with one label)."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, check_kind
from workbench.quiet import no_bars
from workbench.rewards.fingerprint import of_weights
from workbench.rewards.models.dialogue import Dialogue
from workbench.rewards.rows import Row

if TYPE_CHECKING:
    import torch

DTYPES = ("bfloat16", "float32", "int8")
HEAD = "ForSequenceClassification"


class RewardModel:
    """The score of a completion is the one output of the model in the folder, or of the hub, ``model``.

    ``dtype``: "bfloat16", "float32", or "int8" (weights of eight bits in all linear layers but the head; the rest in bfloat16).
    ``batch_tokens``: of a forward pass, padding included. ``max_length``: tokens of a row, the model's window where it is None; what is
    longer loses its beginning, and the share of such rows is the number "cut_rows". Loaded by ``prepare``, and not pickled.
    Raises ConfigError where the model is no reward model.
    """

    def __init__(self, model: str | Path, *, dtype: str = "bfloat16", batch_tokens: int = 16384, max_length: int | None = None) -> None:
        if dtype not in DTYPES:
            raise ConfigError(f"RewardModel(dtype={dtype!r})", f"it is one of {', '.join(DTYPES)}", "write dtype='bfloat16'")
        for name, value in (("batch_tokens", batch_tokens), ("max_length", max_length)):
            if value is not None:
                check_kind(name, value, int, f"{name}=4096")
                if value < 1:
                    raise ConfigError(f"RewardModel({name}={value})", "it is a number of tokens", "give 1 or more")
        self.name = str(Path(model).expanduser()) if _is_path(model) else str(model)
        self.dtype, self.batch_tokens, self.max_length = dtype, batch_tokens, max_length
        self._loaded: _Loaded | None = None
        self._lock = threading.Lock()
        self._cut = 0.0
        if _is_path(model):
            _check_folder(Path(self.name))

    def __repr__(self) -> str:
        return f"RewardModel({self.name!r}, dtype={self.dtype!r})"

    def __call__(self, prompt: Any, completion: str, answer: Any) -> float:
        """The score of one completion. ``answer`` is not looked at."""
        loaded = self._ready()
        return loaded.forward([loaded.dialogue.shortened(loaded.dialogue.ids((prompt, completion, answer)))])[0]

    def prepare(self, device: str) -> None:
        """Load it, on "cpu" or "cuda"; once."""
        with self._lock:
            if self._loaded is None:
                self._loaded = _Loaded(self.name, self.dtype, self.max_length, device)

    @property
    def dialogue(self) -> Dialogue:
        """How rows become token ids; of a model that is loaded."""
        return self._ready().dialogue

    async def score_rows(self, rows: Sequence[Row]) -> list[float]:
        """One score per row. Between two batches a stop is heard."""
        dialogue = self._ready().dialogue
        return await self.score_ids([dialogue.ids(row) for row in rows])

    async def score_ids(self, ids: Sequence[list[int]]) -> list[float]:
        """One score per sequence of token ids, as ``dialogue.ids`` gives them."""
        loaded = self._ready()
        short = [loaded.dialogue.shortened(row) for row in ids]
        scores = [0.0] * len(ids)
        for batch in batches([len(row) for row in short], self.batch_tokens):
            for place, score in zip(batch, loaded.forward([short[place] for place in batch]), strict=True):
                scores[place] = score
            await asyncio.sleep(0)
        self._cut = sum(len(a) < len(b) for a, b in zip(short, ids, strict=True)) / max(len(ids), 1)
        return scores

    def check_ids(self, ids: Sequence[Sequence[int]]) -> None:
        """Raise ConfigError where one is no token of this model: on a GPU that would end the process."""
        vocabulary = self._ready().vocabulary
        for row, tokens in enumerate(ids):
            if not tokens or min(tokens) < 0 or max(tokens) >= vocabulary:
                found = f"they are {min(tokens)} to {max(tokens)}" if tokens else "there are none"
                raise ConfigError(f"token ids of row {row}", found, f"give one id or more, from 0 to {vocabulary - 1}")

    def fingerprint(self) -> str:
        """Eight hex digits of its weights, as they lie in memory, and of how rows become tokens: another version has others."""
        loaded = self._ready()
        return of_weights(loaded.model.state_dict(), loaded.dialogue.about())

    def numbers(self) -> dict[str, float]:
        """The share of rows that were longer than ``max_length``."""
        return {"cut_rows": self._cut}

    def _ready(self) -> "_Loaded":
        self.prepare("cpu")
        assert self._loaded is not None
        return self._loaded

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_loaded", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _loaded=None, _lock=threading.Lock())


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Places of the rows of each batch, the longest rows first; a batch has at most ``batch_tokens`` with padding, or one row."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


class _Loaded:
    """Model and tokenizer in memory."""

    def __init__(self, name: str, dtype: str, max_length: int | None, device: str) -> None:
        import torch
        from transformers import AutoConfig, AutoModelForSequenceClassification

        try:
            config = AutoConfig.from_pretrained(name)
        except (OSError, ValueError) as error:
            fix = "give a folder, or a name on the hub"
            raise ConfigError(f"reward model {name!r}", str(error).strip().splitlines()[0], fix) from error
        _check_config(name, config.architectures, config.num_labels)
        text = config.get_text_config()
        self.dialogue = Dialogue(name, max_length or getattr(text, "max_position_embeddings", None))
        self.pad, text.use_cache = _pad(self.dialogue, text.pad_token_id), False
        text.pad_token_id = self.pad
        self.vocabulary = int(text.vocab_size)
        with no_bars():
            model = AutoModelForSequenceClassification.from_pretrained(name, config=config, dtype=_torch_dtype(dtype))
        if dtype == "int8":
            from workbench.rewards.models.int8 import to_int8

            to_int8(model.base_model)
        self.device = torch.device(device)
        self.model = model.eval().requires_grad_(False).to(self.device)

    def forward(self, ids: Sequence[list[int]]) -> list[float]:
        """Scores of a batch, padded on the right."""
        import torch

        width = max(map(len, ids))
        tokens = torch.tensor([row + [self.pad] * (width - len(row)) for row in ids], device=self.device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids], device=self.device)
        with torch.inference_mode():
            logits = self.model(input_ids=tokens, attention_mask=mask).logits  # (rows, 1)
        scores: list[float] = logits[:, 0].float().tolist()
        return scores


def _is_path(model: str | Path) -> bool:
    name = str(model)
    return (
        isinstance(model, Path) or Path(name).expanduser().is_dir() or name.startswith((".", "/", "~")) or name.count("/") > 1 or not name
    )


def _check_folder(folder: Path) -> None:
    """Raise ConfigError where the folder holds no reward model: said where it is written, long before it is loaded."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"reward model {str(folder)!r}", f"its config.json can't be read ({error})", "give a checkpoint's folder"
        ) from error
    labels = len(config["id2label"]) if "id2label" in config else config.get("num_labels", 2)  # two are transformers' default
    _check_config(str(folder), config.get("architectures"), labels)


def _check_config(name: str, architectures: Sequence[str] | None, labels: int) -> None:
    asked, known = f"reward model {name!r}", ", ".join(architectures or ()) or "a model of no said kind"
    if not any(architecture.endswith(HEAD) for architecture in architectures or ()):
        fix = f"give a model whose kind ends in {HEAD}, saved with num_labels=1; another kind can be a reward function that runs it"
        raise ConfigError(asked, f"it is {known}, which gives no score", fix)
    if labels != 1:
        found = f"it is {known} with {labels} labels: which of them would be the reward?"
        raise ConfigError(asked, found, "give a model with num_labels=1; a classifier can be a reward function that picks its label")


def _pad(dialogue: Dialogue, configured: int | None) -> int:
    """The id to pad with: the model finds the last token by it."""
    for pad in (configured, dialogue.raw.pad_token_id, dialogue.raw.eos_token_id):
        if pad is not None:
            return int(pad)
    found = "neither its config nor its tokenizer has a padding or an end token, so rows can't be batched"
    raise ConfigError(f"reward model {dialogue.model!r}", found, "set pad_token in its tokenizer_config.json")


def _torch_dtype(dtype: str) -> "torch.dtype":
    import torch

    return torch.float32 if dtype == "float32" else torch.bfloat16
