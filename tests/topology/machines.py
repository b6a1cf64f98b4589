"""Machines and castings that the drawing has to draw well, beside the presets."""

from itertools import combinations

from workbench.topology import GPU, NIC, Link, Topology
from workbench.topology.drawing.casting import Aside, Casting, Chip, Entry, Note
from workbench.topology.topology import connect

NAME = '<script>alert("1")</script> & $x_1$ ' + "long " * 40  # the worst that a device may be called
HOSTILE = NAME.replace("long", "\x07", 1)  # and what only a message may say


def pcie(count: int = 4) -> Topology:
    """GPUs behind two PCIe switches, within one PXB."""
    gpus = [GPU(index, name="NVIDIA A10", memory_gib=22.5, numa=0) for index in range(count)]
    names = {(a.id, b.id): "PIX" if a.index // 2 == b.index // 2 else "PXB" for a, b in combinations(gpus, 2)}
    return Topology("pcie", tuple(gpus), connect(gpus, names, dict.fromkeys(names, False)))


def one() -> Topology:
    """A single GPU."""
    return Topology("one GPU", (GPU(0, name="NVIDIA H100 PCIe", memory_gib=79.6),))


def cut_off() -> Topology:
    """A matrix that ends after its second row: no names, no memory, most links not known."""
    gpus = [GPU(index) for index in range(8)]
    names = {("local:0", f"local:{index}"): "NV12" for index in range(1, 8)}
    warnings = ("the matrix ends within the row of GPU1: what lies between the others is not known", HOSTILE)
    return Topology("cut off", tuple(gpus), connect(gpus, names), complete=False, warnings=warnings)


def hostile() -> Topology:
    """Names that nobody would give."""
    gpus = [GPU(index, node=f"n{index // 2}", name=NAME, memory_gib=1e9, numa=(0, 1), cpus="0-1," * 90) for index in range(4)]
    nics = tuple(NIC(NAME + str(number), "n0") for number in range(3))
    near = tuple(Link("n0:0", nic.id, "PIX") for nic in nics)
    return Topology(NAME, tuple(gpus), (Link("n0:0", "n0:1", "NV4", None), Link("n0:0", "n1:2", "NET")), nics, near)


def odd_pairs() -> Topology:
    """Bridges that cross: 0 with 2, 1 with 3; one GPU of another type, alone."""
    gpus = [GPU(index, name="RTX A6000", memory_gib=48.0) for index in range(4)] + [GPU(4, name="GT 1030", memory_gib=2.0)]
    names = {(a.id, b.id): "NV4" if b.index - a.index == 2 and b.index < 4 else "SYS" for a, b in combinations(gpus, 2)}
    return Topology("odd pairs", tuple(gpus), connect(gpus, names))


def sixteen_in_one() -> Topology:
    """A DGX-2: more GPUs than stand in a row."""
    gpus = [GPU(index, name="Tesla V100-SXM3-32GB", memory_gib=32.0, numa=index // 8) for index in range(16)]
    return Topology("dgx-2", tuple(gpus), connect(gpus, {(a.id, b.id): "NV6" for a, b in combinations(gpus, 2)}))


def machines() -> dict[str, Topology]:
    """All by name."""
    presets = ["rtx3090-2-bridge", "l40s-4", "dgx1-v100", "dgx-a100", "hgx-h100", "mi300x-8", "rtx4090-8", "2xdgx-a100", "2xgb200-nvl4"]
    found = {name: Topology.preset(name) for name in [*presets, "3xdgx1-v100", "8xhgx-h100", "4xdgx-a100"]}
    own = (one(), Topology.cpu(4), pcie(), cut_off(), odd_pairs(), sixteen_in_one(), Topology("nothing", ()))
    return found | {topology.name: topology for topology in own} | {"hostile": hostile(), "64 slots": Topology.cpu(64)}


def crowded(topology: Topology) -> Casting:
    """Everything at once: bars of two and of one, GPUs without a role, places beside, many long notes."""
    chips = {}
    for at, id in enumerate(topology.ids[: len(topology.ids) * 3 // 4 + 1]):
        pair = Chip("rollout", "rollout", (f"rollout tp2 #{at // 2}", "rollout"), f"rollout {at // 2}")
        whole = Chip("actor", "update_actor", ("actor fsdp", "actor"), "actor")
        chips[id] = (whole, pair, Chip("reference", "reference", ("reference", "ref"), f"reference {at}", hollow=True))
    severities = ("error", "warning", "info")
    notes = tuple(Note(n, severities[n % 3], f"WB{n} · {HOSTILE}", HOSTILE * 3, HOSTILE, topology.ids[::n]) for n in range(1, 25))
    asides = (
        Aside("CPU of the driver", (("reward", "reward"),)),
        Aside("service " + HOSTILE, (("update_critic", HOSTILE), ("reward", "x"))),
    )
    roles = ("update_actor", "update_critic", "rollout", "reference", "reward")
    entries = tuple(Entry(colour, f"role {colour}", "node1:0-7,node2:0-7 · 8 x tp2, merged, hybrid", (1, 2, 3, 14)) for colour in roles)
    return Casting(chips, entries, ("actor", "rollout", "reference"), asides, notes, HOSTILE)
