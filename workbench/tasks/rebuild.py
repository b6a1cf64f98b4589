"""A task made again from the plain JSON that a run keeps of it."""

from pathlib import Path

from workbench.errors import ConfigError
from workbench.manifest import sha256
from workbench.tasks.files import from_file
from workbench.tasks.gym import reasoning_gym
from workbench.tasks.hub import from_dataset
from workbench.tasks.letters import sorting
from workbench.tasks.scorers import regex
from workbench.tasks.task import Origin, Scorer, Task


def rebuild(origin: Origin) -> Task:
    """The task that ``origin`` tells of. Raises ConfigError where it can't be made again: an unknown call, a changed file."""
    arguments = dict(origin.arguments)
    match origin.call:
        case "sorting":
            return sorting(arguments["alphabet"], dict(arguments["lengths"]))
        case "reasoning_gym":
            return reasoning_gym(**arguments)
        case "from_file":
            _check_unchanged(arguments["path"], arguments.pop("sha256"))
            return from_file(**arguments | _scorer(arguments["scorer"]))
        case "from_dataset":
            return from_dataset(**arguments | _scorer(arguments["scorer"]))
    known = "this version rebuilds sorting, reasoning_gym, from_file and from_dataset"
    raise ConfigError(f"rebuild a task of {origin.call!r}", known, "make the task as before, and give it: task=...")


def _scorer(plain: str | dict[str, str]) -> dict[str, Scorer | str]:
    return {"scorer": plain if isinstance(plain, str) else regex(plain["regex"])}


def _check_unchanged(path: str, digest: str) -> None:
    """The file is the one that the task was made of."""
    asked = f"rebuild the task of {path!r}"
    if not Path(path).is_file():
        raise ConfigError(asked, "the file is no longer there", "put it back, or make the task anew and give it: task=...")
    if sha256(Path(path)) != digest:
        found = f"the file has changed since: its SHA-256 was {digest[:12]}..."
        raise ConfigError(asked, found, "put the old file back; to train on other data, start a new run")
