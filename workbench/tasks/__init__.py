"""Tasks: where prompts come from, which of them are never trained on, and what an answer is worth."""

from workbench.tasks.files import from_file
from workbench.tasks.gym import reasoning_gym
from workbench.tasks.hub import from_dataset
from workbench.tasks.letters import sorting
from workbench.tasks.lists import from_list
from workbench.tasks.messages import Conversation, Message
from workbench.tasks.prefetch import Prefetch
from workbench.tasks.rebuild import rebuild
from workbench.tasks.scorers import regex
from workbench.tasks.task import Demonstrations, Example, Origin, Scorer, Task

__all__ = [
    "Conversation",
    "Demonstrations",
    "Example",
    "Message",
    "Origin",
    "Prefetch",
    "Scorer",
    "Task",
    "from_dataset",
    "from_file",
    "from_list",
    "reasoning_gym",
    "rebuild",
    "regex",
    "sorting",
]
