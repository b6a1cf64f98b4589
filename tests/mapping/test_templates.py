"""Maps to begin with, as functions and as files."""

from pathlib import Path

import pytest

from workbench.errors import ConfigError
from workbench.mapping import DeviceMap, template
from workbench.mapping.templates import _MAPS

FILES = Path(__file__).parent.parent.parent / "recipes" / "maps"
NUMBERS = {"two_gpus": 2, "four_gpus": 4, "eight_gpus": 8}


def test_the_maps() -> None:
    assert template("cpu") == DeviceMap()
    assert template("colocated", gpus=1) == DeviceMap(actor="0")
    assert template("colocated", gpus=8) == DeviceMap(actor="0-7", rollout="0-7", reference="share:actor", reward="cpu")
    assert template("split", gpus=2) == DeviceMap(actor="0", rollout="1")
    assert template("split", gpus=5) == DeviceMap(actor="0-1", rollout="2-4")
    assert template("hybrid", gpus=2) == DeviceMap(actor="0-1 fsdp", rollout="0-1 tp2")
    assert template("hybrid", gpus=3) == DeviceMap(actor="0-2 fsdp", rollout="0-2")
    assert template("rollout_apart", gpus=4) == DeviceMap(actor="0-1 fsdp", rollout="2-3 tp2")
    assert template("rollout_apart", gpus=2) == DeviceMap(actor="0", rollout="1")
    assert template("critic_isolated", gpus=2) == DeviceMap(actor="0", critic="1")
    assert template("critic_isolated", gpus=4) == DeviceMap(actor="0-2 fsdp", critic="3", rollout="0-2")
    assert template("critic_isolated", gpus=8) == DeviceMap(actor="0-5 fsdp", critic="6-7 fsdp", rollout="0-5 tp2")
    assert template("reward_service", gpus=2) == DeviceMap(actor="0-1 fsdp", rollout="0-1 tp2", reward="http://localhost:8080")


@pytest.mark.parametrize("name", _MAPS)
@pytest.mark.parametrize("gpus", range(1, 17))
def test_none_has_an_error_of_its_own(name: str, gpus: int) -> None:
    least = _MAPS[name][0]
    if gpus >= least and name != "cpu":
        devices = template(name, gpus)
        assert [str(finding) for finding in devices.check() if finding.severity == "error"] == []
        assert len({device for place in devices.places.values() for device in place.devices} - {"cpu"}) == gpus


@pytest.mark.parametrize("path", sorted(FILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_files(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[1].startswith("# Good for: ")
    assert lines[2].startswith("# Not for: ")
    devices = DeviceMap.load(path)
    assert [str(finding) for finding in devices.check() if finding.severity == "error"] == []
    gpus = next((number for start, number in NUMBERS.items() if path.stem.startswith(start)), 0)
    if gpus:
        made = template(path.stem.split("_gpus_")[1], gpus=gpus)
        assert (
            str(made)
            == str(devices).replace(", shared_mem_name rewards", "").replace("shared_mem_name rewards", "").replace("  \n", "\n").rstrip()
        )


def test_a_file_for_every_number_of_gpus() -> None:
    names = {path.stem for path in FILES.glob("*.yaml")}
    assert {f"{start}_{kind}" for start in NUMBERS for kind in ("hybrid", "rollout_apart")} <= names
    assert {"four_gpus_critic_isolated", "eight_gpus_critic_isolated", "eight_gpus_reward_service"} <= names
    assert {"cpu", "one_gpu", "two_nodes_of_eight_hybrid", "two_nodes_of_eight_rollout_apart"} <= names


def test_those_that_this_version_runs() -> None:
    template("cpu").check_runnable()
    template("colocated", gpus=1).check_runnable()
    for name in ("colocated", "split", "hybrid", "rollout_apart", "critic_isolated", "reward_service"):
        template(name, gpus=4).check_runnable()


@pytest.mark.parametrize(
    ("name", "gpus", "match"),
    [
        ("cpu", 1, r"template\('cpu', gpus=1\): it takes no GPU\n  fix: leave gpus out"),
        ("colocated", 0, r"it takes at least 1\n  fix: write template\('colocated', gpus=1\) or more"),
        ("split", 1, "it takes at least 2"),
        ("split", -1, "it takes at least 2"),
        ("collocated", 2, "the templates are cpu, colocated, split, hybrid, rollout_apart, critic_isolated, reward_service"),
        ("split", "2", "that is a str"),
    ],
)
def test_what_does_not_fit(name: str, gpus: int, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        template(name, gpus)
