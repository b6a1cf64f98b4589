"""Nested settings as one level: what a table of differences and a tracker's configuration are made of."""

from collections.abc import Mapping
from typing import Any


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"lora": {"rank": 16}}`` as ``{"lora.rank": 16}``; lists stay as they are.

    >>> flat({"lora": {"rank": 16, "targets": ["q", "v"]}, "seed": 0})
    {'lora.rank': 16, 'lora.targets': ['q', 'v'], 'seed': 0}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
