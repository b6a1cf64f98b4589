"""How a message names what was meant: the nearest of the known words, and values cut short."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def nearest(word: str, known: Iterable[str], title: str) -> str:
    """A fix for ``word``: the known word that looks most like it, else all of them. ``title``: what they are, "the roles"."""
    names = [str(name) for name in known]
    near = get_close_matches(word[:60], names, n=1)
    return f"write {near[0]!r}" if near else f"{title} are {', '.join(names)}"


def shown(value: Any) -> str:
    """A value for a message, on one line and cut short."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a list in itself
        return f"{type(value).__name__} too long to show"
    return text if len(text) <= 60 else f"{text[:57]}..."
