"""Where a run's processes stand: a Ray cluster, the devices reserved on it, and what is near each of them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from workbench.errors import ClusterError
from workbench.runtime.cluster import Cluster, connect
from workbench.runtime.nodes import Device
from workbench.runtime.pools import Pool
from workbench.runtime.reserve import Reservation, find, reserve
from workbench.runtime.settings import Ray


class Ground:
    """A connection to Ray for one run. ``slots``: processes that a private Ray has to have room for."""

    def __init__(self, settings: Ray, run: str, slots: int) -> None:
        self.settings, self.run = settings, run
        self.cluster: Cluster = connect(settings, slots)
        self._reservation: Reservation | None = None
        self._found: dict[str, Device] = {}

    def stand(self, pools: Sequence[Pool]) -> tuple[Pool, ...]:
        """``pools`` with what their devices are on this cluster. Raises ClusterError where there is no such device."""
        self._found = {device.name: device for device in find(self.cluster, wanted(pools))}
        known = tuple(replace(pool, on_cpu=self._found[pool.devices[0]].kind == "CPU") for pool in pools)
        for pool in known:
            self._check_peers(pool)
        return known

    def reserve(self, pools: Sequence[Pool]) -> None:
        """Hold every device of ``pools``. Raises ClusterError where one is taken, and says by whom."""
        self._reservation = reserve(self.cluster, self.run, wanted(pools))

    def release(self) -> None:
        """Give the devices back, and the connection. Twice is harmless."""
        if self._reservation is not None:
            self._reservation.release()
        self.cluster.close()

    @property
    def logs(self) -> str:
        """Where workers of this machine write what they print, and why they crashed."""
        return str(self.cluster.logs or "the session's logs of their node")

    @property
    def is_local(self) -> bool:
        """Whether all of it is this machine, with Ray started for this process."""
        return self.cluster.private

    def strategy(self, device: str) -> Any:
        """What puts an actor onto ``device``."""
        return self._held.bundle(device)

    def uuid_of(self, device: str) -> str | None:
        """Of the GPU; None of a CPU slot."""
        return self._found[device].gpu.uuid

    def cpus_of(self, device: str) -> str | None:
        """The CPUs near ``device``, None where not known."""
        return self._found[device].gpu.cpus

    def threads_of(self, device: str) -> int:
        """Cores for the process on ``device``."""
        return self._held.cpus(device)

    def node_of(self, device: str) -> str:
        """The name of its node."""
        return self._found[device].node.name

    def is_here(self, node: str) -> bool:
        """Whether ``node`` is the driver's."""
        return self.cluster.node(node).driver

    def is_even(self, pool: Pool) -> bool:
        """Whether each device of ``pool`` is as near to one other as to the next: slots of a CPU, GPUs all linked with one another."""
        found = [self._found[device] for device in pool.devices]
        one_node = len({device.node.ray_id for device in found}) == 1
        return one_node and (pool.on_cpu or found[0].node.topology.is_clique([device.gpu.id for device in found]))

    @property
    def _held(self) -> Reservation:
        if self._reservation is None:
            raise RuntimeError("nothing is reserved yet")
        return self._reservation

    def _check_peers(self, pool: Pool) -> None:
        """Raise ClusterError where a map requires peer-to-peer access that the machine does not say it has."""
        if pool.nccl != "p2p" or pool.on_cpu:
            return
        for a, b in combinations([self._found[device] for device in pool.devices], 2):
            link = a.node.topology.link(a.gpu.id, b.gpu.id) if a.node.ray_id == b.node.ray_id else None
            if link is None or not link.p2p:
                asked = f"{pool.name}: nccl_backend p2p between {a.name} and {b.name}"
                found = f"the machine does not say that these two may read each other's memory{f' ({link.name})' if link else ''}"
                raise ClusterError(asked, found, "leave nccl_backend out, or write ring")


def wanted(pools: Sequence[Pool]) -> dict[str, list[str]]:
    """Device -> the roles on it."""
    found: dict[str, list[str]] = {}
    for pool in pools:
        for device in pool.devices:
            found.setdefault(device, []).extend(pool.roles)
    return found
