"""YAML and JSON as plain data with lines: what is read, what is refused, and how long the worst text takes."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workbench.errors import ConfigError
from workbench.mapping import DeviceMap, source
from workbench.mapping.source import LARGEST, MOST_VALUES, read_file, read_text


def data(text: str) -> Any:
    return read_text(text, "map.yaml").data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", 1),
        ("a: -1", -1),
        ("a: 1.5", 1.5),
        ("a: .inf", float("inf")),
        ("a: true", True),
        ("a: False", False),
        ("a: ~", None),
        ("a:", None),
        ("a: null", None),
        ("a: '1'", "1"),
        ('a: "null"', "null"),
        ("a: 0-3", "0-3"),
        ("a: 0,2", "0,2"),
        ("a: cpu # where", "cpu"),
        ("a: [0, b]", [0, "b"]),
        ("a: {b: {c: 0}}", {"b": {"c": 0}}),
        ("a: >\n  cpu\n", "cpu\n"),
        ("%YAML 1.2\n---\na: 1\n...\n", 1),
        # what YAML 1.1 takes for something else
        ("a: 1:30", "1:30"),
        ("a: 010", "010"),
        ("a: 0x10", "0x10"),
        ("a: 1_0", "1_0"),
        ("a: yes", "yes"),
        ("a: off", "off"),
        ("a: 2001-01-01", "2001-01-01"),
        ("a: " + "9" * 30, "9" * 30),
    ],
)
def test_plain_values(text: str, value: Any) -> None:
    found = data(text)
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


def test_not_a_number() -> None:
    assert str(data("a: .nan")["a"]) == "nan"


def test_lines_of_keys() -> None:
    found = read_text("# maps\nactor:\n  devices: 0\n\n  tp: 2\nrollout: {tp: 3}\n", "map.yaml")
    assert found.lines == {("actor",): 2, ("actor", "devices"): 3, ("actor", "tp"): 5, ("rollout",): 6, ("rollout", "tp"): 6}
    assert found.at("actor", "tp") == "map.yaml, line 5: actor.tp"
    assert found.at("actor", "dp") == "map.yaml, line 2: actor.dp"
    assert found.at("critic") == "map.yaml: critic"
    assert found.at() == "map.yaml"


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_line_ends_of_other_systems(ends: str) -> None:
    found = read_text(ends.join(["actor: 0", "rollout: 1", ""]), "map.yaml")
    assert found.data == {"actor": 0, "rollout": 1}
    assert found.at("rollout") == "map.yaml, line 2: rollout"


def test_anchors_aliases_and_merges() -> None:
    assert data("a: &x {d: 0, e: 1}\nb: *x\nc: {<<: *x, e: 2}") == {"a": {"d": 0, "e": 1}, "b": {"d": 0, "e": 1}, "c": {"d": 0, "e": 2}}
    assert data("a: &x {d: 0}\nb: &y {d: 1, e: 1}\nc: {<<: [*x, *y]}")["c"] == {"d": 0, "e": 1}
    assert data("a: {'<<': 1}") == {"a": {"<<": 1}}  # in quotes it is a key like any other
    assert data("a: &x [0, &y 1]\nb: [*x, *y]")["b"] == [[0, 1], 1]


REFUSED = [
    ("", r"^map.yaml: holds nothing, not roles\n  fix: write lines such as 'actor: {devices: cpu}'$"),
    ("# only a comment\n", "holds nothing"),
    ("- actor", "holds a list, not roles"),
    ("actor", "holds text, not roles"),
    ("3", "holds a number, not roles"),
    ("true", "holds true or false, not roles"),
    (
        "actor: [0",
        r"^map.yaml, line \d: no YAML: .*while parsing a flow sequence from line 1\n  fix: mend the file; recipes/maps/ has examples$",
    ),
    ("actor: 0\n\trollout: 0", "^map.yaml, line 2: no YAML: .*tab"),
    ("actor: 0\n  b: 1", "^map.yaml, line 2: no YAML: mapping values are not allowed"),
    ("actor: 'cpu", "no YAML"),
    ("actor: *x", r"^map.yaml, line 1: '\*x' stands for nothing that ends before it\n  fix: write it out$"),
    ("actor: &x [0, *x]", r"'\*x' stands for nothing that ends before it"),
    ("actor: 0\nrollout: 0\nactor: 1", "^map.yaml, line 3: actor: it is written on line 1 already\n  fix: write it once$"),
    ("actor:\n  tp: 1\n  tp: 2", "^map.yaml, line 3: tp: it is written on line 2 already"),
    ('{"actor": 0, "actor": 1}', "^map.yaml, line 1: actor: it is written on line 1 already"),
    ("actor: 0\n---\nrollout: 0", "^map.yaml, line 2: a second document, and a map is one\n  fix: leave out what follows '---'$"),
    ("a: !!python/object/apply:os.system [id]", "^map.yaml, line 1: 'tag:yaml.org,2002:python/object/apply:os.system' is a tag"),
    ("a: !!python/name:os.system", "is a tag, and a map has plain values\n  fix: leave it out"),
    ("a: !!int ''", "'tag:yaml.org,2002:int' is a tag"),
    ("a: !!binary aGk=", "is a tag"),
    ("a: !mine {b: 0}", "'!mine' is a tag"),
    ("? [a]\n: 0", "^map.yaml, line 1: a key is a word"),
    ("a: &x b\n*x : 0", "^map.yaml, line 2: a key is a word"),
    ("a: {<<: 3}", "^map.yaml, line 1: <<: 3 has no keys to merge"),
    ("a: {<<: [{b: 0}, 3]}", "3 has no keys to merge"),
    ("a: " + "[" * 30 + "]" * 30, "^map.yaml, line 1: nested deeper than 20 levels"),
    ("a: " + "{b: " * 30 + "}" * 30, "nested deeper than 20 levels"),
    ("\udc80", "no YAML: it has characters that no text has"),
    ("a: \0", "no YAML"),
    ('a: "\\uD800"', "no YAML"),
    ('a: "\\UFFFFFFFF"', "no YAML"),
    ("#" * (LARGEST + 1), "^map.yaml: it has 65537 characters, and a map at most 65536\n  fix: give a device map$"),
]


@pytest.mark.parametrize(("text", "match"), REFUSED)
def test_what_is_refused(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        data(text)


@pytest.mark.parametrize(
    "text", [text for text, _ in REFUSED if "uD800" not in text]
)  # half a character, to which this loader has no objection
def test_the_slow_loader_refuses_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_LOADER", yaml.SafeLoader)
    with pytest.raises(ConfigError):
        data(text)


def test_a_billion_laughs() -> None:
    laughs = "a: &a [" + ", ".join(["ha"] * 9) + "]\n"
    laughs += "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    with pytest.raises(ConfigError, match=f"^map.yaml, line 5: more than {MOST_VALUES} values, aliases written out"):
        data(laughs)


DENSE = {
    "brackets": "[" * 65000,
    "braces": "{" * 65000,
    "dashes": "- " * 32000,
    "question marks": "? " * 32000,
    "list": "a: [" + "0," * 32000 + "]",
    "maps": "a: [" + "{}," * 21000 + "]",
    "roles": "".join(f"a{n}: 0\n" for n in range(7000)),
    "roles of one letter": "a:\n" * 21000,
    "escapes": 'a: "' + "\\x41" * 16000 + '"',
    "blanks": " " * 65000,
    "line ends": "\n" * 65000,
    "anchors": "a: [" + "".join(f"&a{n} 0," for n in range(6000)) + "]",
    "aliases": "a: [&a 0," + "*a," * 21000 + "]",
    "aliases of a list": "a: &a [" + "0," * 8000 + "]\ngroups: {" + "".join(f"g{n}: *a, " for n in range(4000)) + "}",
    "groups of many": "actor: 0\ngroups: {" + "".join(f"g{n}: 0-4095, " for n in range(3500)) + "}",
    "64 groups of many": "actor: 0\ngroups: {" + "".join(f"g{n}: 0-4095, " for n in range(64)) + "}",
    "a list of many": "actor: [" + "0-4095," * 8000 + "]",
    "many in words": "actor: " + "0-4095," * 8000 + "0",
    "nodes": "actor: '" + ",".join(f"n{n}:0" for n in range(4096)) + "'",
    "a long word": "actor: " + "a" * 65000,
    "a long key": "a" * 1000 + ": 0",
    "a long unknown key": "actor: {" + "x" * 1000 + ": 0}",
    "a long url": "reward: http://" + "a" * 65000,
    "commas": "actor: '0" + " ," * 32000 + "'",
    "merges": "a: &a {b: 0}\nc: {" + "<<: *a, " * 8000 + "}",
    "keys of JSON": json.dumps({"actor": {f"k{n}": n for n in range(4000)}}),
}


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("loader", [yaml.CSafeLoader, yaml.SafeLoader])
def test_no_text_takes_a_second(name: str, loader: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_LOADER", loader)
    assert len(DENSE[name]) <= LARGEST
    began = time.process_time()
    with suppress(ConfigError):
        DeviceMap.parse(DENSE[name])
    assert time.process_time() - began < 1


def test_a_megabyte_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_text("actor: 0\n" * 120_000)
    began = time.process_time()
    with pytest.raises(ConfigError, match=r"map.yaml': it has more than 65536 bytes\n  fix: give a device map: a short file"):
        read_file(path)
    assert time.process_time() - began < 0.1


def test_a_device_without_an_end() -> None:
    with pytest.raises(ConfigError, match=r"^device map '/dev/zero': it has more than 65536 bytes"):
        read_file(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"actor: \xff", r"^device map '.*map.yaml': no YAML: byte 7 is no UTF-8\n  fix: save it as UTF-8$"),
        ("actor: 0".encode("utf-16"), "no YAML: byte 0 is no UTF-8"),
        (b"", r"map.yaml: holds nothing"),
    ],
)
def test_files_that_are_no_text(content: bytes, match: str, tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=match):
        read_file(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.yaml': No such file or directory\n  fix: give a file that can be read"):
        read_file(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_file(tmp_path)
    with pytest.raises(ConfigError, match="null byte"):
        read_file(Path("a\0.yaml"))


def test_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_bytes("actor: 0\n".encode("utf-8-sig"))
    assert read_file(path).data == {"actor": 0}
    assert data("\ufeffactor: 0") == {"actor": 0}


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_json(indent: int | str | None, tmp_path: Path) -> None:
    written = {"actor": {"devices": [0, 1], "layout": "fsdp"}, "reward": "http://h:1/a\\b\t"}
    path = tmp_path / "map.json"
    path.write_text(json.dumps(written, indent=indent))
    assert read_file(path).data == written
    assert data(json.dumps(written, indent=indent)) == written


def test_json_has_lines(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text('{\n\t"actor": 0,\n\t"rollot": 1\n}')
    with pytest.raises(ConfigError, match=r"map.json, line 3: rollot: 'rollot' is no role.*\n  fix: write 'rollout'"):
        DeviceMap.load(path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "map.json, line 1: no JSON: Expecting property name"),
        ('{"actor": 0,\n}', "map.json, line 2: no JSON"),
        ("actor: 0", "map.json, line 1: no JSON: Expecting value"),
        ("[" * 60000, "no JSON"),
        ("[]", "map.json: holds a list"),
        ('{"actor": NaN}', "map.json, line 1: actor: 'NaN' is no device"),
    ],
)
def test_files_called_json_are_json(text: str, match: str, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=match):
        DeviceMap.load(path)


BLANKS = " " * 60_000
ROLES = "actor", "critic", "rollout", "reference", "reward"


@pytest.mark.parametrize(
    "text",
    [
        f'actor: "0{BLANKS}x"',
        f'actor: {{devices: "0{BLANKS}x"}}',
        'actor: "0' + ", " * 30_000 + '"',
        "actor: 0" + "\n" * 60_000,
        "actor: 0" + "\x85" * 60_000,
        "actor: " + "0 " * 30_000,
        "actor: 0 " + "tp2 " * 15_000,
        "actor: " + "9" * 60_000,
        "actor: " + "0-4095," * 9_000,
        "actor: " + ",".join(f"n{number}:0" for number in range(4096)),
        "actor: {devices: [x" + ",[]" * 15_000 + "]}",
        "actor: 0\nreward: http://" + "a." * 30_000,
        "\n".join(f"{role}: 0-4095" for role in ROLES),
        "actor: a0\ngroups:\n" + "\n".join(f" a{number}: {{gpus_per_node: 4096}}" for number in range(64)),
        "actor: a0\ngroups:\n" + "\n".join(f" a{number}: {{gpus_per_node: 64, inference_only: true}}" for number in range(64)),
        "actor: a0\ngroups:\n" + "\n".join(f" a{number}: {{devices: 0-4095, inference_only: true}}" for number in range(64)),
    ],
    ids=range(16),
)
def test_the_worst_of_maps_is_read_or_refused_within_a_second(text: str) -> None:
    assert len(text) <= LARGEST
    began = time.process_time()
    with suppress(ConfigError):
        DeviceMap.parse(text)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ("0" + " " * 120_000 + "x", "^device map: it has 120002 characters, and a map at most 65536"),
        (["0", "x" * 70_000], "it has 70000 characters"),
        ({"devices": ["0" * 70_000]}, "it has 70000 characters"),
        ({"mesh_shape": [0] * 50_000}, "more than 40000 values"),
        ({str(number): 0 for number in range(50_000)}, "more than 40000 values"),
    ],
)
def test_what_python_says_has_the_limits_of_a_file(value: Any, match: str) -> None:
    began = time.process_time()
    for make in (lambda: DeviceMap(actor=value), lambda: DeviceMap.load({"actor": value})):
        with pytest.raises(ConfigError, match=match):
            make()
    assert time.process_time() - began < 1


def test_the_largest_map_of_python_is_read_again() -> None:
    largest = DeviceMap(**dict.fromkeys(ROLES, "0-4095"))
    assert DeviceMap(**largest.to_dict()) == largest


YAMLISH = st.text(alphabet="ab0-:,[]{}&*!|>'\"%@`#?\n\t \r\\<=~.\u2028\ufeffactorgpsd", max_size=80)


@given(st.one_of(st.text(max_size=80), YAMLISH, YAMLISH.map("actor: ".__add__), YAMLISH.map("actor: {devices: [0], ".__add__)))
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("loader", [yaml.CSafeLoader, yaml.SafeLoader])
def test_no_text_raises_anything_else(loader: type, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(source, "_LOADER", loader)
    with suppress(ConfigError):
        devices = DeviceMap.parse(text)
        assert DeviceMap.parse(devices.to_yaml()) == devices


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_no_file_raises_anything_else(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    with suppress(ConfigError):
        DeviceMap.load(path)
