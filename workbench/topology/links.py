"""What lies between two devices, and how fast that probably is.

The classes are those of ``nvidia-smi topo -m``, of ``rocm-smi --showtopo`` (XGMI), and NET for what goes over a network. Estimates are one
direction, in GB/s (10^9 bytes), of what a large copy reaches at best; each carries where it comes from. They are for comparing
places with one another, not for predicting a run.
"""

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from workbench.errors import ConfigError, check_kind
from workbench.topology.devices import GPU


class LinkKind(StrEnum):
    """The class of a link, the nearest first."""

    NVLINK = "NV"  # written with the number of bonded links: NV12
    XGMI = "XGMI"
    C2C = "C2C"
    PIX = "PIX"  # at most one PCIe bridge
    PXB = "PXB"  # several PCIe bridges, no host bridge
    PHB = "PHB"  # a PCIe host bridge, typically the CPU
    NODE = "NODE"  # between host bridges of one NUMA node
    SYS = "SYS"  # over the interconnect between NUMA nodes
    NETWORK = "NET"

    @property
    def is_fabric(self) -> bool:
        """A direct link between GPUs, beside PCIe: what islands and cliques are made of."""
        return self in (LinkKind.NVLINK, LinkKind.XGMI)

    @property
    def words(self) -> str:
        """What the class means, for people."""
        return _WORDS[self]


_WORDS = {
    LinkKind.NVLINK: "NVLink",
    LinkKind.XGMI: "Infinity Fabric (XGMI)",
    LinkKind.C2C: "NVLink-C2C",
    LinkKind.PIX: "one PCIe switch",
    LinkKind.PXB: "several PCIe switches",
    LinkKind.PHB: "a PCIe host bridge (the CPU)",
    LinkKind.NODE: "two host bridges of one NUMA node",
    LinkKind.SYS: "the interconnect between NUMA nodes",
    LinkKind.NETWORK: "the network",
}


@dataclass(frozen=True)
class Link:
    """What lies between the devices ``a`` and ``b`` (ids, "local:0"; one end may be a NIC), ``a`` before ``b`` in the topology's order.

    ``name``: as the tools write it, "NV12", "PIX", "XGMI", "NET". ``gb_per_s``: estimate, one direction; None where nothing is known.
    ``source``: of the estimate. ``p2p``: whether one GPU may read the other's memory; None where nobody said.
    """

    a: str
    b: str
    name: str
    gb_per_s: float | None = None
    source: str = ""
    p2p: bool | None = None

    def __post_init__(self) -> None:
        for end in (self.a, self.b, self.name):
            if not isinstance(end, str):
                check_kind("link", end, str, "Link('local:0', 'local:1', 'NV12')")
        kind_of(self.name)
        if self.gb_per_s is not None and not (isinstance(self.gb_per_s, float) and 0 < self.gb_per_s < math.inf):
            check_kind("gb_per_s", self.gb_per_s, float, "GB/s such as 25, or None where not known")
            if self.gb_per_s <= 0:
                raise ConfigError(f"gb_per_s={self.gb_per_s}", "over such a link nothing arrives", "give GB/s such as 25, or None")

    @property
    def kind(self) -> LinkKind:
        """The class: "NV12" is NVLINK."""
        return kind_of(self.name)

    @property
    def lanes(self) -> int:
        """Bonded NVLinks: 12 of "NV12"; 1 of any other class."""
        return int(self.name[2:]) if self.kind is LinkKind.NVLINK else 1


@lru_cache(maxsize=256)  # a machine of many GPUs has a hundred thousand links, of a few names
def kind_of(name: str) -> LinkKind:
    """The class that a tool's word names. ``SOC`` is what drivers before 384 wrote for SYS. Raises ConfigError where it names none."""
    if re.fullmatch(r"NV[0-9]{1,4}", name):
        return LinkKind.NVLINK
    if name != "NV" and name in list(LinkKind):
        return LinkKind(name)
    if name == "SOC":
        return LinkKind.SYS
    raise ConfigError(
        f"link {str(name)[:40]!r}", "that is no class of a link", f"write NV12 for 12 NVLinks, or one of {', '.join(list(LinkKind)[1:])}"
    )


# GB/s of one NVLink in one direction, by what a GPU's name says of its generation.
# Source: NVIDIA's NVLink generations (https://www.nvidia.com/en-us/data-center/nvlink/): 160, 300, 600, 900 and 1800 GB/s a GPU,
# both directions, over 4, 6, 12, 18 and 18 links. A bridge of NVLink 3 on RTX 3090 has 4 links of 14 GB/s (112.5 GB/s both ways).
_NVLINK = (
    (r"P100", 20.0, "NVLink 1"),
    (r"V100|TITAN V|GV100", 25.0, "NVLink 2"),
    (r"3090|A6000|A5000|A4500|A5500", 14.06, "NVLink 3 bridge"),
    (r"2080|TITAN RTX|RTX [568]000(?! Ada)|T4", 25.0, "NVLink 2 bridge"),
    (r"A100|A800|A30\b|A10\b|A40", 25.0, "NVLink 3"),
    (r"H100|H200|H800|H20\b|GH200|GH100", 25.0, "NVLink 4"),
    (r"B100|B200|B300|GB200|GB300", 50.0, "NVLink 5"),
)
_NVLINK_PAGE = "NVIDIA's NVLink generations"

# PCIe x16 in one direction, of what a copy reaches (about 80 % of 16, 32, 64 GB/s).
_PCIE = (
    (r"P100|V100|2080|TITAN|T4|K80|P40|GV100|Quadro", 12.0, "PCIe 3.0 x16"),
    (r"H100|H200|H800|H20\b|GH200|B100|B200|B300|GB200|GB300|5090|5080|RTX PRO|MI300|MI325|MI35", 50.0, "PCIe 5.0 x16"),
)
_PCIE_DEFAULT = (25.0, "PCIe 4.0 x16")
# What is left of it on the way, by class. NODE and SYS cross the CPU's own fabric, where copies between GPUs lose most.
_LEFT = {LinkKind.PIX: 1.0, LinkKind.PXB: 1.0, LinkKind.PHB: 0.8, LinkKind.NODE: 0.7, LinkKind.SYS: 0.5}
XGMI_GB_PER_S, C2C_GB_PER_S = 48.0, 450.0


def estimate(name: str, a: GPU, b: GPU) -> tuple[float | None, str]:
    """GB/s in one direction between two GPUs whose link is ``name``, and where that number comes from."""
    kind = kind_of(name)
    if kind is LinkKind.NVLINK:
        return _nvlink(int(name[2:]), a, b)
    if kind is LinkKind.XGMI:
        return XGMI_GB_PER_S, "one Infinity Fabric link: 64 GB/s by AMD's MI300X data sheet, of which copies reach about 48"
    if kind is LinkKind.C2C:
        return C2C_GB_PER_S, "NVLink-C2C: 900 GB/s both ways, by NVIDIA's Grace data sheet"
    if kind is LinkKind.NETWORK:
        return None, "the network's speed was not given"
    speed, generation = min((_pcie(a), _pcie(b)))
    return round(speed * _LEFT[kind], 1), f"{generation}, {_LEFT[kind]:.0%} of it left over {kind.words}"


def _nvlink(lanes: int, a: GPU, b: GPU) -> tuple[float, str]:
    known = [(speed, title) for pattern, speed, title in _NVLINK for gpu in (a, b) if gpu.name and re.search(pattern, gpu.name, re.I)]
    if known:
        speed, title = min(known)
        return round(lanes * speed, 1), f"{lanes} x {speed:g} GB/s, {title} ({_NVLINK_PAGE})"
    return lanes * 25.0, f"{lanes} x 25 GB/s, NVLink 2 to 4; the GPU's name is not known ({_NVLINK_PAGE})"


def _pcie(gpu: GPU) -> tuple[float, str]:
    found = next(((speed, title) for pattern, speed, title in _PCIE if gpu.name and re.search(pattern, gpu.name, re.I)), None)
    return found or (_PCIE_DEFAULT if gpu.name else (_PCIE_DEFAULT[0], f"{_PCIE_DEFAULT[1]} assumed, the GPU's name is not known"))
