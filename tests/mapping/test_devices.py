"""Lists of devices: how they are written, how they are ordered, and what is none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import ConfigError
from workbench.mapping.devices import MOST, in_order, list_devices, node_of, number_of, parse_devices, spans


@pytest.mark.parametrize(
    ("text", "devices", "again"),
    [
        ("cpu", ("cpu",), "cpu"),
        ("0", ("0",), "0"),
        ("0-3", ("0", "1", "2", "3"), "0-3"),
        ("0,2", ("0", "2"), "0,2"),
        ("5,0-2", ("0", "1", "2", "5"), "0-2,5"),
        ("9,10", ("9", "10"), "9-10"),
        ("0,1", ("0", "1"), "0-1"),
        ("0,0-1", ("0", "0", "1"), "0,0-1"),  # a check tells that a device is named twice
        ("node1:0-1", ("node1:0", "node1:1"), "node1:0-1"),
        ("node1:0,2", ("node1:0", "node1:2"), "node1:0,2"),
        ("node1:0-1,node2:0-1", ("node1:0", "node1:1", "node2:0", "node2:1"), "node1:0-1,node2:0-1"),
        ("b:0,a:0,b:1", ("b:0", "b:1", "a:0"), "b:0-1,a:0"),
        ("0,node1:1,2", ("0", "node1:1", "node1:2"), "0,node1:1-2"),
        ("cpu:0-1", ("cpu:0", "cpu:1"), "cpu:0-1"),
        ("gpu-box.lab:0", ("gpu-box.lab:0",), "gpu-box.lab:0"),
    ],
)
def test_compact_lists(text: str, devices: tuple[str, ...], again: str) -> None:
    assert parse_devices(text, "actor") == devices
    assert spans(devices) == again
    assert parse_devices(again, "actor") == devices


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        (0, ("0",)),
        ("0-1", ("0", "1")),
        ([0, 1], ("0", "1")),
        ((1, 0), ("0", "1")),
        (["0-1", 3], ("0", "1", "3")),
        (["cpu"], ("cpu",)),
        (["node1:0", "node2:0"], ("node1:0", "node2:0")),
        (["node1:0", 1], ("1", "node1:0")),  # in a list a node's name does not hold for the next
        ([], ()),
    ],
)
def test_values_of_a_file(value: Any, devices: tuple[str, ...]) -> None:
    assert list_devices(value, "actor") == devices


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", r"^actor: '' is no device\n  fix: write 'cpu', '0' for the first GPU, '0-3' or '0,2' for several"),
        ("0,", "'' is no device"),
        ("3-1", "'3-1' is no device"),
        ("-1", "'-1' is no device"),
        ("0 1", "'0 1' is no device"),
        ("1.5", "'1.5' is no device"),
        ("10000", "'10000' is no device"),
        ("²", "'²' is no device"),
        ("٣", "'٣' is no device"),
        ("1:0", "'1:0' is no device"),
        ("node1:", "'node1:' is no device"),
        ("cpu,0", "'cpu' is no device"),
        ("mps", "'mps' is no device"),
        ("GPU-8f3b", "'GPU-8f3b' is no device"),
        ("x" * 100, r"'x{56}\.\.\. is no device"),
        ("cuda:0", r"^actor: 'cuda:0' is no device: a GPU is its position among the visible ones\n  fix: write '0'$"),
        ("cuda:2-3", r"fix: write '2-3'$"),
        ("0,cuda:1", r"'cuda:1' is no device: .*\n  fix: write '1'$"),
        ("cuda", r"fix: write '0'$"),
        (
            "localhost:8080",
            r"'localhost:8080' would be a device of a node\n  fix: write 'http://localhost:8080' for a service, '0' for a GPU",
        ),
        ("10.0.0.7:9999", "fix: write 'http://10.0.0.7:9999' for a service"),
        ("scores.lan:11434", "fix: write 'http://scores.lan:11434' for a service"),
        ("localhost:80/score", "fix: write 'http://localhost:80/score' for a service"),
        ("0" + " " * 70_000, "^actor: it has 70001 characters, and a map at most 65536"),
        ("gpu0", r"'gpu0' is no device: .*\n  fix: write '0'$"),
        ("GPU:1", r"fix: write '1'$"),
        ("hip:1", r"fix: write '1'$"),
        ("0-4095,0", f"^actor: it has more than {MOST} devices\n  fix: name fewer$"),
    ],
)
def test_what_is_no_list(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        parse_devices(text, "actor")


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (True, "^actor: True is no device"),
        ([0, None], "None is no device"),
        ([[0]], r"\[0\] is no device"),
        (1.5, "1.5 is no device"),
        ([0, "cpu"], r"^actor: the CPU stands beside other devices\n  fix: write 'cpu' alone, 'cpu:0-1' for slots, or GPUs alone$"),
        (pytest.param(10**5000, "'int too long to show' is no device", id="large")),
        (["cuda:0"], "'cuda:0' is no device"),
        (["localhost:8080"], "would be a device of a node"),
        (["cpu", "cpu"], "the CPU stands beside other devices"),
        (["0-4095"] * 4096, "more than 4096 devices"),
        ([0] * 4097, "more than 4096 devices"),
    ],
)
def test_values_that_are_none(value: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        list_devices(value, "actor")


def test_parts_of_a_name() -> None:
    assert (node_of("node1:3"), number_of("node1:3")) == ("node1", 3)
    assert (node_of("3"), number_of("3")) == ("", 3)
    assert (node_of("cpu"), number_of("cpu")) == ("", -1)


DEVICE = st.builds(lambda node, number: f"{node}{number}", st.sampled_from(["", "node1:", "node2:", "cpu:"]), st.integers(0, 1023))


@given(st.lists(DEVICE, min_size=1, max_size=20))
def test_every_list_is_read_again(devices: list[str]) -> None:
    ordered = in_order(devices)
    assert sorted(ordered) == sorted(devices)
    assert parse_devices(spans(ordered), "actor") == ordered
    assert list_devices(list(ordered), "actor") == ordered
