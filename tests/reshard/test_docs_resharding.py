"""The page on resharding: what it lists is what there is, and what it shows runs."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from workbench.records import Sync
from workbench.rollout.config import MODES
from workbench.survey.reshard import plan

PAGE = (Path(__file__).parent.parent.parent / "docs" / "resharding.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_cells(title: str) -> list[str]:
    """The names in the first column of a section's table."""
    rows = re.findall(r"^\| (`[^|]+) \|", section(title), re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_all_modes_are_told() -> None:
    assert sorted(first_cells("Modes, and when which")) == sorted(MODES)


def test_all_fields_of_a_sync_are_told() -> None:
    assert sorted(first_cells("What a sync records")) == sorted(field.name for field in fields(Sync))


def test_the_numbers_of_the_example_are_those_of_the_command() -> None:
    asked = re.search(r"--train ([\d,]+) --generate ([\d,]+) --bytes (\w+)` prints them \(([\d., and]+) GB\)", PAGE)
    assert asked is not None
    report = plan(asked[1], asked[2], asked[3], None).report
    written = [float(number) * 1e9 for number in re.findall(r"[\d.]+", asked[4])]
    assert written == [way.moved for way in (report.hybrid, report.vanilla, report.full_gather)]


def test_the_example_runs_and_moves_half_of_what_each_rank_needs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example, {})
    needs = 1536 * 8960 * 2 / 2
    assert f"{needs / 2 * 2 / 1e6:.3f} MB between ranks, in 2 copies" in capsys.readouterr().out
