"""What the live views share: the source that a browser gets, and one view a stream."""

import gc

import pytest
from ipywidgets.widgets import widget

from workbench.events import EventLog
from workbench.views.curves import Watch
from workbench.views.live import Shown, source


@pytest.mark.parametrize("name", ["curves.js", "knobs.js"])
def test_a_browser_gets_one_module_with_all_that_it_calls(name: str) -> None:
    text = source(name)
    assert text.count("export default") == 1
    assert "import " not in text
    for function in ("element", "say", "theme", "rooted", "follow"):
        assert text.count(f"function {function}(") == 1


@pytest.mark.parametrize("name", ["curves.css", "knobs.css"])
def test_a_style_sheet_has_the_states_of_every_view(name: str) -> None:
    assert source(name).count('[data-state="interrupted"] {') == 1


def test_a_stream_has_one_view_until_it_is_closed() -> None:
    shown: Shown[Watch] = Shown()
    log = EventLog()
    assert shown.of(log) is None
    view = shown.keep(log, Watch(log))
    assert shown.of(log) is view
    view.close()
    assert shown.of(log) is None


def test_nothing_of_a_closed_view_is_left_with_ipywidgets() -> None:
    before = len(widget._instances)
    Watch(EventLog()).close()
    assert len(widget._instances) == before


def test_neither_the_stream_nor_the_view_is_kept() -> None:
    shown: Shown[Watch] = Shown()
    log = EventLog()
    view = shown.keep(log, Watch(log))
    view.close()
    del log, view
    gc.collect()
    assert len(shown) == 0
