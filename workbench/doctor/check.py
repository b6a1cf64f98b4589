"""One verdict of the doctor, and how numbers are read for it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Check:
    """One verdict. ``fix`` is empty where nothing is to be done."""

    name: str
    status: Status
    found: str
    fix: str = ""


def first_number(path: Path) -> float | None:
    """First number of a file of the kernel; None where it is absent or says "max"."""
    try:
        return float(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
