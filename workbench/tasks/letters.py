"""The demonstration's task: put letters in order, taught by nothing but a reward of 0 or 1."""

import math
import string
from collections.abc import Mapping
from random import Random

from workbench.errors import ConfigError
from workbench.tasks.prompts import Drawn, is_held_out
from workbench.tasks.scorers import exact
from workbench.tasks.task import Origin, Task

LENGTHS = {2: 5, 3: 3, 4: 2, 5: 1}


def sorting(alphabet: str = string.ascii_lowercase, lengths: Mapping[int, float] = LENGTHS) -> Task:
    """``sort dgab=`` -> ``abdg``: different letters of ``alphabet``, as many as ``lengths`` says (length -> weight), to be sorted.

    The demonstrations answer with the letters in an order drawn at *random*: imitation teaches to say each letter once and
    stop, and nothing in it prefers one order to another. That a comes before b is learnt from the reward alone, 1 for the
    sorted letters and 0 for anything else. A random order of n letters is sorted once in n!, so with the default lengths
    0.28 of all answers are right before training, most of them of two letters; what is learnt there makes longer ones
    come right often enough to be learnt in turn.

    Held-out prompts are in no demonstration either. They are answered at temperature 1: the greedy answer of a policy that
    has no preference is arbitrary, and jumps to 1 with the faintest preference, long before the policy itself is any good.
    """
    _check(alphabet, lengths)
    rank = {letter: place for place, letter in enumerate(alphabet)}
    sizes, weights = list(lengths), list(lengths.values())

    def draw(rng: Random) -> tuple[str, str]:
        letters = rng.sample(alphabet, rng.choices(sizes, weights)[0])
        return f"sort {''.join(letters)}=", "".join(sorted(letters, key=rank.__getitem__))

    def demonstrations(seed: int, count: int) -> list[tuple[str, str]]:
        rng = Random(f"demonstrations {seed}")
        pairs: list[tuple[str, str]] = []
        while len(pairs) < count:
            prompt, answer = draw(rng)
            if not is_held_out(prompt):
                pairs.append((prompt, "".join(rng.sample(answer, len(answer)))))
        return pairs

    name = "sorting" if (alphabet, lengths) == (string.ascii_lowercase, LENGTHS) else f"sorting({alphabet!r}, {dict(lengths)})"
    return Task(name, exact, Drawn(name, draw), demonstrations, held_out_temperature=1.0, origin=_origin(alphabet, lengths))


def _origin(alphabet: str, lengths: Mapping[int, float]) -> Origin:
    """``lengths`` as pairs: JSON would make texts of its keys."""
    return Origin("sorting", {"alphabet": alphabet, "lengths": [[length, weight] for length, weight in lengths.items()]})


def _check(alphabet: str, lengths: Mapping[int, float]) -> None:
    """Refuse what can't be drawn from."""
    doubled = sorted({letter for letter in alphabet if alphabet.count(letter) > 1})
    if doubled or not alphabet.isalnum():
        found = f"{''.join(doubled)!r} is there twice" if doubled else "there is something else in it than letters and digits"
        raise ConfigError(f"sorting(alphabet={alphabet!r})", found, "give different letters or digits, in their order")
    asked = f"sorting(lengths={dict(lengths)})"
    if not lengths:
        raise ConfigError(asked, "no length is given", "write {2: 5, 3: 3}: length -> weight")
    for length, weight in lengths.items():
        if not isinstance(length, int) or not 2 <= length <= len(alphabet):
            raise ConfigError(
                asked, f"{length!r} letters can't be drawn and sorted", f"lengths go from 2 to {len(alphabet)}, the alphabet's"
            )
        if not (math.isfinite(weight) and weight > 0):
            raise ConfigError(asked, f"length {length} has the weight {weight!r}", "weights are above 0; leave a length out instead")
