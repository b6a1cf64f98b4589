"""From cells to pairs: each pair has two cells, which must say the same. What is lost is told in plain words."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations

from workbench.topology.devices import GPU
from workbench.topology.reading.matrix import Said
from workbench.topology.topology import Pair

MOST_NAMED = 8


@dataclass
class Settled:
    """What the cells say together. ``words``: pair -> class; ``contradictions``, ``unknown``: pair -> the words that settle nothing."""

    words: dict[Pair, str] = field(default_factory=dict)
    contradictions: dict[Pair, str] = field(default_factory=dict)
    unknown: dict[Pair, str] = field(default_factory=dict)


def settle(cells: Mapping[Pair, frozenset[str]], known: Callable[[str], bool]) -> Settled:
    """Bring the two cells of each pair together. ``known``: whether a word is a class. One cell is enough where the other is missing."""
    settled = Settled()
    for (a, b), words in cells.items():
        other = cells.get((b, a))
        if other and (b, a) < (a, b):
            continue  # seen from the other side
        both = words if other is None or other is words else words | other
        word = next(iter(both))
        if len(both) > 1:
            settled.contradictions[a, b] = " or ".join(sorted(both)[:MOST_NAMED])
        elif known(word):
            settled.words[a, b] = word
        else:
            settled.unknown[a, b] = word
    return settled


def lost(said: Said, settled: Settled, rows: set[str], gpus: list[str]) -> tuple[str, ...]:
    """What a matrix lacks, a sentence a kind; empty where it is whole. ``rows``: whose rows are there; ``gpus``: of all columns."""
    seen = set(chain(settled.words, settled.contradictions, settled.unknown))
    pairs = [(a, b) for a, b in combinations(gpus, 2) if (a, b) not in seen and (b, a) not in seen]
    absent = [name for name in said.columns if name not in rows]
    between = [(pair, word) for pair, word in settled.contradictions.items()]
    unread = [(pair, word) for pair, word in settled.unknown.items() if set(pair) <= set(gpus)]
    sentences = (
        (absent, f"{_names(absent)}: row{'s' * (len(absent) > 1)} missing"),
        (said.short, f"{_names(said.short)}: row cut off"),
        (said.unfit, f"{_names(said.unfit)}: the row does not fit the header and is left out"),
        (said.misnamed, "the header does not fit the rows: columns are named by the X of the rows"),
        (said.unnamed, f"{said.unnamed} column{'s have' if said.unnamed > 1 else ' has'} no name"),
        (pairs, f"links {_pairs(pairs, gpus)} are not known"),
        (between, "the two rows of a pair differ, its link is left out: " + _words(between)),
        (unread, "no class of link, left out: " + _words(unread)),
    )
    return tuple(sentence for there, sentence in sentences if there)


def numa_warnings(gpus: Iterable[GPU]) -> tuple[str, ...]:
    """Whose NUMA node the text does not say, where it says that of others (older drivers print none)."""
    gpus = tuple(gpus)
    unknown = [f"GPU{gpu.index}" for gpu in gpus if gpu.numa is None]
    return (f"{_names(unknown)}: NUMA node not known",) if 0 < len(unknown) < len(gpus) else ()


def unread_warnings(unread: Mapping[str, str]) -> tuple[str, ...]:
    """Behind whose cells something stands that can't be read. ``unread``: label -> what."""
    words = [f"{label} ({text.strip()})" for label, text in unread.items()]
    return (f"NUMA node can't be read: {_names(words)}",) if words else ()


def _names(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def _pairs(pairs: list[Pair], gpus: list[str]) -> str:
    """ "between GPU5, GPU6, GPU7" where no pair of them is known, else the pairs."""
    ends = set(chain.from_iterable(pairs))
    if len(pairs) == len(ends) * (len(ends) - 1) // 2 and len(ends) > 2:
        return "between " + _names([gpu for gpu in gpus if gpu in ends])
    return _names([f"{a}-{b}" for a, b in pairs])


def _words(pairs: list[tuple[Pair, str]]) -> str:
    return _names([f"{a}-{b} ({word})" for (a, b), word in pairs])
