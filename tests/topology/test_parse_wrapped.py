"""A matrix whose lines were wrapped by a terminal or an editor: the same links as the whole, and nothing false."""

import textwrap
from collections.abc import Callable

import pytest

from tests.topology.test_parse import NVIDIA, TEXTS, links
from tests.topology.test_parse_damage import facts
from workbench.errors import ConfigError
from workbench.topology import Topology

MORE = [name for name in TEXTS if name.startswith("more/") and "amd" not in name and "rocm" not in name]


def pieces(line: str, width: int) -> list[str]:
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]


WRAPS: dict[str, Callable[[str, int], list[str]]] = {
    "terminal": lambda line, width: pieces(line.expandtabs(), width),
    "terminal, blanks at the end lost": lambda line, width: [piece.rstrip() for piece in pieces(line.expandtabs(), width)],
    "between words": lambda line, width: textwrap.wrap(line, width, break_long_words=False) or [""],
    "tabs kept": pieces,
}


def wrapped(name: str, how: str, width: int) -> str:
    plain = TEXTS[name].replace("\x1b[4m", "").replace("\x1b[0m", "")
    return "\n".join(piece for line in plain.split("\n") for piece in WRAPS[how](line, width))


@pytest.mark.parametrize("how", WRAPS)
@pytest.mark.parametrize("width", [40, 80, 120, 47, 61, 100])
def test_wrapped_lines_are_put_together(how, width):
    for name in [*NVIDIA, *MORE]:
        whole, again = Topology.parse(TEXTS[name]), Topology.parse(wrapped(name, how, width))
        assert (links(again), again.nic_links) == (links(whole), whole.nic_links), name
        assert facts(again) <= facts(whole), name
        told = not again.complete or len(again.warnings) > len(whole.warnings)
        assert facts(again) == facts(whole) or told, name


def test_a_wrapped_text_that_is_cut_off_says_nothing_false():
    for name in ("10_dgx-a100-8gpu-12mlx-nps4.txt", "20_2x3090-nv4-bridge.txt", "23_slurm-4xnv4-blank-cpu-affinity.txt"):
        text, whole = wrapped(name, "terminal", 40), Topology.parse(TEXTS[name])
        for at in range(0, min(len(text), 2500), 17):
            try:
                topology = Topology.parse(text[:at])
            except ConfigError:
                continue
            assert facts(topology) <= facts(whole), text[:at][-90:]


def test_a_number_that_may_be_two_is_given_up():
    text = "GPU0 GPU1 CPU\nAffinity NUMA\nAffinity\nGPU0 X NV4 0-31 1\n2\nGPU1 NV4 X 0-31 1\n2\n"
    topology = Topology.parse(text)
    assert links(topology) == {("local:0", "local:1"): "NV4"}
    assert set(topology.numa.values()) <= {None}
    assert not topology.complete


def test_cells_that_belong_to_no_row_are_told():
    topology = Topology.parse("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n\nSYS SYS SYS\n")
    assert not topology.complete
    assert "lines of cells that belong to no row" in topology.warnings[-1]
