"""A task made again from the plain JSON that a run keeps of it."""

from workbench.errors import ConfigError
from workbench.tasks.gym import reasoning_gym
from workbench.tasks.letters import sorting
from workbench.tasks.task import Origin, Task


def rebuild(origin: Origin) -> Task:
    """The task that ``origin`` tells of. Raises ConfigError where it can't be made again: an unknown call, a changed file."""
    arguments = dict(origin.arguments)
    match origin.call:
        case "sorting":
            return sorting(arguments["alphabet"], dict(arguments["lengths"]))
        case "reasoning_gym":
            return reasoning_gym(**arguments)
    known = "this version rebuilds sorting and reasoning_gym"
    raise ConfigError(f"rebuild a task of {origin.call!r}", known, "make the task as before, and give it: task=...")
