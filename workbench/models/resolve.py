"""From what a user calls a model to a folder: "tiny" (made here), "smollm2" (out of a package), a folder, or a name on the hub."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from workbench.errors import ConfigError
from workbench.models import smollm2

Report = Callable[[str, float, float, str], None]


class _Task(Protocol):
    name: str
    demonstrations: Any


def check_model(model: str | Path, task: _Task) -> str:
    """``model``, if it can be told now that it is one. Raises ConfigError where a path or package isn't there or the task unfit."""
    name = str(model)
    if name == "tiny":
        if task.demonstrations is None:
            found = f"the task {task.name!r} has no demonstrations to warm a fresh model up with"
            fix = "give model='smollm2', a folder or a name on the hub; or use wb.tasks.sorting()"
            raise ConfigError("model='tiny' (the default)", found, fix)
        return name
    if name == "smollm2":
        smollm2.find()
        return name
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ConfigError(f"model {name!r}", "the folder has no config.json", "give a checkpoint in the format of transformers")
        return str(path)
    if isinstance(model, Path) or name.startswith((".", "/", "~")) or name.count("/") > 1 or not name:
        raise ConfigError(f"model {name!r}", "no such folder", "give a checkpoint's folder, a name on the hub, 'smollm2' or 'tiny'")
    return name


def resolve_model(model: str, task: str, demonstrations: Any, report: Report) -> Path:
    """The folder of ``model``; "tiny" is built and warmed up, "smollm2" converted, a hub name downloaded: once, then cached."""
    if model == "tiny":
        from workbench.models.warm_start import ensure

        return ensure(task, demonstrations, progress=lambda done, total, note: report("warm_start", done, total, note))
    if model == "smollm2":
        return smollm2.ensure(lambda share, note: report("model", share, 1, note))
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    report("model", 0, 1, f"fetching {model}")
    try:
        return Path(snapshot_download(model, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        found = f"not a folder, and the hub gave nothing{offline}: {str(error).strip().splitlines()[0]}"
        raise ConfigError(f"model {model!r}", found, "check the name, or give a local folder; 'smollm2' and 'tiny' need no hub") from error
