"""An NVML library with machines of our own: the names of pynvml that detection calls, its errors, and its habit of failing."""

import ctypes
from collections.abc import Callable
from ctypes import c_uint
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 2**30


@dataclass
class Chip:
    """A GPU or a MIG slice, and a handle to it. ``ports``: (active, kind of the other end, its bus). ``slices``: None, no MIG mode."""

    bus: str
    name: str = "NVIDIA H200"
    memory_gib: float = 140.4
    uuid: str = ""
    nodes: int = 0b1
    cpus: int = 0xFFFF
    ports: list[tuple[int, int, str]] = field(default_factory=list)
    slices: "list[Chip | None] | None" = None
    is_slice: bool = False

    def __post_init__(self) -> None:
        self.uuid = self.uuid or f"GPU-{self.bus[9:11].lower()}000000-0000-0000-0000-000000000000"


Level = Callable[[int, int], int]
Status = Callable[[int, int, int], int]


def error(code: int) -> pynvml.NVMLError:
    """What pynvml raises for a code of NVML."""
    return pynvml.NVMLError(code)


def slice_of(chip: Chip, position: int) -> Chip:
    """NVML's answer for the MIG slice with that number."""
    found = chip.slices[position] if chip.slices and position < len(chip.slices) else None
    if found is None:
        raise error(pynvml.NVML_ERROR_NOT_FOUND)
    return found


def port_of(chip: Chip, port: int) -> tuple[int, int, str]:
    """The port with that number; GPUs without NVLink and too high numbers are refused as NVML refuses them."""
    if port >= len(chip.ports):
        raise error(pynvml.NVML_ERROR_INVALID_ARGUMENT if chip.ports else pynvml.NVML_ERROR_NOT_SUPPORTED)
    return chip.ports[port]


def words(mask: int, count: int) -> "ctypes.Array[ctypes.c_ulong]":
    """A mask in words of 64 bits, as pynvml gives it: an array of ctypes, which counts as a sequence but not as an Iterable."""
    return (ctypes.c_ulong * count)(*(mask >> 64 * word & 2**64 - 1 for word in range(count)))


class FakeNVML:
    """``level``: PCIe class of two GPUs; ``p2p``: status by (a, b, cap). ``refused``: function -> the code that it fails with.

    The call number ``fails_at`` fails with ``code``. ``open``: how often it was opened and not shut.
    """

    NVMLError = pynvml.NVMLError

    def __init__(self, chips: list[Chip], level: Level = lambda a, b: 50, p2p: Status = lambda a, b, cap: 0) -> None:
        self.chips, self.level, self.p2p = chips, level, p2p
        self.calls: list[str] = []
        self.refused: dict[str, int] = {}
        self.fails_at, self.code, self.open = -1, pynvml.NVML_ERROR_UNKNOWN, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ANSWERS:
            raise AttributeError(name)
        return lambda *args: self._answer(name, args)

    def _answer(self, name: str, args: tuple[Any, ...]) -> Any:
        assert self.open or name == "nvmlInit", f"{name} while NVML is shut"
        self.calls.append(name)
        if len(self.calls) - 1 == self.fails_at:
            raise error(self.code)
        if name in self.refused:
            raise error(self.refused[name])
        self.open += {"nvmlInit": 1, "nvmlShutdown": -1}.get(name, 0)
        return ANSWERS[name](self, *args)

    def pair(self, a: Chip, b: Chip) -> tuple[int, int]:
        """Positions of two handles."""
        return self.chips.index(a), self.chips.index(b)


ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlInit": lambda fake: None,
    "nvmlShutdown": lambda fake: None,
    "nvmlDeviceGetCount": lambda fake: len(fake.chips),
    "nvmlDeviceGetHandleByIndex": lambda fake, number: fake.chips[number],
    "nvmlDeviceGetName": lambda fake, chip: chip.name,
    "nvmlDeviceGetUUID": lambda fake, chip: chip.uuid,
    "nvmlDeviceGetPciInfo": lambda fake, chip: SimpleNamespace(busId=chip.bus),
    "nvmlDeviceGetMemoryInfo": lambda fake, chip: SimpleNamespace(total=int(chip.memory_gib * GIB)),
    "nvmlDeviceGetMemoryAffinity": lambda fake, chip, count, scope: words(chip.nodes, count),
    "nvmlDeviceGetCpuAffinity": lambda fake, chip, count: words(chip.cpus, count),
    "nvmlDeviceIsMigDeviceHandle": lambda fake, chip: c_uint(chip.is_slice),
    "nvmlDeviceGetMigMode": lambda fake, chip: [int(chip.slices is not None), 0],
    "nvmlDeviceGetMaxMigDeviceCount": lambda fake, chip: 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda fake, chip, position: slice_of(chip, position),
    "nvmlDeviceGetGpuInstanceId": lambda fake, chip: 7,
    "nvmlDeviceGetComputeInstanceId": lambda fake, chip: 0,
    "nvmlDeviceGetNvLinkState": lambda fake, chip, port: port_of(chip, port)[0],
    "nvmlDeviceGetNvLinkRemoteDeviceType": lambda fake, chip, port: port_of(chip, port)[1],
    "nvmlDeviceGetNvLinkRemotePciInfo": lambda fake, chip, port: SimpleNamespace(busId=port_of(chip, port)[2]),
    "nvmlDeviceGetTopologyCommonAncestor": lambda fake, a, b: fake.level(*fake.pair(a, b)),
    "nvmlDeviceGetP2PStatus": lambda fake, a, b, cap: fake.p2p(*fake.pair(a, b), int(cap)),
}


GPU_END, SWITCH_END = 0, 2
NO_NVLINK = 5  # NVML_P2P_STATUS_NOT_SUPPORTED


def bus(number: int) -> str:
    """Bus of the GPU that NVML numbers so: 00000000:10:00.0, 00000000:20:00.0 ..."""
    return f"00000000:{number + 1:X}0:00.0"


def socket_level(a: int, b: int, per_socket: int = 4) -> int:
    """Two sockets: NODE within one, SYS between."""
    return 40 if a // per_socket == b // per_socket else 50


def hgx(count: int = 8) -> FakeNVML:
    """H200 on NVSwitch, two sockets of 48 CPUs."""
    ports = [(1, SWITCH_END, "00000000:C1:00.0")] * 18
    cpus = (2**48 - 1, (2**48 - 1) << 48)
    return FakeNVML([Chip(bus(n), nodes=1 << n // 4, cpus=cpus[n // 4], ports=list(ports)) for n in range(count)], socket_level)


def links_down() -> FakeNVML:
    """The same, with all NVLinks of GPU 3 down."""
    fake = hgx()
    fake.chips[3].ports = [(0, 255, "")] * 18
    fake.p2p = lambda a, b, cap: NO_NVLINK if cap == 2 and 3 in (a, b) else 0
    return fake


# DGX-1 with V100: NVLinks of each GPU to the others (the hybrid cube mesh of NVIDIA's DGX-1 white paper).
CUBE = {
    0: {1: 1, 2: 1, 3: 2, 4: 2},
    1: {0: 1, 2: 2, 3: 1, 5: 2},
    2: {0: 1, 1: 2, 3: 2, 6: 1},
    3: {0: 2, 1: 1, 2: 2, 7: 1},
    4: {0: 2, 5: 1, 6: 1, 7: 2},
    5: {1: 2, 4: 1, 6: 2, 7: 1},
    6: {2: 1, 4: 1, 5: 2, 7: 2},
    7: {3: 1, 4: 2, 5: 1, 6: 2},
}


def cube(present: tuple[int, ...] = tuple(range(8))) -> FakeNVML:
    """V100 in the cube mesh; ``present``: those that a container was given."""
    chips = []
    for n in present:
        ports = [(1, GPU_END, bus(other)) for other, count in CUBE[n].items() for _ in range(count)]
        chips.append(Chip(bus(n), "Tesla V100-SXM2-32GB", 32.0, nodes=1 << n // 4, ports=ports))
    return FakeNVML(
        chips,
        lambda a, b: socket_level(present[a], present[b]),
        lambda a, b, cap: 0 if cap != 2 or present[b] in CUBE[present[a]] else NO_NVLINK,
    )


def pcie() -> FakeNVML:
    """Two RTX 4090 behind one host bridge; the driver refuses peer access."""
    return FakeNVML([Chip(bus(n), "NVIDIA GeForce RTX 4090", 24.0) for n in range(2)], lambda a, b: 30, lambda a, b, cap: 1)


def mig() -> FakeNVML:
    """One H100 in MIG mode with two slices, and one without."""
    slices: list[Chip | None] = [
        Chip(bus(0), "NVIDIA H100 80GB HBM3 MIG 3g.40gb", 39.5, "MIG-aaaa", is_slice=True),
        None,
        Chip(bus(0), "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.75, "MIG-bbbb", is_slice=True),
    ]
    return FakeNVML([Chip(bus(0), "NVIDIA H100 80GB HBM3", 79.6, slices=slices), Chip(bus(1), "NVIDIA H100 80GB HBM3", 79.6)])


MACHINES: dict[str, Callable[[], FakeNVML]] = {  # small: tests let every single call of them fail
    "hgx": lambda: hgx(2),
    "cube": lambda: cube((0, 1, 5)),
    "pcie": pcie,
    "mig": mig,
}
