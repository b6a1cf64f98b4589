"""The static twin of the curves: figure, HTML and text."""

import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from io import BytesIO

import pytest
from PIL import Image

from workbench.events import EventLog
from workbench.palette import LIGHT
from workbench.records import Knob, Samples, State
from workbench.views.figure import DPI, HEIGHT_IN, WIDTH_IN
from workbench.views.report import report

Play = Callable[..., EventLog]


def test_the_figure_has_its_size_and_the_colours_of_the_palette(play: Play) -> None:
    image = Image.open(BytesIO(report(play(60, finish=True).events).png)).convert("RGB")
    assert image.size == (round(WIDTH_IN * DPI), round(HEIGHT_IN * DPI)) == (1440, 840)
    seen = {colour: count for count, colour in image.getcolors(maxcolors=256) or []}
    for name in ("rollout", "reference", "update_actor", "reward"):
        wanted = tuple(int(LIGHT[name][at : at + 2], 16) for at in (1, 3, 5))
        near = sum(count for colour, count in seen.items() if max(abs(a - b) for a, b in zip(colour, wanted, strict=True)) <= 6)
        assert near > 100, name


def test_the_figure_is_small_enough_to_be_saved_twice(play: Play) -> None:
    assert 5_000 < len(report(play(2000, 2000, finish=True).events).png) < 60_000


def test_with_a_critic_the_figure_is_a_row_taller_and_the_rest_is_on_a_fold(play_ppo: Play) -> None:
    found = report(play_ppo(20, finish=True).events)
    assert Image.open(BytesIO(found.png)).size == (1440, 840 * 3 // 2)
    assert found.html.count("<img") == 2
    assert "<details" in found.html
    assert "<summary>More curves: Reward: right, Reward: style/cut_rows, Critic&#x27;s gradient" in found.html
    assert "Value loss, Explained variance over the steps" in found.html
    row = next(line for line in found.text.splitlines() if line.startswith("Explained variance"))
    assert row.split()[-1] == "0.85"  # 1 - 3 / 20
    assert max(map(len, found.text.splitlines())) <= 100


def test_without_more_there_is_no_fold(play: Play) -> None:
    assert "<details" not in report(play(5).events).html


def test_one_step_is_enough_for_a_figure(play: Play) -> None:
    assert len(report(play(1).events).png) > 5_000


def test_without_a_step_there_is_no_figure_but_all_the_words() -> None:
    found = report([])
    assert found.png == b""
    assert set(found.bundle()) == {"text/plain", "text/html"}
    assert "not started yet" in found.text


def test_the_html_holds_the_figure_and_no_style_element(play: Play) -> None:
    found = report(play(5).events)
    bundle = found.bundle()
    assert b64decode(bundle["image/png"]) == found.png
    assert bundle["image/png"] in bundle["text/html"]
    assert "<style" not in bundle["text/html"]
    assert "class=" not in bundle["text/html"]


def test_the_text_reads_in_a_terminal(play: Play) -> None:
    lines = report(play(60, finish=True).events).text.splitlines()
    assert lines[0] == "quickstart · GRPO · tiny-llama-1.7m · finished · step 60 of 60"
    assert max(map(len, lines)) <= 100
    reward = next(line for line in lines if line.startswith("Reward"))
    assert reward.split()[-1] == "0.84"
    assert "▁" in reward
    assert "█" in reward


def test_a_failure_stands_in_every_form(play: Play) -> None:
    log = play(3)
    log.emit(State("failed", "SyncError: <stale>\n  fix: restart"))
    found = report(log.events)
    assert "SyncError: <stale>\n  fix: restart" in found.text
    assert "SyncError: &lt;stale&gt;\n  fix: restart" in found.html


def test_what_changed_is_listed_the_last_of_many(play: Play) -> None:
    log = play(40)
    assert "Changed" not in report(log.events).html
    log.emit(Knob(6, "temperature", 1.0, 0.7))
    assert "  step 6: temperature 1 → 0.7" in report(log.events).text.splitlines()
    assert "step 6: temperature 1 → 0.7" in report(log.events).html
    for step in range(8, 40, 2):
        log.emit(Knob(step, "prompts", step, step + 1))
    lines = report(log.events).text.splitlines()
    assert "  5 earlier changes" in lines
    assert sum(": prompts " in line for line in lines) == 12


def test_samples_are_escaped(play: Play) -> None:
    log = play(3)
    log.emit(Samples(3, ["<script>alert(1)</script>"], ["<b>"], ["&"], [1.0], [0.0]))
    html = report(log.events).html
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def loaded(code: str, names: set[str]) -> set[str]:
    """Which of ``names`` are loaded in a fresh Python after ``code``."""
    out = subprocess.run([sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True)
    return names & set(out.stdout.split())


@pytest.mark.parametrize("module", ["workbench.views", "workbench.views.report", "workbench.views.summary"])
def test_importing_the_views_loads_no_drawing_and_no_models(module: str) -> None:
    heavy = {"matplotlib", "anywidget", "PIL", "torch", "vllm", "ray", "transformers"}
    assert loaded(f"import {module}", heavy) == set()


def test_drawing_leaves_pyplot_alone() -> None:
    code = "from workbench.views import report; from workbench.views.figure import png; png(report([]).chart)"
    assert loaded(code, {"matplotlib", "matplotlib.pyplot"}) == {"matplotlib"}
