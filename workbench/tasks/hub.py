"""A data set of the Hugging Face hub, or one at hand as a ``datasets.Dataset``, as a task."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.tasks.messages import Chat
from workbench.tasks.prompts import HELD_OUT_SHARE
from workbench.tasks.rows import Row, Wanted, check_columns, chosen, origin_of, pick, task_of
from workbench.tasks.task import Origin, Scorer, Task

if TYPE_CHECKING:
    from datasets import Dataset


def from_dataset(
    source: "str | Dataset",
    *,
    split: str = "train",
    subset: str | None = None,
    prompt: str = "prompt",
    answer: str = "answer",
    scorer: Scorer | str | None = None,
    system: str | None = None,
    chat: bool = False,
    held_out: float = HELD_OUT_SHARE,
    name: str | None = None,
) -> Task:
    """A task from a data set: its name on the Hugging Face hub or its folder, with ``split`` and ``subset``, or a ``datasets.Dataset``.

    ``prompt`` and ``answer`` name the columns; for anything else, ``map`` the data set first and give that. The other arguments as
    for ``from_file``. A task made from a name can be rebuilt, one made from an object can't: keep the code that makes it.
    Raises ConfigError, with the row, on what can't be read, and on streamed data sets.
    """
    title = name or _title(source, subset)
    wanted = Wanted(title, chosen(scorer, title), held_out, Chat(chat, system))
    dataset = _loaded(source, split, subset) if isinstance(source, str) else _given(source, split, subset)
    rows = _rows(dataset, (prompt, answer), title)
    origin: Origin | None = None
    if isinstance(source, str):
        arguments: dict[str, Any] = {"source": _absolute(source), "split": split, "subset": subset, "prompt": prompt, "answer": answer}
        arguments |= {"system": system, "chat": chat, "held_out": held_out, "name": title}
        origin = origin_of("from_dataset", wanted.scorer, arguments)
    return task_of(rows, wanted, origin=origin)


def _rows(dataset: "Dataset", columns: tuple[str, str], title: str) -> list[Row]:
    check_columns(dataset.column_names, columns, f"data set {title!r}")
    if not len(dataset):
        raise ConfigError(f"data set {title!r}", "it has no rows", "give one with prompts and answers")
    plain = dataset.select_columns(list(dict.fromkeys(columns))).with_format(None)  # no tensors, whatever its format
    return [pick(row, columns, f"row {number} of {title}") for number, row in enumerate(plain)]


def _loaded(source: str, split: str, subset: str | None) -> "Dataset":
    """The data set called ``source``. Raises ConfigError with what the library says where it can't be had."""
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    asked = f"from_dataset({source!r}, split={split!r}{f', subset={subset!r}' if subset else ''})"
    try:
        return load_dataset(_absolute(source), subset, split=split)
    except (DatasetsError, OSError, ValueError) as error:
        fix = "check the name, split=... and subset=..., and the connection; from_file reads a file at hand"
        raise ConfigError(asked, f"it can't be loaded: {error}", fix) from error


def _given(source: Any, split: str, subset: str | None) -> "Dataset":
    """``source`` if it is a ``datasets.Dataset``, or its ``split``. Raises ConfigError on anything else."""
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

    asked = f"from_dataset of a {type(source).__name__}"
    if isinstance(source, IterableDataset | IterableDatasetDict):
        fix = "load it without streaming=True, or take a part: Dataset.from_list(list(dataset.take(10_000)))"
        raise ConfigError(asked, "a streamed data set has no order that a resumed run could go on in", fix)
    if subset is not None:
        raise ConfigError(f"{asked} with subset={subset!r}", "a data set that is loaded has no subsets", "give the subset to load_dataset")
    if isinstance(source, DatasetDict):
        if split not in source:
            raise ConfigError(f"{asked} with split={split!r}", f"it has {', '.join(map(repr, source))}", "name one of these")
        return source[split]
    if not isinstance(source, Dataset):
        raise ConfigError(asked, "that is no data set", "give a name, or a datasets.Dataset; from_list takes lists")
    if split not in ("train", str(source.split)):
        raise ConfigError(f"{asked} with split={split!r}", "it is one split already", "leave split out")
    return source


def _absolute(source: str) -> str:
    """A folder's whole path, which another process finds too; a name of the hub as it is."""
    return str(Path(source).resolve()) if Path(source).exists() else source


def _title(source: Any, subset: str | None) -> str:
    if not isinstance(source, str):
        return getattr(getattr(source, "info", None), "dataset_name", None) or "dataset"
    return Path(source).name + (f"/{subset}" if subset else "")
