"""One role's place as a compact string."""

from typing import Any

import pytest
from hypothesis import given

from tests.mapping.maps import PLACEMENTS
from workbench.errors import ConfigError
from workbench.mapping.placement import Placement, parse

FOUR = ("0", "1", "2", "3")


@pytest.mark.parametrize(
    ("text", "placement", "again"),
    [
        ("cpu", Placement(devices=("cpu",)), "cpu"),
        ("0", Placement(devices=("0",)), "0"),
        ("0-3", Placement(devices=FOUR), "0-3"),
        ("0,2", Placement(devices=("0", "2")), "0,2"),
        (" 0 , 2,  3 ", Placement(devices=("0", "2", "3")), "0,2-3"),
        ("0-3 fsdp", Placement(devices=FOUR, layout="fsdp"), "0-3 fsdp"),
        ("  0-1   tp=2 ", Placement(devices=("0", "1"), tp=2), "0-1 tp2"),
        ("0-3 fsdp tp2", Placement(devices=FOUR, layout="fsdp", tp=2), "0-3 fsdp tp2"),
        ("0-1 tp1", Placement(devices=("0", "1")), "0-1"),
        ("0-1 ddp", Placement(devices=("0", "1")), "0-1"),
        ("node1:0-1,node2:0-1 tp2", Placement(devices=("node1:0", "node1:1", "node2:0", "node2:1"), tp=2), "node1:0-1,node2:0-1 tp2"),
        ("0-2 tp2", Placement(devices=("0", "1", "2"), tp=2), "0-2 tp2"),  # that it does not divide a check tells
        ("share:actor", Placement(share="actor"), "share:actor"),
        ("share:ref", Placement(share="reference"), "share:reference"),
        ("http://host:8080", Placement(url="http://host:8080"), "http://host:8080"),
        ("https://[::1]:8080/score", Placement(url="https://[::1]:8080/score"), "https://[::1]:8080/score"),
    ],
)
def test_compact_strings(text: str, placement: Placement, again: str) -> None:
    assert parse(text, "actor") == placement
    assert str(placement) == again
    assert parse(again, "actor") == placement


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", r"^actor: that is no device\n  fix: write 'cpu', '0' for the first GPU"),
        ("  ", "that is no device"),
        ("cuda:0", "'cuda:0' is no device.*\n  fix: write '0'"),
        ("0-1 dp", r"^actor: 'dp' is no layout\n  fix: write 'ddp'"),
        ("0-1 fsdpp", r"'fsdpp' is no layout\n  fix: write 'fsdp'"),
        ("0-1 pipeline", r"'pipeline' is no layout\n  fix: write ddp \(a whole model on each device\)"),
        ("0-1 tp0", "'tp0' is no layout"),
        ("0-1 tp-2", "'tp-2' is no layout"),
        ("0-1 fsdp ddp", r"^actor: 'fsdp ddp' says two layouts\n  fix: write one of them"),
        ("0-3 tp2 tp4", "'tp2 tp4' says two layouts"),
        ("share:actr", r"^actor: 'actr' is no role\n  fix: write 'actor'"),
        ("share:", r"'' is no role\n  fix: the roles are actor, critic, rollout, reference, reward"),
        ("share:actor fsdp", r"'share:actor fsdp' says more than 'share:actor'\n  fix: a layout stands only beside devices"),
        ("http://host:1 tp2", "says more than 'http://host:1'"),
        ("ftp://host", r"'ftp://host' is no address of a service\n  fix: write http://HOST:PORT"),
        ("http://", "is no address"),
        ("http://:80", "is no address"),
        ("http://host:99999", "is no address"),
        ("http://host:0", "is no address"),
        ("http://host:x", "is no address"),
        ("http://[::", "is no address"),
        ("http://[xyz]:80", "is no address"),
        ("http://name:secret@host", "is no address"),
        ("http://h/\x1b[31m", r"'http://h/\\x1b\[31m' is no address"),
        ("http://h/\0", "is no address"),
        ("http://h/\ud800", "is no address"),
        ("0" + " " * 70_000, "^actor: it has 70001 characters"),
        ("0-3 tp4097", "^actor: 'tp4097' is more than the 4096 devices that a role can have"),
        ("0-1 tp1 tp2", "'tp1 tp2' says two layouts"),
    ],
)
def test_what_is_no_placement(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        parse(text, "actor")


def test_as_a_file_says_it() -> None:
    assert parse("0-1 fsdp", "actor").to_dict() == {"devices": [0, 1], "layout": "fsdp"}
    assert parse("node1:0 tp2", "actor").to_dict() == {"devices": ["node1:0"], "tp": 2}
    assert parse("cpu", "actor").to_dict() == {"devices": "cpu"}
    assert parse("cpu:0", "actor").to_dict() == {"devices": ["cpu:0"]}
    assert parse("share:actor", "critic").to_dict() == {"share": "actor"}
    assert Placement(devices=("0",), mode="merged", inference_only=True).to_dict() == {
        "devices": [0],
        "mode": "merged",
        "inference_only": True,
    }


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"tp": 0}, r"^Placement\(tp=0\): that does not fit\n  fix: write a whole number from 1 to 4096$"),
        ({"tp": 4097}, "a whole number from 1 to 4096"),
        ({"tp": True}, r"^Placement\(tp=True\): that does not fit"),
        ({"tp": "2"}, "that does not fit"),
        ({"dp": 0}, "a whole number from 1 to 4096"),
        ({"layout": "x"}, r"^Placement\(layout='x'\): that does not fit\n  fix: write 'ddp' or 'fsdp'$"),
        ({"mode": 5}, "write 'auto' or 'zero_copy' or"),
        ({"nccl_backend": "nccl"}, "fix: write 'p2p' or 'ring' or 'none'$"),
        ({"inference_only": 1}, "fix: write True or False$"),
        ({"shared_mem_name": 5}, "fix: write text$"),
        ({"devices": ("cuda:0",)}, r"^Placement: devices: 'cuda:0' is no device.*\n  fix: write '0'$"),
        ({"devices": None}, "^Placement: devices: None is no device"),
        ({"devices": (True,)}, "True is no device"),
        ({"devices": ("0-4095", "0")}, "more than 4096 devices"),
        ({"share": "actr"}, r"^Placement: share: 'actr' is no role\n  fix: write 'actor'$"),
        ({"share": 5}, "^Placement: share: 5 is no role"),
        ({"url": "localhost"}, "^Placement: url: 'localhost' is no address of a service"),
        ({"url": 5}, "^Placement: url: 5 is no address of a service"),
        ({"layuot": "ddp"}, r"^Placement\(layuot='ddp'\): it has no such field\n  fix: write 'layout'$"),
    ],
)
def test_fields_that_no_placement_has(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Placement(**{"devices": ("0", "1")} | fields)


def test_devices_as_people_write_them() -> None:
    assert Placement(devices="0-1") == Placement(devices=[1, 0]) == Placement(devices=("0", "1"))  # type: ignore[arg-type]


def test_groups_and_copies() -> None:
    place = parse("0-3 tp2", "rollout")
    assert place.groups(place.devices) == [("0", "1"), ("2", "3")]
    assert (place.copies, place.layout_name) == (2, "tp=2")
    assert parse("0-2 tp2", "rollout").groups(("0", "1", "2")) == [("0", "1")]
    assert (parse("0-3", "actor").copies, parse("0-3 fsdp", "actor").layout_name, parse("0", "actor").layout_name) == (4, "fsdp", "ddp")
    assert parse("cpu", "actor").on_cpu
    assert parse("cpu:0-1", "actor").on_cpu
    assert not parse("0", "actor").on_cpu
    assert not parse("share:actor", "critic").on_cpu


@given(PLACEMENTS)
def test_every_compact_string_is_read_again(place: Placement) -> None:
    again = parse(str(place), "actor")
    assert (again.devices, again.layout, again.tp, again.share, again.url) == (
        place.devices,
        place.layout,
        place.tp,
        place.share,
        place.url,
    )
