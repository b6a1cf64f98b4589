"""What a map holds, what it shows, how it is written and read again."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.mapping.maps import MAPS
from workbench.errors import ConfigError
from workbench.findings import Finding, Fix
from workbench.mapping import DeviceMap, Placement
from workbench.roles import Role

FILES = Path(__file__).parent.parent.parent / "recipes" / "maps"
FOUR = ("0", "1", "2", "3")
LARGE = DeviceMap(actor="0-3 fsdp", critic="share:actor", rollout="0-3 tp2", reference="share:actor", reward="cpu")


def test_everything_on_the_cpu_by_default() -> None:
    devices = DeviceMap()
    assert devices.device == "cpu"
    assert devices.placement == {"actor": ["cpu:0"], "rollout": ["cpu:0"], "reference": ["cpu:0"], "reward": ["cpu:0"]}


def test_one_gpu_holds_every_model_and_the_reward_stays_on_the_cpu() -> None:
    devices = DeviceMap(actor="0")
    assert devices.device == "cuda"
    assert devices.placement["rollout"] == ["local:0"]
    assert devices.placement["reward"] == ["cpu:0"]


@pytest.mark.parametrize(("name", "device"), [("cpu", "cpu"), ("one_gpu", "cuda")])
def test_the_maps_of_the_recipes_are_read(name: str, device: str) -> None:
    assert DeviceMap.load(FILES / f"{name}.yaml").device == device
    DeviceMap.load(str(FILES / f"{name}.yaml")).check_runnable()


@pytest.mark.parametrize(
    "written",
    [{"actor": "cpu"}, {"actor": {"devices": ["cpu"]}, "ref_model": "share:actor"}, {"actor": {"devices": "cpu"}}, {}],
)
def test_the_same_map_in_other_words(written: dict[str, Any]) -> None:
    assert DeviceMap.load(written) == DeviceMap()


def test_a_map_is_itself_and_nothing_is_found_out() -> None:
    devices = DeviceMap()
    assert DeviceMap.load(devices) is devices
    assert DeviceMap.load(None) in (DeviceMap(), DeviceMap(actor="0"))


def test_devices_alone_are_a_map() -> None:
    assert DeviceMap.load("0") == DeviceMap(actor="0")
    assert DeviceMap.load("0-1") == DeviceMap(actor="0-1", rollout="0-1")
    assert DeviceMap.load("node1:0,1 fsdp") == DeviceMap(actor="node1:0-1 fsdp")


def test_a_text_is_read_too() -> None:
    assert DeviceMap.load("actor: 0") == DeviceMap.load('{"actor": 0}') == DeviceMap.load("\nactor: 0\n") == DeviceMap(actor="0")


def test_a_map_for_several_gpus() -> None:
    four = ["local:0", "local:1", "local:2", "local:3"]
    assert LARGE.placement == {"actor": four, "critic": four, "rollout": four, "reference": four, "reward": ["cpu:0"]}
    assert LARGE.devices_of(Role.CRITIC) == FOUR
    assert LARGE.places[Role.ROLLOUT] == Placement(devices=FOUR, tp=2)
    assert LARGE.device == "cuda"


def test_what_is_left_out() -> None:
    assert DeviceMap(actor="0-3 fsdp").rollout == Placement(devices=FOUR)  # on the actor's devices, laid out as an engine's
    assert DeviceMap(actor="0").reference == Placement(share="actor")
    assert DeviceMap(actor="0").reward == Placement(devices=("cpu",))
    assert DeviceMap(actor="0", critic=None, rollout="").critic is None
    assert DeviceMap(rollout="0").actor is None  # a check tells
    assert DeviceMap(actor="http://h:1").rollout is None


def test_strings_are_normalised() -> None:
    written = DeviceMap(actor="3,0-2  fsdp", rollout=" 0,1,2,3 tp=2", critic="share:actor")
    assert written == LARGE
    assert (str(written.actor), str(written.rollout)) == ("0-3 fsdp", "0-3 tp2")


def test_it_prints_as_a_table() -> None:
    assert str(LARGE).splitlines() == [
        "role       devices  how",
        "actor      0-3      fsdp",
        "critic     0-3      shares the actor's model",
        "rollout    0-3      2 x tp2, takes turns with the actor",
        "reference  0-3      shares the actor's model",
        "reward     cpu",
    ]
    assert "rollout    2-3      ddp\n" in str(DeviceMap(actor="0-1", rollout="2-3"))
    service = {"url": "http://localhost:1", "shared_mem_name": "r"}
    assert "reward     http://localhost:1  shared_mem_name r" in str(DeviceMap(actor="0", reward=service))


def test_the_table_is_what_a_cell_shows() -> None:
    from IPython.lib.pretty import pretty

    assert pretty(LARGE) == repr(LARGE) == str(LARGE)


def test_the_file_as_a_person_would_write_it() -> None:
    assert LARGE.to_yaml().splitlines() == [
        "actor: {devices: [0, 1, 2, 3], layout: fsdp}",
        "critic: {share: actor}",
        "rollout: {devices: [0, 1, 2, 3], tp: 2}",
        "reference: {share: actor}",
        "reward: {devices: cpu}",
    ]


def test_it_can_be_copied_hashed_and_pickled() -> None:
    assert pickle.loads(pickle.dumps(LARGE)) == LARGE
    assert LARGE.model_copy() == LARGE
    assert len({LARGE, DeviceMap(**LARGE.to_dict()), DeviceMap()}) == 2
    with pytest.raises(ValueError, match="frozen"):
        LARGE.actor = None  # type: ignore[misc]


@given(MAPS)
@settings(deadline=None)
def test_every_way_of_writing_gives_the_same_map(roles: dict[str, Any]) -> None:
    devices = DeviceMap(**roles)
    assert {role: getattr(devices, role) for role in roles} == roles
    assert DeviceMap.parse(devices.to_yaml()) == devices
    assert DeviceMap.parse(json.dumps(devices.to_dict())) == devices
    assert DeviceMap.parse(json.dumps(devices.to_dict(), indent="\t")) == devices
    assert DeviceMap.load(devices.to_dict()) == devices
    assert DeviceMap(**devices.to_dict()) == devices
    assert DeviceMap.parse(devices.to_yaml()).to_yaml() == devices.to_yaml()
    assert str(devices)


@given(MAPS)
@settings(deadline=None, max_examples=50)
def test_compact_strings_say_devices_and_layouts(roles: dict[str, Any]) -> None:
    plain = {
        role: Placement(**{key: getattr(place, key) for key in ("devices", "layout", "tp", "share", "url")})
        for role, place in roles.items()
    }
    devices = DeviceMap(**plain)
    assert DeviceMap(**{role: str(place) for role, place in plain.items()}) == devices


@pytest.mark.parametrize("name", ["map.yaml", "map.yml", "map.json", "map"])
def test_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(LARGE.to_dict()) if name.endswith("json") else LARGE.to_yaml()
    (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert DeviceMap.load(tmp_path / name) == DeviceMap.load(name) == DeviceMap.load(f"./{name}") == LARGE


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("none.yaml", r"^device map 'none.yaml': No such file or directory"),
        ("maps/none", r"^device map 'maps/none': No such file or directory"),
        ("cuda:0", r"^device map: actor: 'cuda:0' is no device.*\n  fix: write '0'"),
        ("0," * 500, "^device map: actor: '' is no device"),
        ("a\0b", "is no device"),
        ("x" * 5000, "is no device"),
        ("aktor: 0", r"^device map, line 1: aktor: 'aktor' is no role"),
        ("0-3 fsdpp", "^device map: actor: 'fsdpp' is no layout"),
        (0.5, "^device map: actor: 0.5 is not understood"),
        (b"0", "^device map: actor: b'0' is not understood"),
        pytest.param(10**5000, "^device map: actor: 'int too long to show' is no device", id="large"),
        ("0" * 70_000, "^device map: it has 70000 characters, and a map at most 65536"),
        ({"actor": {"devices": ["0"] * 40_001}}, "^device map: more than 40000 values"),
        ({"aktor": "cpu"}, r"^device map: aktor: 'aktor' is no role: .*\n  fix: write 'actor'"),
        ({"actor": None}, "^device map: actor: nothing is written there"),
    ],
)
def test_what_is_no_map(source: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        DeviceMap.load(source)


def test_an_unknown_role_in_python() -> None:
    with pytest.raises(ConfigError, match=r"^device map: aktor: .*\n  fix: write 'actor'"):
        DeviceMap(aktor="0")
    with pytest.raises(ConfigError, match=r"^device map: aktor: .*\n  fix: write 'actor'"):
        DeviceMap(aktor=Placement(devices=("0",)))
    assert DeviceMap(actor="0", ref="share:actor") == DeviceMap(actor="0")


@pytest.mark.parametrize(
    "written",
    [
        {"actor": "0,0"},
        {"actor": "0 fsdp"},
        {"actor": "0-2 tp2"},
        {"actor": "share:critic"},
        {"actor": "0", "rollout": "share:actor"},
        {"actor": "0-3", "rollout": "2-5"},
        {"actor": "http://h:1"},
        {"rollout": "0"},
        {"actor": "cpu", "rollout": "0"},
    ],
)
def test_what_a_map_cannot_do_is_said_when_it_is_to_run(written: dict[str, Any]) -> None:
    devices = DeviceMap(**written)
    with pytest.raises(ConfigError, match=r"\(WB\d{3}\): .*\n  fix: "):
        devices.check_runnable()


def finding(patch: dict[str, Any] | None) -> Finding:
    return Finding("WB101", "actor", "actor: 9", "no such device", Fix("name one that is there", patch))


def test_a_patch_changes_the_roles_that_it_names() -> None:
    devices = DeviceMap(actor="9", critic="share:actor", rollout={"devices": 8, "mode": "adapter"})
    assert devices.apply(finding({"actor": {"devices": [0]}, "critic": None})) == DeviceMap(
        actor="0", rollout={"devices": 8, "mode": "adapter"}
    )
    with pytest.raises(ConfigError, match=r"^apply\(WB101\): it has no patch\n  fix: name one that is there$"):
        devices.apply(finding(None))


def test_an_engine_that_was_left_out_follows_the_actor() -> None:
    assert DeviceMap(actor="9").apply(finding({"actor": "0"})) == DeviceMap(actor="0")
    assert DeviceMap(actor="9", rollout="8").apply(finding({"actor": "0"})) == DeviceMap(actor="0", rollout="8")


@pytest.mark.parametrize("text", [b"actor: 0", None, 5, ["actor: 0"]])
def test_a_text_that_is_none(text: Any) -> None:
    with pytest.raises(ConfigError, match=r"^DeviceMap.parse: text=.*: that is a .*\n  fix: give the text of a map"):
        DeviceMap.parse(text)
    with pytest.raises(ConfigError, match=r"^DeviceMap.parse: name=.*: that is a "):
        DeviceMap.parse("actor: 0", name=text)


def test_values_of_the_wrong_kind() -> None:
    devices = DeviceMap(actor="0")
    with pytest.raises(ConfigError, match=r"^apply=None: that is a NoneType\n  fix: give one of the findings of check"):
        devices.apply(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^patched=5: that is a int"):
        devices.patched(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^device map: 5: '5' is no role"):
        devices.patched({5: "0"})  # type: ignore[dict-item]
    for ask in (devices.check, devices.on, devices.mended, devices.resolve):
        with pytest.raises(ConfigError, match=r"^topology=5: that is a int\n  fix: give a topology, or a preset's name"):
            ask(5)  # type: ignore[operator]


def test_values_that_have_a_shape_of_their_own() -> None:
    import numpy

    with pytest.raises(ConfigError, match=r"^device map: actor: array.* is not understood"):
        DeviceMap(actor=numpy.arange(2))
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ConfigError, match=r"^device map: nested deeper than 20 levels"):
        DeviceMap(actor=endless)


def test_no_copy_is_stale_and_nobody_empties_a_map() -> None:
    devices = DeviceMap(actor="0")
    devices.places.clear()
    assert devices.places[Role.ACTOR] == Placement(devices=("0",))
    copy = devices.model_copy(update={"actor": Placement(devices=("1",))})
    assert copy.places[Role.ACTOR].devices == copy.devices_of(Role.REFERENCE) == ("1",)


@given(MAPS)
@settings(deadline=None, max_examples=50)
def test_what_pydantic_dumps_is_a_map_again(roles: dict[str, Any]) -> None:
    devices = DeviceMap(**roles)
    assert DeviceMap(**devices.model_dump()) == devices
    assert DeviceMap.model_validate_json(devices.model_dump_json()) == devices
    for place in roles.values():
        assert Placement(**place.model_dump()) == place
        assert Placement.model_validate_json(place.model_dump_json()) == place


@pytest.mark.parametrize(
    ("actor", "forbidden"),
    [("0-1", True), ("1-2", True), ("local:1", True), ("2-3", False), ({"devices": "0", "inference_only": False}, None)],
)
def test_a_group_for_inference_only_forbids_its_devices_to_all_that_train(actor: Any, forbidden: bool | None) -> None:
    written = {"groups": {"g": {"devices": [0, 1], "inference_only": True}}, "rollout": "g", "actor": actor}
    if forbidden is None:
        with pytest.raises(ConfigError, match=r"actor.inference_only: False here, and local:0 is also in the group 'g'"):
            DeviceMap.load(written)
        return
    devices = DeviceMap.load(written)
    assert ("WB113" in {finding.code for finding in devices.check() if finding.role == "actor"}) is forbidden


def test_one_device_by_two_names_is_one() -> None:
    assert "takes turns with the actor" in str(DeviceMap(actor="0-3", rollout="local:0-3"))
    assert "takes turns with the actor" in str(DeviceMap(actor="cpu", rollout="cpu:0"))


def test_a_question_in_words() -> None:
    """A preset and a shape by name; a word that is none is refused with the right one."""
    large = DeviceMap(actor="0-3")
    assert [one.code for one in large.check("dgx1-v100", model="shape:llama-70b") if one.severity == "error"] == ["WB501"]
    with pytest.raises(ConfigError, match=r"Question\(algorithm=...\)(.|\n)*write algo="):
        large.check("dgx1-v100", algorithm="ppo")
    with pytest.raises(ConfigError, match="dgx1-v100"):
        large.check("dgx1")


def test_mended_checks_anew_after_each_patch() -> None:
    """One patch after the other, of one list of findings, would give the same GPUs away twice."""
    devices = DeviceMap(actor="0,2,4,6", critic="share:actor", rollout="0,2,4,6 tp4")
    mended = devices.mended("dgx1-v100", algo="ppo")
    assert not [one for one in mended.check("dgx1-v100", algo="ppo") if one.severity in ("error", "warning")]
