"""This machine's topology: by NVML, else by what nvidia-smi or rocm-smi print, else slots on the CPU.

CUDA is not initialised and torch is not imported, so that a notebook's kernel holds no memory of a GPU.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.topology.detection import tools, visible
from workbench.topology.detection.cards import Card, cards
from workbench.topology.detection.host import ROOT, cpu_slots, gpu_signs, infiniband
from workbench.topology.detection.nvml import LIBRARY_NOT_FOUND, Inquiry, Missing, opened
from workbench.topology.detection.wires import wires
from workbench.topology.devices import GPU
from workbench.topology.links import estimate
from workbench.topology.topology import Topology

NVIDIA_MATRIX = ("nvidia-smi", "topo", "-m")
NVIDIA_TABLE = ("nvidia-smi", "--query-gpu=index,name,memory.total,pci.bus_id,uuid", "--format=csv,noheader,nounits")
AMD_MATRIX = ("rocm-smi", "--showtopo")
MIB_PER_GIB = 1024


@dataclass(frozen=True)
class Machine:
    """Where to look. ``library``: with the names of pynvml. ``root``: where /proc, /sys and /dev hang. Tests give others."""

    environment: Mapping[str, str]
    library: Any = None
    root: Path = ROOT

    @cached_property
    def matrix(self) -> Topology | Missing:
        """What ``nvidia-smi topo -m`` prints, asked once."""
        return tools.matrix(NVIDIA_MATRIX, self.environment)

    def link_name(self, a: int, b: int) -> str | None:
        """The word of nvidia-smi's matrix for two GPUs, by the driver's numbers."""
        known = isinstance(self.matrix, Topology) and self.matrix.find(a) and self.matrix.find(b)
        link = self.matrix.link(a, b) if known and isinstance(self.matrix, Topology) else None
        return link.name if link else None


def detect(machine: Machine | None = None) -> Topology:
    """The GPUs that this process may use, numbered in PCI order, and what lies between them. CPU slots where there are none.

    Never raises for what a driver does: a value that can't be had is None, with the reason in ``warnings``. Under a second,
    unless NVML can't tell and nvidia-smi has to be asked.
    """
    machine = machine or Machine(dict(os.environ))
    by_nvml = _by_nvml(machine)
    if isinstance(by_nvml, Topology):
        return by_nvml
    by_smi = _by_nvidia_smi(machine)
    if isinstance(by_smi, Topology):
        return _warned(by_smi, f"NVML: {by_nvml.reason}; this is what nvidia-smi prints")
    by_rocm = _by_rocm_smi(machine)
    if isinstance(by_rocm, Topology):
        return by_rocm
    return _cpu_instead(machine, (by_nvml, by_smi, by_rocm))


def _by_nvml(machine: Machine) -> Topology | Missing:
    with opened(machine.library) as nvml:
        if isinstance(nvml, Missing):
            return nvml
        inquiry = Inquiry(nvml)
        found = cards(inquiry, machine.root)
        if not found:
            return Missing("; ".join(inquiry.warnings) or "n/a: NVML lists no GPU")
        order = list(dict.fromkeys(card.number for card in found))  # CUDA counts GPUs in PCI order, whatever NVML's order is
        candidates = [visible.Candidate(order.index(card.number), card.names, card.gpu.name) for card in found]
        seen = visible.nvidia(candidates, machine.environment)
        if not seen.positions:
            return _hidden(len(found), machine.environment, seen.warnings)
        chosen = [replace(found[p], gpu=replace(found[p].gpu, index=index)) for index, p in enumerate(seen.positions)]
        return _assembled(machine, inquiry, chosen, seen.warnings)


def _assembled(machine: Machine, inquiry: Inquiry, chosen: Sequence[Card], warnings: tuple[str, ...]) -> Topology:
    gpus = tuple(card.gpu for card in chosen)
    links = wires(inquiry, chosen, machine.link_name)
    full = sum(not gpu.mig for gpu in gpus)
    return Topology(
        _title(gpus),
        gpus,
        links,
        nics=infiniband(machine.root),
        complete=len(links) == full * (full - 1) // 2 and not inquiry.lacks("handle"),
        warnings=(*warnings, *_about_mig(gpus), *inquiry.warnings),
    )


def _about_mig(gpus: Sequence[GPU]) -> tuple[str, ...]:
    slices = sum(gpu.mig for gpu in gpus)
    if not slices:
        return ()
    rule = "CUDA shows a process only one of them, and none reaches another's memory: no tensor parallelism over them"
    rest = "; CUDA lists the GPUs without MIG only to processes that see no slice" if slices < len(gpus) else ""
    return (f"{slices} of the {len(gpus)} devices are MIG slices: {rule}{rest}",)


def _title(gpus: Sequence[GPU]) -> str:
    """ "8 x NVIDIA H200"."""
    return ", ".join(f"{count} x {name}" for name, count in Counter(gpu.name or "GPU" for gpu in gpus).items())


def _by_nvidia_smi(machine: Machine) -> Topology | Missing:
    found = machine.matrix
    if isinstance(found, Missing):
        return found
    found = _with_table(found, tools.output(NVIDIA_TABLE, machine.environment))
    candidates = [visible.Candidate(gpu.index, (gpu.uuid,) if gpu.uuid else (), gpu.name) for gpu in found.gpus]
    return _restricted(found, visible.nvidia(candidates, machine.environment), machine.environment)


def _with_table(topology: Topology, table: str | Missing) -> Topology:
    """``topology`` with what ``nvidia-smi --query-gpu`` says of each GPU."""
    if isinstance(table, Missing):
        return _warned(topology, f"names and memory: {table.reason}")
    rows = [[cell.strip() for cell in line.split(",")] for line in table.splitlines()]
    known = {int(row[0]): row for row in rows if len(row) == 5 and row[0].isdecimal()}
    gpus = tuple(_with_row(gpu, known[gpu.index]) if gpu.index in known else gpu for gpu in topology.gpus)
    by_id = {gpu.id: gpu for gpu in gpus}
    links = []
    for link in topology.links:
        speed, source = estimate(link.name, by_id[link.a], by_id[link.b])
        links.append(replace(link, gb_per_s=speed, source=source))
    return replace(topology, name=_title(gpus), gpus=gpus, links=tuple(links))


def _with_row(gpu: GPU, row: Sequence[str]) -> GPU:
    _, name, mib, bus, uuid = ("".join(c for c in cell if c.isprintable()) for cell in row)
    memory = round(int(mib) / MIB_PER_GIB, 2) or None if mib.isdecimal() and len(mib) < 12 else None
    return replace(gpu, name=name, memory_gib=memory, pci_bus=bus.upper(), uuid=uuid)


def _by_rocm_smi(machine: Machine) -> Topology | Missing:
    found = tools.matrix(AMD_MATRIX, machine.environment)
    if isinstance(found, Missing):
        return found
    seen = visible.amd([visible.Candidate(gpu.index) for gpu in found.gpus], machine.environment)
    return _restricted(found, seen, machine.environment)


def _restricted(topology: Topology, seen: visible.Visible, environment: Mapping[str, str]) -> Topology:
    """``topology`` of the visible GPUs alone, numbered anew."""
    if not seen.positions:
        return _hidden(len(topology.gpus), environment, seen.warnings)
    chosen = [topology.gpus[position] for position in seen.positions]
    new = {gpu.id: replace(gpu, index=index) for index, gpu in enumerate(chosen)}
    ids = {old: gpu.id for old, gpu in new.items()} | {nic.id: nic.id for nic in topology.nics}
    links = tuple(replace(link, a=ids[link.a], b=ids[link.b]) for link in topology.links if {link.a, link.b} <= ids.keys())
    nic_links = tuple(replace(link, a=ids[link.a], b=ids[link.b]) for link in topology.nic_links if {link.a, link.b} <= ids.keys())
    return replace(topology, gpus=tuple(new.values()), links=links, nic_links=nic_links, warnings=(*topology.warnings, *seen.warnings))


def _hidden(count: int, environment: Mapping[str, str], warnings: tuple[str, ...]) -> Topology:
    """CPU slots, since variables hide every GPU."""
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    hiding = " and ".join(f"{name}={environment[name]!r}" for name in names if name in environment)
    return _cpu(warnings or (f"{hiding} hides the {count} that are here",))


def _cpu_instead(machine: Machine, tried: Sequence[Missing]) -> Topology:
    """CPU slots, since nothing lists a GPU. No warning where there is neither a driver nor another sign of one."""
    signs = gpu_signs(machine.root)
    if signs:
        reasons = "; ".join(missing.reason for missing in tried)
        return _cpu((f"there are signs of GPUs ({', '.join(signs)}), but none could be listed: NVML {reasons}",))
    return _cpu(() if tried[0].code == LIBRARY_NOT_FOUND else (f"NVML: {tried[0].reason}",))


def _cpu(warnings: tuple[str, ...]) -> Topology:
    slots = cpu_slots()
    return replace(Topology.cpu(slots), name=f"{slots} CPU slots, no GPU", warnings=warnings)


def _warned(topology: Topology, warning: str) -> Topology:
    return replace(topology, warnings=(*topology.warnings, warning))
