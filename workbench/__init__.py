"""A Jupyter-first workbench for RL post-training of language models: map, train, roll out, reshard, watch."""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

# Threads of OpenMP that wait by spinning slow a CPU engine down ten times as soon as anything else runs beside it.
# Read when torch is loaded, so it has to stand here; a value of the user's own is kept.
TORCH_CAME_FIRST = "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Ray prints this for each worker that is ended, on purpose too; a death is told by the run. Read when Ray is imported, which vLLM does.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a C++ warning at every engine start on a CPU, straight to stderr

if TYPE_CHECKING:
    from workbench import algos, rewards, tasks
    from workbench.algos import GRPO, PPO
    from workbench.errors import WorkbenchError
    from workbench.mapping import DeviceMap, template
    from workbench.models.critic import Critic
    from workbench.models.lora import LoRA
    from workbench.models.optimizer import Optimizer
    from workbench.past import compare
    from workbench.roles import Role
    from workbench.rollout.config import VLLM, Sampling
    from workbench.run import Run
    from workbench.runtime.settings import Ray
    from workbench.topology import Topology

_HOMES = {
    "Critic": "workbench.models.critic",
    "DeviceMap": "workbench.mapping",
    "GRPO": "workbench.algos",
    "LoRA": "workbench.models.lora",
    "Optimizer": "workbench.models.optimizer",
    "PPO": "workbench.algos",
    "Ray": "workbench.runtime.settings",
    "Role": "workbench.roles",
    "Run": "workbench.run",
    "Sampling": "workbench.rollout.config",
    "Topology": "workbench.topology",
    "VLLM": "workbench.rollout.config",
    "WorkbenchError": "workbench.errors",
    "compare": "workbench.past",
    "template": "workbench.mapping",
}
_ROOMS = ("algos", "rewards", "tasks")
__version__ = "0.1.0"

__all__ = [
    "GRPO",
    "PPO",
    "VLLM",
    "Critic",
    "DeviceMap",
    "LoRA",
    "Optimizer",
    "Ray",
    "Role",
    "Run",
    "Sampling",
    "Topology",
    "WorkbenchError",
    "algos",
    "compare",
    "rewards",
    "tasks",
    "template",
]


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is asked for: ``import workbench`` alone stays light."""
    if name in _ROOMS:
        return importlib.import_module(f"workbench.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'workbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
