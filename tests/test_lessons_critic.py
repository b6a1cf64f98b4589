"""The lesson on actor and critic: its checks and its critic without a kernel, and the whole of it with real runs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
import torch

import workbench as wb
from tests.test_lessons_maps import cell_with, execute, printed, value
from workbench.models import tiny
from workbench.models.base import Base, BasePlan
from workbench.models.critic import ADAPTER, CriticPlan, ValueModel
from workbench.models.packing import Row

LESSON = Path(__file__).parent.parent / "notebooks" / "06_actor_and_critic.ipynb"
ANSWERS = {"saved_gb": "28", "surprise": "4", "first_advantage": "-0.5", "discounted": "0.729", "explained": "-3"}
SMALL = tiny.Shape(hidden=64, layers=2, heads=2, kv_heads=2, feed_forward=64)
ADAM = 3 * 4  # bytes of a trained weight: itself and two moments, in float32


def code() -> list[str]:
    return [cell.source for cell in nbformat.read(LESSON, 4).cells if cell.cell_type == "code"]


def answered(reward: float, advantage: float) -> Any:
    return SimpleNamespace(reward=reward, advantages=torch.tensor([advantage, advantage]))


@pytest.fixture(scope="module")
def scope() -> dict[str, Any]:
    """What the lesson's cells define; its answers are made up."""
    answers = {n: [answered(1.0, 0.1 * n), answered(0.0, 2.0)] for n in (2, 3, 4)}
    found: dict[str, Any] = {"wb": wb, "torch": torch, "answers": answers} | dict.fromkeys(ANSWERS)
    for text in ("class Question", "def wrong_saving", "def wrong_letters", "def advantages", "def wrong_first", "def wrong_health"):
        exec(next(source for source in code() if text in source), found)
    return found


@pytest.mark.parametrize(
    ("check", "answer", "why"),
    [
        ("wrong_saving", 28, ""),
        ("wrong_saving", "14", "that is one copy"),
        ("wrong_saving", 7, "a weight has two bytes"),
        ("wrong_saving", "much", "copies that are not there"),
        ("wrong_letters", "4", ""),
        ("wrong_letters", 2, r"theirs is +0.20 on average"),
        ("wrong_letters", "5", "2, 3 or 4"),
        ("wrong_first", "-0.5", ""),
        ("wrong_first", 0.5, "the sign"),
        ("wrong_first", "0.3", "that is λ = 0"),
        ("wrong_discount", 0.729, ""),
        ("wrong_discount", "0.73", ""),
        ("wrong_discount", "0.6561", "between the first and the fourth token lie three steps"),
        ("wrong_health", -3, ""),
        ("wrong_health", "-1", "return − value is"),
        ("wrong_health", 5, "1 − Var"),
    ],
)
def test_an_answer_and_what_is_wrong_with_it(scope: dict[str, Any], check: str, answer: object, why: str) -> None:
    said = scope[check](answer)
    assert said.startswith(why) if why else said == ""


def test_advantages_by_hand(scope: dict[str, Any]) -> None:
    """The lesson's example: δ is 0.3, -0.6, -0.2; and what its questions ask for."""
    by_hand = scope["advantages"]
    assert by_hand([0, 0, 0], [0.5, 0.8, 0.2], 1.0, 0.0) == pytest.approx([0.3, -0.6, -0.2])
    assert by_hand([0, 0, 0], [0.5, 0.8, 0.2], 1.0, 0.5) == pytest.approx([-0.05, -0.7, -0.2])
    returns_minus_values = by_hand([0, 0, 0], [0.5, 0.8, 0.2], 1.0, 1.0)
    assert returns_minus_values == pytest.approx([-0.5, -0.8, -0.2])
    assert scope["wrong_first"](returns_minus_values[0]) == ""
    assert scope["wrong_discount"](by_hand([0, 0, 0, 1], [0, 0, 0, 0], 0.9, 1.0)[0]) == ""
    returns, values = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    assert scope["wrong_health"](1 - float((returns - values).var() / returns.var())) == ""


def test_the_critic_in_a_folder_says_what_the_one_in_training_said(tmp_path: Path) -> None:
    """By transformers and peft alone, as the lesson loads it; adapter and head are not zero."""
    tiny.build(16, SMALL).save_pretrained(tmp_path / "model")
    base = Base(BasePlan(tmp_path / "model", "cpu", "float32"), adapters={"default": (wb.LoRA(4), 0), ADAPTER: (wb.LoRA(4), 1)})
    critic = ValueModel(base, CriticPlan(wb.LoRA(4), wb.Optimizer(), 1))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in critic.learner.named.values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    critic.save(tmp_path / "critic")
    found: dict[str, Any] = {"json": json, "run": SimpleNamespace(path=tmp_path)}
    exec(next(source for source in code() if "def values" in source), found)
    row = Row((3, 4, 5), (6, 7, 8, 9))
    expected = critic.values([row])[0]
    assert expected.std() > 0.01
    assert torch.allclose(found["values"](row.prompt, row.response), expected, atol=1e-5)


@pytest.mark.long
@pytest.mark.usefixtures("free_process")
def test_the_lesson_with_right_answers(tmp_path: Path) -> None:
    """Three processes that are measured, and two runs."""
    cells = execute(LESSON, tmp_path, ANSWERS)
    assert value(cell_with(cells, "questions = ")) == "'5 of 5 right'"
    pictures = [cell for cell in cells if any("image/png" in output.get("data", {}) for output in cell.outputs)]
    assert len(pictures) == 4
    _check_memory(printed(cell_with(cells, "SOURCE =")))
    runs = [wb.Run.load(tmp_path / "runs" / f"critic-{name}") for name in ("at-once", "warmed")]
    assert [[bool(step.tokens_trained) for step in run.steps[:5]] for run in runs] == [[True] * 5, [False] * 4 + [True]]
    for run in runs:
        assert run.steps[0].explained_variance == pytest.approx(0.0, abs=0.01)
        assert max(step.explained_variance or 0.0 for step in run.steps) > 0.2
        assert run.steps[-1].reward_mean > run.steps[0].reward_mean + 0.15


def _check_memory(lines: str) -> None:
    """What was measured is what the tensors take: 91.2 million weights, and adapters of rank 16 with two moments each."""
    base, adapter = 91.2e6 * 4 / 2**20, 2.80e6 * ADAM / 2**20
    rows = {line[:12].strip(): [float(part.split()[-1]) for part in line[12:].partition("=")[0].split(",")] for line in lines.splitlines()}
    assert rows["one base"] == pytest.approx([base, adapter, adapter], abs=8)
    assert rows["apart"] == pytest.approx([base, adapter, base, adapter, base], abs=8)
    assert rows["all weights"][1] == pytest.approx(2 * base, rel=0.1)
