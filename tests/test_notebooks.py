"""The notebooks, executed as a user would: by the command, in their own kernels."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

import workbench as wb
from workbench.past import PastRun

ROOT = Path(__file__).parent.parent


pytestmark = pytest.mark.usefixtures("free_process")  # no engine beside theirs


def execute(notebook: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workbench", "run", str(ROOT / notebook), "-o", "out.ipynb", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def outputs(folder: Path) -> dict[str, list[Any]]:
    """The outputs of each cell, by the cell's last line."""
    cells = nbformat.read(folder / "out.ipynb", 4).cells
    return {cell.source.splitlines()[-1]: cell.outputs for cell in cells if cell.cell_type == "code"}


def kinds(cell: list[Any]) -> set[str]:
    return {kind for output in cell for kind in output.get("data", {})}


def test_the_quickstart_learns_and_leaves_a_readable_notebook(tmp_path: Path) -> None:
    """The demo in full; its last cells check the gain themselves."""
    done = execute("recipes/quickstart.ipynb", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "held-out reward: 0." in done.stdout + done.stderr
    cells = outputs(tmp_path)
    assert {"image/png", "text/html", "text/plain"} <= kinds(cells["run.summary()"])
    assert "text/html" in kinds(cells["run.batch"])
    metrics = json.loads((tmp_path / "runs" / "quickstart" / "metrics.json").read_text())
    reward = metrics["held_out_reward"]
    assert metrics["steps"] == 100
    assert 0.2 <= reward["before"] <= 0.4
    assert reward["after"] - reward["before"] >= max(0.3, 5 * reward["stderr"])
    assert metrics["sync"]["max_logprob_diff"] < 1e-3
    assert (tmp_path / "runs" / "quickstart" / "adapter" / "adapter_model.safetensors").exists()


def test_the_first_lesson_runs_headless_and_its_live_view_ends_as_a_picture(tmp_path: Path) -> None:
    done = execute("notebooks/01_first_run.ipynb", tmp_path, "-p", "steps", "6", "-p", "pause_after", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    cells = outputs(tmp_path)
    assert {"image/png", "text/html", "text/plain"} <= kinds(cells["run.watch()"])
    assert "step 6 of 6" in str(cells["run.watch()"])
    assert "image/png" in kinds(cells["run.summary()"])
    assert "metrics.json" in str(cells["sorted(path.name for path in run.path.iterdir())"])


def test_the_second_lesson_trains_by_code_of_its_own_and_goes_on_after_a_loss(tmp_path: Path) -> None:
    """Ten steps; the notebook's own checks look at the restored run's steps, its knob, and what its reward had counted."""
    done = execute("notebooks/02_your_own_task.ipynb", tmp_path, "-p", "steps", "10", "-p", "held_out", "16")
    assert done.returncode == 0, done.stdout + done.stderr
    cells = outputs(tmp_path)
    assert "'aebn': 1.0, 'eabn': 0.5, 'ae': 0.5" in str(cells["worth"])
    assert "vLLM samples at temperatures up to 2" in str(cells["    print(refused)"])
    assert "learning_rate" in str(cells["own.knobs"])
    scored = re.findall(r"(\d+) answers scored, (\d+) before the loss", done.stdout + done.stderr)
    assert [restored == before for restored, before in scored] == [True]
    assert {"image/png", "text/html", "text/plain"} <= kinds(cells["wb.compare(rloo, own)"])
    ranks = wb.Run.load(tmp_path / "runs" / "own-task-ranks")
    assert (ranks.state, [step.step for step in ranks.steps]) == ("finished", list(range(1, 11)))
    assert [(knob.name, knob.old, knob.new) for knob in ranks.turned] == [("learning_rate", 2e-3, 1e-3)]
    assert [score.step for score in ranks.held_out] == [0, 10]
    assert "restored" in [event.kind for event in ranks.events]


def test_a_pretrained_model_runs_a_task_of_reasoning_gym(tmp_path: Path) -> None:
    """Two small steps; the notebook's own checks look at the steps, the engine's agreement and the adapter."""
    small = {"steps": "2", "prompts": "4", "group_size": "4", "held_out": "4", "max_tokens": "4"}
    done = execute("recipes/reasoning_gym.ipynb", tmp_path, *(part for pair in small.items() for part in ("-p", *pair)))
    assert done.returncode == 0, done.stdout + done.stderr
    cells = outputs(tmp_path)
    assert "takes turns with the actor" in str(cells["devices"])
    assert "smollm2" in str(cells["run.summary()"])
    metrics = json.loads((tmp_path / "runs" / "reasoning_gym" / "metrics.json").read_text())
    assert metrics["steps"] == 2
    assert metrics["sync"]["max_logprob_diff"] is None or metrics["sync"]["max_logprob_diff"] < 1e-3


def test_a_map_that_cannot_be_obeyed_fails_the_run_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "critic.yaml").write_text("actor: cpu\ncritic: {share: actor}\n")
    done = execute("recipes/quickstart.ipynb", tmp_path, "--device-map", "critic.yaml")
    assert done.returncode == 1
    assert "GRPO takes advantages from rewards alone" in done.stdout + done.stderr


def test_one_recipe_for_any_map_here_with_the_rollout_apart_and_a_step_ahead(tmp_path: Path) -> None:
    """Two processes by Ray; the notebook's own checks look at placement, proofs and staleness."""
    small = {"cpu_slots": "2", "map": "{actor: 0, rollout: 1}", "overlap": "1", "steps": "3", "prompts": "8", "held_out": "0"}
    done = execute("recipes/grpo_lora.ipynb", tmp_path, *(part for pair in small.items() for part in ("-p", *pair)))
    assert done.returncode == 0, done.stdout + done.stderr
    cells = outputs(tmp_path)
    assert "sync          actor -> rollout     adapter" in str(cells["run.routes"])
    assert {"image/png", "text/html", "text/plain"} <= kinds(cells["run.timeline()"])
    assert "4 seats as mapped, 4 syncs proved" in done.stdout + done.stderr
    run = wb.Run.load(tmp_path / "runs" / "grpo_lora")
    assert [step.staleness for step in run.steps] == [0, 1, 1]


def test_a_reward_service_that_is_killed_in_the_middle(tmp_path: Path) -> None:
    """The recipe starts a real server, kills it, starts it again; its own checks look at steps and rollouts."""
    small = {"steps": "4", "prompts": "16", "group_size": "4"}
    done = execute("recipes/reward_service.ipynb", tmp_path, *(part for pair in small.items() for part in ("-p", *pair)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "paused after step" in done.stdout + done.stderr
    assert "4 steps, 4 rollouts" in done.stdout + done.stderr


def run_ppo(folder: Path, options: dict[str, str]) -> tuple[subprocess.CompletedProcess[str], PastRun]:
    """The recipe of PPO with small steps; its own checks look at placement, both adapters, the warm-up and every sync."""
    small = {"steps": "3", "prompts": "8", "held_out": "0", "critic_warmup": "1"} | options
    done = execute("recipes/ppo_lora.ipynb", folder, *(part for pair in small.items() for part in ("-p", *pair)))
    assert done.returncode == 0, done.stdout + done.stderr
    return done, wb.Run.load(folder / "runs" / "ppo_lora")


def test_ppo_with_a_critic_on_the_actors_base_in_one_process(tmp_path: Path) -> None:
    done, run = run_ppo(tmp_path, {})
    cells = outputs(tmp_path)
    assert "values        critic -> driver     values                     stay" in str(cells["run.routes"])
    assert {"image/png", "text/html", "text/plain"} <= kinds(cells["run.timeline()"])
    assert "5 seats as mapped, 3 syncs proved" in done.stdout + done.stderr
    assert [step.tokens_trained > 0 for step in run.steps] == [False, True, True]
    assert all({"values", "update_critic"} <= set(step.phase_seconds) for step in run.steps)


@pytest.mark.long
def test_the_five_roles_of_ppo_on_four_processes(tmp_path: Path) -> None:
    """By Ray; reference and reward share the fourth."""
    places = "{actor: 0, critic: 1, rollout: 2, reference: 3, reward: 3}"
    done, run = run_ppo(tmp_path, {"cpu_slots": "4", "map": places})
    routes = str(outputs(tmp_path)["run.routes"])
    assert "values        critic -> driver     values" in routes
    assert "sync          actor -> rollout     adapter                    broadcast" in routes
    assert "5 seats as mapped, 3 syncs proved" in done.stdout + done.stderr
    placed = next(event.data["placement"] for event in run.events if event.kind == "run_started")
    assert placed["critic"] == ["cpu:1"]
