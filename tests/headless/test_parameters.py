"""Parameters of notebooks: what is found in the cell, and which values are taken for it."""

from pathlib import Path

import pytest

from workbench.errors import ConfigError
from workbench.headless.parameters import Parameter, check_device_map, parameters_of, read_value, read_values

NOTEBOOK = Path("recipe.ipynb")
SOURCE = '''
"""Settings."""
import os
steps = 60  # how many; at least 1
learning_rate: float = 1e-3
name = "quick"
deep = True
layers = [1, 2]
shape = (2, 3)
device_map: str | None = None
folder = os.path.join("a", "b")
a, b = 1, 2
words = "α = β"  # Greek
'''


def cells(source: str = SOURCE):
    return [{"source": "1"}, {"source": source, "metadata": {"tags": ["parameters"]}}]


def test_parameters_of_a_cell():
    known = parameters_of(cells(), NOTEBOOK)
    assert list(known) == ["steps", "learning_rate", "name", "deep", "layers", "shape", "device_map", "folder", "words"]
    assert known["steps"] == Parameter("steps", "int", "60", "how many; at least 1")
    assert known["learning_rate"] == Parameter("learning_rate", "float", "0.001")
    assert known["device_map"] == Parameter("device_map", "str | None", "None")
    assert known["folder"].type == "any"
    assert known["words"] == Parameter("words", "str", "'α = β'", "Greek")


def test_no_parameters_cell():
    assert parameters_of([{"source": "x = 1", "metadata": {}}], NOTEBOOK) == {}


def test_parameters_cell_that_is_no_python():
    with pytest.raises(ConfigError, match=r"recipe.ipynb: its parameters cell is no Python"):
        parameters_of(cells("steps = = 3"), NOTEBOOK)


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("int", "50", 50),
        ("float", "1e-3", 0.001),
        ("float", "-2.5E+4", -25000.0),
        ("float", "2", 2.0),
        ("float", ".inf", float("inf")),
        ("bool", "false", False),
        ("str", "50", "50"),
        ("str", "no", "no"),
        ("str", "null", "null"),
        ("str | None", "null", None),
        ("str | None", "None", None),
        ("str | None", "a: b", "a: b"),
        ("list", "[1, 2]", [1, 2]),
        ("list[int]", "[1, 2]", [1, 2]),
        ("tuple", "[1, 2]", [1, 2]),
        ("dict", "{a: 1}", {"a": 1}),
        ("int | None", "null", None),
        ("any", "1e-3", 0.001),
        ("any", "2026-11-30", "2026-11-30"),
        ("any", "word", "word"),
    ],
)
def test_values(type_, text, value):
    found = read_value(text, Parameter("p", type_, "..."))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("type_", "text", "found"),
    [
        ("int", "1.5", "float"),
        ("int", "many", "str"),
        ("float", "true", "bool"),
        ("int", "true", "bool"),
        ("bool", "1", "int"),
        ("list", "3", "int"),
        ("int", "null", "None"),
    ],
)
def test_a_value_of_the_wrong_type(type_, text, found):
    with pytest.raises(ConfigError, match=rf"-p p {text}: the parameter is {type_} \(default 7\), the value is {found}"):
        read_value(text, Parameter("p", type_, "7"))


def test_a_value_that_is_no_yaml():
    with pytest.raises(ConfigError, match=r"-p p \[1: the value is no YAML"):
        read_value("[1", Parameter("p", "list", "[]"))


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        ConfigError,
        match=r"recipe.ipynb has no parameter 'step'\n  fix: write 'steps'; the parameters are:\n    steps \(int, default 60\)  # how many",
    ):
        read_values([("step", "3")], parameters_of(cells(), NOTEBOOK), NOTEBOOK)


def test_a_name_where_there_are_no_parameters():
    with pytest.raises(ConfigError, match=r"recipe.ipynb has no cell tagged 'parameters'"):
        read_values([("steps", "3")], {}, NOTEBOOK)


def test_a_name_given_twice():
    with pytest.raises(ConfigError, match="steps was given before, as 3"):
        read_values([("steps", "3"), ("steps", "4")], parameters_of(cells(), NOTEBOOK), NOTEBOOK)


def test_device_map_is_passed_as_its_path(tmp_path):
    file = tmp_path / "map.yaml"
    file.write_text("actor: {devices: [0]}")
    assert check_device_map(file) == str(file)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "--device-map .*map.yaml.*: No such file"),
        ("[1", "no YAML"),
        ("actor", "holds text, not roles"),
        ("", "holds nothing, not roles"),
        ("aktor: cpu", "line 1: aktor.*the roles are.*\n  fix: write 'actor'"),
    ],
)
def test_a_device_map_that_can_not_be_used(tmp_path, text, problem):
    file = tmp_path / "map.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        check_device_map(file)
