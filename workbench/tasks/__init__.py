"""Tasks: where prompts come from, which of them are never trained on, and what an answer is worth."""

from workbench.tasks.gym import reasoning_gym
from workbench.tasks.letters import sorting
from workbench.tasks.lists import from_list
from workbench.tasks.task import Demonstrations, Example, Scorer, Task

__all__ = ["Demonstrations", "Example", "Scorer", "Task", "from_list", "reasoning_gym", "sorting"]
