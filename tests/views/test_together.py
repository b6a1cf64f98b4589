"""All views together, and each by its name."""

import json
import subprocess
from pathlib import Path

import pytest

import workbench as wb
from workbench import views
from workbench.errors import ConfigError, StateError
from workbench.views.together import VIEWS

from . import made
from .conftest import play
from .test_knobs import Steered


def test_a_run_that_can_be_steered_has_all_views_a_past_one_no_knobs() -> None:
    run = Steered()
    assert list(views.board(run.log, run=run).views) == ["curves", "knobs", "topology", "load", "timeline", "samples"]
    assert list(views.board(made.begun(made.SMALL)).views) == ["curves", "topology", "load", "timeline", "samples"]


def test_each_is_the_one_that_stands_alone_too() -> None:
    log = made.begun(made.SMALL)
    shown = views.board(log)
    assert all(views.view(name, log) is view for name, view in shown.views.items())
    assert views.board(log) is shown
    assert views.watch(log) is shown.views["curves"]
    shown.close()
    assert views.board(log) is not shown


def test_each_is_marked_with_its_name() -> None:
    run = Steered()
    for name in VIEWS:
        assert f'"{name}"' in str(views.view(name, run.log, run=run)._esm)


@pytest.mark.parametrize("name", VIEWS)
def test_what_a_browser_gets_is_one_module(name: str, tmp_path: Path) -> None:
    """A name that two of its files declare would else be found by a browser only."""
    run = Steered()
    module = tmp_path / "view.mjs"
    module.write_text(str(views.view(name, run.log, run=run)._esm), encoding="utf-8")
    said = f"import view from {json.dumps(module.as_uri())}; console.log(typeof view.render)"
    made_of = subprocess.run(["node", "--input-type=module", "-e", said], capture_output=True, text=True, check=True, timeout=60)
    assert made_of.stdout == "function\n"


def test_the_machine_and_the_badge_reach_the_views() -> None:
    log = made.begun(made.SMALL)
    shown = views.board(log, wb.Topology.preset("l40s-4"), badge="replayed")
    assert "l40s-4" in shown.views["topology"].picture["svg"]
    assert [shown.views[name].now["badge"] for name in ("topology", "load", "timeline", "samples")] == ["replayed"] * 4


def test_what_there_is_no_view_of() -> None:
    log = made.begun(made.SMALL)
    with pytest.raises(ConfigError, match="the views are curves, knobs, topology, load, timeline, samples"):
        views.view("gpus", log)
    with pytest.raises(StateError, match="this run is over"):
        views.view("knobs", log)


def test_where_no_widget_runs_there_are_all_twins() -> None:
    shown = views.board(play(3, finish=True))
    bundle = shown._repr_mimebundle_()
    assert bundle is not None
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.model_id
    assert bundle["image/png"].startswith("iVBOR")
    assert bundle["text/plain"] == repr(shown)
    for words in ("finished", "CPU slot 0", "no load was sampled yet", "Timeline of", "samples of step 3"):
        assert words in bundle["text/html"]
    assert (shown.state, len(shown.children)) == ("finished", 5)


def test_a_shown_board_is_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[str] = []

    class Handle:
        def update(self, bundle: dict[str, str], *, raw: bool) -> None:
            updates.append(bundle["text/plain"])

    monkeypatch.setattr("IPython.display.display", lambda *_, **__: Handle())
    log = made.begun(made.SMALL)
    shown = views.board(log)
    views.refresh(log)
    assert updates == []
    shown._ipython_display_()
    made.whole(log, 1)
    views.refresh(log)
    assert "steps 1" in updates[0] or "step 1 in 9.00 s" in updates[0]


def test_a_stream_without_a_board_has_nothing_to_refresh() -> None:
    views.refresh(made.EventLog())
