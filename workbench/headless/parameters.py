"""The parameters of a notebook: what its cell tagged ``parameters`` assigns, and values for them from a command line.

papermill itself only warns about a name that the notebook does not have, and takes any type; here both are errors
before anything starts.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from workbench.errors import ConfigError


@dataclass(frozen=True)
class Parameter:
    """One assignment of the parameters cell."""

    name: str
    type: str  # as annotated, else of the default, else "any"
    default: str  # as written in the notebook
    help: str = ""  # the comment behind it

    def __str__(self) -> str:
        return f"{self.name} ({self.type}, default {self.default})" + (f"  # {self.help}" if self.help else "")


def parameters_of(cells: Sequence[dict[str, Any]], notebook: Path) -> dict[str, Parameter]:
    """The parameters of a notebook by name, in the order of the cell; none where no cell is tagged ``parameters``."""
    for cell in cells:
        if "parameters" in cell.get("metadata", {}).get("tags", []):
            try:
                return {parameter.name: parameter for parameter in _assignments(cell["source"])}
            except SyntaxError as error:
                raise ConfigError(f"parameters of {notebook}", f"its parameters cell is no Python ({error})", "mend the cell") from error
    return {}


def _assignments(source: str) -> list[Parameter]:
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            target, annotation = node.target, ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, annotation = node.targets[0], ""
        else:
            continue
        if isinstance(target, ast.Name) and node.value is not None:
            comment = re.match(
                r"\s*#\s*(.*)", source.splitlines()[(node.end_lineno or 1) - 1].encode()[node.end_col_offset or 0 :].decode()
            )
            found.append(Parameter(target.id, annotation or _type_of(node.value), ast.unparse(node.value), comment[1] if comment else ""))
    return found


def _type_of(value: ast.expr) -> str:
    try:
        default = ast.literal_eval(value)
    except ValueError:
        return "any"
    return "any" if default is None else type(default).__name__


def read_values(pairs: Sequence[tuple[str, str]], known: dict[str, Parameter], notebook: Path) -> dict[str, Any]:
    """The values of ``-p NAME VALUE`` pairs, checked. Raises ConfigError on an unknown name, a repeated one, or a wrong type."""
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name not in known:
            raise _unknown(name, known, notebook)
        if name in values:
            raise ConfigError(f"-p {name} {text}", f"{name} was given before, as {values[name]!r}", "give it once")
        values[name] = read_value(text, known[name])
    return values


def _unknown(name: str, known: dict[str, Parameter], notebook: Path) -> ConfigError:
    if not known:
        return ConfigError(f"-p {name}", f"{notebook} has no cell tagged 'parameters'", "tag its cell of settings, or leave -p away")
    listed = "".join(f"\n    {parameter}" for parameter in known.values())
    near = get_close_matches(name, known, n=1)
    hint = f"write {near[0]!r}; the parameters are" if near else "use one of its parameters"
    return ConfigError(f"-p {name}", f"{notebook} has no parameter {name!r}", f"{hint}:{listed}")


def read_value(text: str, parameter: Parameter) -> Any:
    """``text`` as the parameter's type: text stays text, everything else is YAML (and 1e-3 a number, which YAML 1.1 denies)."""
    options = [part.strip() for part in parameter.type.split("|")]
    if "str" in options and not ("None" in options and text in ("null", "None", "~")):
        return text
    try:
        value = None if text == "None" else yaml.load(text, Loader=_NoDates)
    except yaml.YAMLError as error:
        raise ConfigError(f"-p {parameter.name} {text}", f"the value is no YAML ({str(error).splitlines()[0]})", "quote it") from error
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d[\d_]*(\.\d*)?[eE][-+]?\d+", value):
        value = float(value)
    if type(value) is int and "float" in options and "int" not in options:
        value = float(value)
    # What is written as a tuple or set in Python comes as a list.
    bases = {{"tuple": "list", "set": "list", "NoneType": "None"}.get(base, base) for base in (re.sub(r"\[.*", "", one) for one in options)}
    found = "None" if value is None else type(value).__name__
    if bases <= {"int", "float", "bool", "None", "list", "dict"} and found not in bases:
        raise ConfigError(
            f"-p {parameter.name} {text}",
            f"the parameter is {parameter.type} (default {parameter.default}), the value is {found}",
            f"give a value of type {parameter.type}",
        )
    return value


class _NoDates(yaml.SafeLoader):
    """YAML whose dates stay text."""


_NoDates.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def check_device_map(path: Path) -> str:
    """The path of a device map as a notebook's parameter. Raises ConfigError where it can't be read or is no device map."""
    from workbench.mapping import DeviceMap
    from workbench.mapping.source import read_file

    try:
        DeviceMap.of(read_file(path))
    except ConfigError as error:
        asked = error.asked if str(path) in error.asked else f"{path}: {error.asked}"
        raise ConfigError(f"--device-map {asked}", error.found, error.fix) from error
    return str(path)
