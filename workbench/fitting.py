"""Whether values are of the kinds that a record's fields have: a file of events may be damaged, or another version's."""

import math
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from workbench.records import Record

_FINITE = ("time", "mono", "done", "total", "begin_mono", "seconds")  # when, how long, how far: whatever diverges, these do not


def unlike(cls: type, values: dict[str, Any]) -> str:
    """What among ``values``, which are fields of ``cls``, is of another kind, in words; "" where all are right."""
    for name, hint in _kinds(cls).items():
        if name not in values:
            continue
        value = values[name]
        if not fits(value, hint):
            return f"{name} is {_short(value)}"
        if name in _FINITE and isinstance(value, float) and not math.isfinite(value):
            return f"{name} is {value}"
    return ""


def fits(value: Any, hint: Any) -> bool:
    """Whether ``value``, read from JSON, is a ``hint``: a plain type, a list, a dict by names, a union of these, or anything."""
    if hint is Any:
        return True
    origin, parts = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return any(fits(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(fits(one, parts[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(one, parts[1]) for one in value.values())
    if hint is bool:
        return isinstance(value, int) and value in (0, 1)
    if hint in (int, float):
        return isinstance(value, int) or (isinstance(value, float) and (hint is float or value.is_integer()))
    return isinstance(value, NoneType if hint is None else hint)


def uneven(record: Record) -> str:
    """What of a record that has lists by device has not one value for each, in words; "" where all have."""
    devices = getattr(record, "devices", None)
    if not isinstance(devices, list):
        return ""
    lists = {name: value for name, value in vars(record).items() if isinstance(value, list) and name != "members"}
    return next(
        (f"{name} has {len(value)} values for {len(devices)} devices" for name, value in lists.items() if len(value) != len(devices)), ""
    )


@cache
def _kinds(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"a {type(value).__name__}"
