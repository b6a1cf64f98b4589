"""Maps to begin with."""

import pytest

from workbench.errors import ConfigError
from workbench.mapping import DeviceMap, template


def test_the_maps() -> None:
    assert template("cpu") == DeviceMap()
    assert template("colocated", gpus=1) == DeviceMap(actor="0")
    assert template("colocated", gpus=8) == DeviceMap(actor="0-7", rollout="0-7", reference="share:actor", reward="cpu")
    assert template("split", gpus=2) == DeviceMap(actor="0", rollout="1")
    assert template("split", gpus=5) == DeviceMap(actor="0-1", rollout="2-4")


def test_those_that_this_version_runs() -> None:
    template("cpu").check_runnable()
    template("colocated", gpus=1).check_runnable()
    with pytest.raises(ConfigError, match=r"actor: '0-1': every model shares one device in this version"):
        template("colocated", gpus=2).check_runnable()


@pytest.mark.parametrize(
    ("name", "gpus", "match"),
    [
        ("cpu", 1, r"template\('cpu', gpus=1\): it takes no GPU\n  fix: leave gpus out"),
        ("colocated", 0, r"it takes at least 1\n  fix: write template\('colocated', gpus=1\) or more"),
        ("split", 1, "it takes at least 2"),
        ("collocated", 2, "the templates are cpu, colocated, split"),
        ("split", "2", "that is a str"),
    ],
)
def test_what_does_not_fit(name: str, gpus: int, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        template(name, gpus)
