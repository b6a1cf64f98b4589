"""What runs that are killed have in common: a reward whose memory has to survive, prompts, and the numbers that have to be the same."""

from dataclasses import asdict
from pathlib import Path
from typing import Any


class Rewarding:
    """Likes the letter a, by a measure that changes with what it was asked before: its memory has to be in the checkpoint."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, prompt: str, completion: str, answer: Any) -> float:
        self.asked += 1
        return float(completion.count("a") > (self.asked // 300) % 2)

    def state_dict(self) -> dict[str, int]:
        """For the checkpoint."""
        return {"asked": self.asked}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """From the checkpoint."""
        self.asked = state["asked"]


def prompts() -> list[tuple[str, str]]:
    """56 prompts of two letters."""
    return [(f"sort {a}{b}=", "".join(sorted(a + b))) for a in "abcdefgh" for b in "mnopqrs"]


def numbers(folder: Path) -> dict[str, Any]:
    """What has to be the same however often the run was killed: every step's numbers, the scores, the adapter's bits."""
    from safetensors.torch import load_file

    from workbench.run import Run

    run = Run.load(folder / "kill")
    timed = ("seconds", "phase_seconds", "data_wait_seconds", "ahead_seconds", "scored_early", "rested_seconds")
    steps = [{name: value for name, value in asdict(step).items() if name not in timed} for step in run.steps]
    adapter = load_file(folder / "kill" / "adapter" / "adapter_model.safetensors")
    return {
        "steps": steps,
        "held_out": [asdict(score) for score in run.held_out],
        "knobs": [asdict(knob) for knob in run.turned],
        "adapter": {name: tensor.view(-1).tolist() for name, tensor in adapter.items()},
    }
