"""One role's place as a compact string."""

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
