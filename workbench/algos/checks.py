"""Checks of hyperparameters and of terms, made when they are written."""

import functools
from collections.abc import Callable
from dataclasses import fields
from math import isfinite
from typing import Any, TypeGuard, TypeVar

from torch import Tensor

from workbench.errors import ConfigError

Clip = float | tuple[float, float]
Class = TypeVar("Class", bound=type)


def refused(**reasons: tuple[str, str]) -> Callable[[Class], Class]:
    """Class decorator: a keyword of another library that has no name here is a ConfigError with its reason, (found, fix)."""

    def decorate(cls: Class) -> Class:
        """``cls`` with a checked ``__init__``."""
        init = cls.__init__  # type: ignore[misc]

        @functools.wraps(init)
        def checked(self: Any, *values: Any, **named: Any) -> None:
            for name in named.keys() & reasons.keys():
                raise ConfigError(f"{cls.__name__}({name}=...)", *reasons[name])
            init(self, *values, **named)

        cls.__init__ = checked  # type: ignore[misc]
        return cls

    return decorate


def check_count(name: str, value: object, *, least: int = 1, why: str = "it counts something") -> None:
    """Raise ConfigError unless ``value`` is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name}={value!r}", why, f"give an integer of at least {least}")


def check_share(name: str, value: object) -> None:
    """Raise ConfigError unless ``value`` is above 0 and at most 1."""
    if not _is_number(value) or not 0 < value <= 1:
        raise ConfigError(f"{name}={value!r}", "a share lies above 0 and at most at 1", "give 0.2 for a fifth, say")


def check_fraction(name: str, value: object) -> None:
    """Raise ConfigError unless ``value`` lies in [0, 1]."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise ConfigError(f"{name}={value!r}", "it is a factor from token to token, from 0 to 1", f"give {name}=1.0 or a little less, say")


def check_positive(name: str, value: object, *, why: str, off: str) -> None:
    """Raise ConfigError unless ``value`` is a finite number above 0."""
    if not _is_number(value) or value <= 0:
        raise ConfigError(f"{name}={value!r}", why, f"give a finite number above 0; {off}")


def check_same_shape(terms: Any) -> None:
    """Raise ConfigError unless all tensors of the dataclass ``terms`` have its first one's shape; None is left out."""
    owner, first = type(terms).__name__, fields(terms)[0].name
    shapes = {f.name: tuple(value.shape) for f in fields(terms) if (value := getattr(terms, f.name)) is not None}
    wrong = {name: shape for name, shape in shapes.items() if shape != shapes[first]}
    if wrong:
        raise ConfigError(f"{owner} with {first} of shape {shapes[first]}", f"other shapes: {wrong}", "give every term one value per token")


def check_group_size(value: object) -> None:
    """Raise ConfigError unless a group has completions to compare."""
    check_count("group_size", value, least=2, why="the baseline is the mean of a prompt's group; against itself alone every advantage is 0")


def check_weight(name: str, value: object) -> None:
    """Raise ConfigError unless ``value`` is a finite number of at least 0."""
    if not _is_number(value) or value < 0:
        raise ConfigError(f"{name}={value!r}", "a weight is a finite number and not negative", f"give {name} >= 0; 0 switches it off")


def check_kl(kl: object, estimator: str) -> None:
    """Raise ConfigError where the KL term can't work as a part of the loss."""
    check_weight("kl", kl)
    if kl and estimator == "k1":
        found = "the gradient of k1 has expectation zero, so as a loss it only adds noise"
        raise ConfigError(f"kl={kl!r} with kl_estimator='k1'", found, "use 'k3' (GRPO's) or 'k2'")


def given_reference(kl: float, values: Tensor | None, name: str) -> Tensor:
    """``values``, what a KL term reads of the reference. Raises ConfigError where there are none; ``name`` says what to give."""
    if values is None:
        raise ConfigError(f"kl={kl}", "there are no reference log-probabilities", f"give {name}, or set kl=0")
    return values


def check_cap(cap: object) -> None:
    """Raise ConfigError unless ``cap`` is None (off) or a number above 0."""
    if cap is not None and (not _is_number(cap) or cap <= 0):
        found = "importance weights are cut at this number, so it has to be above 0"
        raise ConfigError(f"importance_cap={cap!r}", found, "give 2.0, say, or None to switch the correction off")


def clip_range(clip: Clip) -> tuple[float, float]:
    """``clip`` as (low, high): 0.2 is (0.2, 0.2). Raises ConfigError unless both lie inside (0, 1)."""
    low_high = tuple(clip) if isinstance(clip, tuple | list) else (clip, clip)
    if len(low_high) != 2 or not all(_is_number(x) and 0 < x < 1 for x in low_high):
        found = "the ratio is held within 1 - low and 1 + high, with low and high between 0 and 1 (exclusive)"
        raise ConfigError(f"clip={clip!r}", found, "give one number such as 0.2, or a pair (low, high) such as (0.2, 0.28)")
    return low_high[0], low_high[1]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)  # JSON holds no other numbers
