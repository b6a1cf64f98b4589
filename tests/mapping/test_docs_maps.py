"""The page of the maps: every example of it is a map, agrees with the schema and is made again from what it writes."""

import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from workbench.mapping import DeviceMap
from workbench.mapping.entry import GroupEntry, MapEntry, RoleEntry, SizesEntry
from workbench.mapping.templates import _MAPS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "maps.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
VALIDATOR = Draft202012Validator(DeviceMap.json_schema())


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_is_a_map_without_errors(text: str) -> None:
    devices = DeviceMap.parse(text)
    assert DeviceMap.parse(devices.to_yaml()) == devices
    assert [str(finding) for finding in devices.check() if finding.severity == "error"] == []
    VALIDATOR.validate(yaml.safe_load(text))


def test_the_python_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(text, {})
    assert capsys.readouterr().out == f"{DeviceMap.parse(EXAMPLES[0])}\n"


@pytest.mark.parametrize("model", [RoleEntry, GroupEntry, SizesEntry, MapEntry])
def test_every_key_is_on_the_page(model: type) -> None:
    assert [key for key in model.model_fields if f"`{key}`" not in PAGE] == []


def test_every_template_is_on_the_page_and_what_recipes_refer_to() -> None:
    assert [name for name in _MAPS if f"| `{name}` |" not in PAGE] == []
    for path in (Path(__file__).parent.parent.parent / "recipes" / "maps").glob("*.yaml"):
        for name in re.findall(r"(\w+) (?:in|of) docs/maps.md", path.read_text()):
            assert f"`{name}`" in PAGE, path.name


def test_examples_are_there() -> None:
    assert len(EXAMPLES) >= 5
