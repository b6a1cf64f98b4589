"""Who is on a machine, as its drawing needs it: labels, colours and numbers. A drawing knows no roles."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Chip:
    """What one device does in one ``lane`` (a row that runs through all GPUs of a node).

    ``colour``: a name of the palette; ``texts``: the label, the longest form first. Neighbours with the same ``group`` are drawn as one
    bar: they hold one model together. ``hollow``: it holds no model of its own.
    """

    lane: str
    colour: str
    texts: tuple[str, ...]
    group: str
    hollow: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Entry:
    """One line of the key above the machine. ``numbers``: of the notes that concern it as a whole. ``words``: that its text uses."""

    colour: str
    title: str
    text: str
    numbers: tuple[int, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)  # word -> what it means


@dataclass(frozen=True)
class Held:
    """What a device holds at least, and its memory (None: not known), in GiB. ``text``: of what it consists."""

    gib: float
    of: float | None
    over: bool = False
    text: str = ""


@dataclass(frozen=True)
class Aside:
    """A place beside the GPUs, with what is there as (colour, label): a service, the CPU of the driver."""

    title: str
    chips: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Note:
    """A numbered verdict. ``severity``: "error", "warning" or "info"; ``devices``: ids of those that it concerns."""

    number: int
    severity: str
    title: str
    text: str
    fix: str = ""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Casting:
    """All that is on a machine. ``chips``: device -> what it does; ``lanes``: in this order. ``notes``: None where nobody judged.

    ``unchecked``: what the notes don't cover. ``memory``: device -> what it holds, where known; ``sums``: the same in lines of text.
    """

    chips: Mapping[str, tuple[Chip, ...]] = field(default_factory=dict)
    entries: tuple[Entry, ...] = ()
    lanes: tuple[str, ...] = ()
    asides: tuple[Aside, ...] = ()
    notes: tuple[Note, ...] | None = None
    description: str = ""
    unchecked: str = ""
    memory: Mapping[str, Held] = field(default_factory=dict)
    sums: tuple[str, ...] = ()

    @property
    def severities(self) -> dict[int, str]:
        """Number of a note -> how grave it is."""
        return {note.number: note.severity for note in self.notes or ()}

    def numbers(self, device: str) -> tuple[int, ...]:
        """The notes that concern a device."""
        return tuple(self._noted.get(device, ()))

    @cached_property
    def words(self) -> dict[str, str]:
        """The words of the key that need a word, with what they mean."""
        return {word: meaning for entry in self.entries for word, meaning in entry.words.items()}

    @cached_property
    def _noted(self) -> dict[str, list[int]]:
        """Device -> numbers of the notes that concern it."""
        found: dict[str, list[int]] = {}
        for note in self.notes or ():
            for device in dict.fromkeys(note.devices):
                found.setdefault(device, []).append(note.number)
        return found
