"""Hyperparameters are checked when they are written."""

from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from workbench.algos import DAPO, GRPO, GSPO, DrGRPO
from workbench.algos.checks import clip_range
from workbench.errors import ConfigError


@pytest.mark.parametrize("algorithm", [GRPO, DrGRPO, DAPO, GSPO])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"group_size": 1}, r"group_size=1: the baseline is the mean of a prompt's group.*\n  fix: give an integer of at least 2"),
        ({"group_size": 4.0}, r"group_size=4\.0"),
        ({"clip": 0.0}, r"clip=0\.0: .*between 0 and 1"),
        ({"clip": 1.0}, r"clip=1\.0: .*between 0 and 1"),
        ({"clip": (0.2, 1.5)}, r"clip=\(0\.2, 1\.5\).*\n.*\(0\.2, 0\.28\)"),
        ({"clip": (0.1, 0.2, 0.3)}, r"clip=\(0\.1, 0\.2, 0\.3\)"),
        ({"clip": "0.2"}, r"clip='0\.2'"),
        ({"kl": -0.1}, r"kl=-0\.1: a weight is a finite number and not negative"),
        ({"kl": float("nan")}, r"kl=nan"),
        ({"kl": 0.1, "kl_estimator": "k1"}, r"kl=0\.1 with kl_estimator='k1': the gradient of k1 has expectation zero.*\n.*'k3'"),
        ({"kl_estimator": "k9"}, r"kl_estimator='k9': known are k1, k2, k3"),
        ({"importance_cap": 0}, r"importance_cap=0: .*above 0\n.*None to switch the correction off"),
        ({"importance_cap": -2.0}, r"importance_cap=-2\.0"),
        ({"minibatches": 0}, r"minibatches=0: it is the number of optimizer steps per rollout"),
    ],
)
def test_values_that_cannot_work(algorithm, values, message):
    with pytest.raises(ConfigError, match=message):
        algorithm(**values)


def test_a_change_is_checked_too():
    with pytest.raises(ConfigError, match="clip=2"):
        replace(GRPO(), clip=2)


def test_own_values():
    with pytest.raises(ConfigError, match=r"reduction='mean': known are token, sequence, constant"):
        GRPO(reduction="mean")
    with pytest.raises(ConfigError, match=r"length=0: it is a length in tokens"):
        DrGRPO(length=0)


def test_values_that_work():
    assert GRPO(clip=(0.2, 0.28), kl=0.05, kl_estimator="k2", importance_cap=None, group_size=2).importance_cap is None
    assert GRPO(kl=0, kl_estimator="k1").kl == 0
    assert (clip_range(0.2), clip_range([0.1, 0.3])) == ((0.2, 0.2), (0.1, 0.3))
    assert asdict(GRPO(group_size=16))["group_size"] == 16


def test_frozen():
    with pytest.raises(FrozenInstanceError):
        GRPO().kl = 1.0


@pytest.mark.parametrize("algorithm", [GRPO, DrGRPO, DAPO, GSPO])
def test_the_kl_term_decides_on_the_reference(algorithm):
    assert (algorithm().needs_reference, algorithm().skips_zero_advantage) == (False, True)
    assert (algorithm(kl=0.1).needs_reference, algorithm(kl=0.1).skips_zero_advantage) == (True, False)
