"""The page on Prometheus and the dashboard: each name is one that the exporter gives, with its labels."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.telemetry.scrapes import everything
from workbench.telemetry.tally import Tally

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = DOCS / "prometheus.md"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana" / "workbench.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel.get("targets", ())]
OF_QUERIES = {"le", "__name__"}


def given() -> dict[str, set[str]]:
    """Name of every sample -> its labels."""
    tally, story = Tally("a-run"), everything()
    for event in story.events:
        tally.take(event)
    found: dict[str, set[str]] = {}
    for family in tally.families(story.now):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


GIVEN = given()


def variables() -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in DASHBOARD["templating"]["list"]}


def labels_used(expr: str) -> Iterator[tuple[str, set[str]]]:
    """(name, the labels that are asked of it) of each selector; and what is grouped by, of all names of the expression."""
    names = re.findall(r"workbench_\w+", expr)
    for name, within in re.findall(r"(workbench_\w+)\{([^}]*)\}", expr):
        yield name, set(re.findall(r"(\w+)\s*=~?", within))
    for grouped in re.findall(r"\bby \(([^)]*)\)", expr):
        for label in re.findall(r"\w+", grouped):
            assert label in OF_QUERIES or any(label in GIVEN[name] for name in names), (label, expr)


@pytest.mark.parametrize(("title", "target"), TARGETS, ids=[f"{title}-{target['refId']}" for title, target in TARGETS])
def test_each_query_names_what_the_exporter_gives(title: str, target: dict[str, Any]) -> None:
    expr = target["expr"]
    names = set(re.findall(r"workbench_\w+", expr))
    assert names
    assert names <= GIVEN.keys(), names - GIVEN.keys()
    for name, labels in labels_used(expr):
        assert labels <= GIVEN[name], (name, labels - GIVEN[name])
    assert set(re.findall(r"\$(\w+)", expr)) <= {*variables(), "__rate_interval"}
    shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert shown <= set().union(*(GIVEN[name] for name in names))
    assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert [expr.count(one) for one in "([{"] == [expr.count(one) for one in ")]}"]
    for function, name in re.findall(r"\b(rate|histogram_quantile)\((workbench_\w+)", expr):
        assert function == "rate"
        assert name.endswith(("_total", "_sum", "_count", "_bucket")), f"{name} is no counter"


def test_variables_name_what_the_exporter_gives() -> None:
    assert list(variables()) == ["datasource", "run", "node", "gpu"]
    assert variables()["datasource"]["query"] == "prometheus"
    for name in ("run", "node", "gpu"):
        query = variables()[name]["query"]["query"]
        asked, label = re.fullmatch(r"label_values\((workbench_\w+)(?:\{.*\})?, (\w+)\)", query).groups()  # type: ignore[union-attr]
        assert label == name
        assert label in GIVEN[asked]
        assert set(re.findall(r"(\w+)=~", query)) <= GIVEN[asked]


def test_panels_have_a_place_of_their_own() -> None:
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids) > 30
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        references = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(references)) == len(references)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in PANELS)
        for x, y in itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
    ]
    assert len(set(cells)) == len(cells)


def test_what_the_dashboard_shows() -> None:
    asked = set(re.findall(r"workbench_\w+", json.dumps(PANELS)))
    for part in (
        "role_busy",
        "memory_used",
        "power",
        "temperature",
        "phase_seconds",
        "idle",
        "reward_mean",
        "kl",
        "entropy",
        "tokens",
        "finding",
    ):
        assert any(part in name for name in asked), part
    assert (DASHBOARD["schemaVersion"], DASHBOARD["id"]) == (39, None)


def test_the_page_lists_every_name_with_its_labels() -> None:
    rows = re.findall(r"^\| `(workbench_\w+)` \| ([^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = {name: set(re.findall(r"\w+", labels)) for name, labels in rows}
    base = {re.sub(r"_(bucket|sum|count)$", "", name): labels - {"run", "le"} for name, labels in GIVEN.items()}
    assert len(listed) == len(rows)
    assert listed == base


def test_what_the_page_says_of_alerts_names_what_there_is() -> None:
    assert set(re.findall(r"workbench_\w+", PAGE.read_text(encoding="utf-8"))) - GIVEN.keys() <= {
        "workbench_step_seconds",
        "workbench_phase_seconds",
    }
