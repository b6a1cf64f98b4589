"""One verdict of the doctor."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Check:
    """One verdict. ``fix`` is empty where nothing is to be done."""

    name: str
    status: Status
    found: str
    fix: str = ""
