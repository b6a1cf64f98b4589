"""Devices on a cluster of two nodes (both on this machine) whose GPUs are Ray's word alone: four and two."""

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from workbench.errors import ClusterError
from workbench.runtime.alone import _occupied, locked
from workbench.runtime.cluster import Cluster, connect
from workbench.runtime.holders import Occupant
from workbench.runtime.nodes import Device, Node
from workbench.runtime.reserve import find, reserve
from workbench.runtime.settings import Ray
from workbench.topology import Topology
from workbench.topology.devices import GPU


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster as TwoNodes

    nodes = TwoNodes(initialize_head=True, head_node_args={"num_cpus": 5, "num_gpus": 4, "include_dashboard": False})
    nodes.add_node(num_cpus=3, num_gpus=2)
    connected = connect(Ray(address=nodes.address))
    yield connected
    connected.close()
    nodes.shutdown()


@pytest.fixture
def held(cluster):
    """Reserves, and gives everything back after the test."""
    taken = []

    def hold(run: str, *devices: str, roles: tuple[str, ...] = ("actor",)):
        taken.append(reserve(cluster, run, dict.fromkeys(devices, roles)))
        return taken[-1]

    yield hold
    for reservation in taken:
        reservation.release()


def inside(reservation, device: str) -> tuple[str, list[int]]:
    """Node and GPU of a process in a device's bundle."""
    import ray

    @ray.remote(num_cpus=0, num_gpus=1)
    def where():
        return ray.get_runtime_context().get_node_id(), ray.get_gpu_ids()

    return ray.get(where.options(scheduling_strategy=reservation.bundle(device)).remote(), timeout=60)


def free(cluster: Cluster, node: str, kind: str) -> float:
    import ray

    return ray._private.state.available_resources_per_node()[cluster.node(node).ray_id].get(kind, 0)


def settles(wanted, value) -> bool:
    """Whether a number of Ray's comes to a value within seconds."""

    until = time.monotonic() + 10
    while time.monotonic() < until:
        if wanted() == value:
            return True
        time.sleep(0.05)
    return False


def test_nodes(cluster):
    first, second = cluster.nodes
    assert (first.name, first.slots, first.gpus, first.driver) == ("node1", 5, 4, True)
    assert (second.name, second.slots, second.gpus, second.driver) == ("node2", 3, 2, False)
    assert first.ip == second.ip  # one machine
    assert first.topology.ids == ("node1:0", "node1:1", "node1:2", "node1:3")
    assert first.cores == len(os.sched_getaffinity(0))
    assert cluster.node("local") is first
    assert first.versions["python"] == sys.version.split()[0]


def test_the_very_gpu_is_held(cluster, held):
    reservation = held("exact", "local:2", "node2:1")
    assert inside(reservation, "local:2") == (cluster.node("node1").ray_id, [2])
    assert inside(reservation, "node2:1") == (cluster.node("node2").ray_id, [1])
    assert settles(lambda: free(cluster, "node1", "GPU"), 3)  # what was taken on the way is given back
    assert settles(lambda: free(cluster, "node2", "GPU"), 1)

    with pytest.raises(ClusterError, match=rf"reference on node1:2: run 'exact' \(pid {os.getpid()} on .*\) holds that GPU"):
        held("second", "node1:2", roles=("reference",))
    assert settles(lambda: free(cluster, "node1", "GPU"), 3)  # a failure holds nothing

    reservation.release()
    reservation.release()
    assert settles(lambda: free(cluster, "node1", "GPU"), 4)


def test_actors_share_a_device(held):
    import ray

    @ray.remote(num_cpus=0, num_gpus=0)
    class Worker:
        def node(self):
            return ray.get_runtime_context().get_node_id()

    reservation = held("slots", "cpu:0", "cpu:1")
    workers = [Worker.options(scheduling_strategy=reservation.bundle("cpu:1")).remote() for _ in range(2)]
    assert ray.get([worker.node.remote() for worker in workers], timeout=60) == [reservation.device("cpu:1").node.ray_id] * 2
    assert reservation.cpus("cpu:0") == max(1, len(os.sched_getaffinity(0)) // 2)


def test_more_than_there_is(cluster, held):
    with pytest.raises(ClusterError, match=r"actor on node2:2: the map needs 3 devices of node2, which has 2 GPUs"):
        held("large", "node2:0", "node2:1", "node2:2")
    with pytest.raises(ClusterError, match=r"actor on cpu:5: the map needs 1 devices of node1, which has 5 CPU slots"):
        held("large", "cpu:5")
    with pytest.raises(ClusterError, match=r"actor on node9:0: the cluster has node1, node2"):
        held("far", "node9:0")


def test_too_little_is_free(held):
    held("first", "node2:0", "node2:1")
    asked = (
        r"rollout on node2:0: that takes 1 GPUs of node2, which has 2, 0 of them free: run 'first' \(pid .*holds 1; run 'first'.*holds 1"
    )
    with pytest.raises(ClusterError, match=asked):
        held("second", "node2:0", roles=("rollout",))


def test_who_holds_without_a_group(held):
    import ray

    @ray.remote(num_cpus=2, num_gpus=0)
    class Neighbour:
        def ready(self):
            return True

    neighbour = Neighbour.options(label_selector={"ray.io/node-id": held("x", "cpu:0").device("cpu:0").node.ray_id}).remote()
    ray.get(neighbour.ready.remote(), timeout=60)
    with pytest.raises(
        ClusterError,
        match=r"takes 4 CPU slots of node1, which has 5, 2 of them free: run 'x'.*; tasks or actors outside placement groups hold 2",
    ):
        held("y", *(f"cpu:{slot}" for slot in range(4)))
    ray.kill(neighbour)


def test_two_at_once_take_turns(cluster):
    # Ray gives the lowest GPU first, so each would hold what the other wants.
    done: dict[str, object] = {}

    def take(run: str, device: str) -> None:
        done[run] = reserve(cluster, run, {device: ("actor",)})

    threads = [threading.Thread(target=take, args=pair) for pair in (("a", "node2:1"), ("b", "node2:0"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside(done["a"], "node2:1")[1] == [1]
    assert inside(done["b"], "node2:0")[1] == [0]
    for reservation in done.values():
        reservation.release()


DRIVER = """
import sys, time
from workbench.runtime.cluster import connect
from workbench.runtime.reserve import reserve
from workbench.runtime.settings import Ray
held = reserve(connect(Ray(address=sys.argv[1])), "doomed", {"node2:0": ("actor",), "node2:1": ("actor",)})
print("held", flush=True)
time.sleep(600)
"""


def test_a_killed_driver_holds_nothing(cluster, held):
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, cluster.address], stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout.readline() == "held\n"
        with pytest.raises(ClusterError, match=rf"run 'doomed' \(pid {driver.pid} on "):
            held("next", "node2:0")
    finally:
        driver.send_signal(signal.SIGKILL)
    # Not waited for: it is a zombie, and the cluster may not have noticed.
    held("next", "node2:0", "node2:1")
    driver.wait()
    driver.stdout.close()


# ------------------------------------------------------------ without Ray

MACHINE = Node("node1", "id", "127.0.0.1", Topology("x", (GPU(0, uuid="GPU-none-of-this-machine"),)), 4, 1, 8, driver=True)
ON_GPU = Device("local:0", MACHINE, MACHINE.topology.gpus[0], ("actor", "rollout"))


def test_another_ray_of_this_machine_can_not_have_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    held = rf"actor, rollout on local:0: run 'one' \(pid {os.getpid()}\) holds that GPU"
    with locked(ON_GPU, "one"), pytest.raises(ClusterError, match=held):
        locked(ON_GPU, "two").__enter__()
    with locked(ON_GPU, "two"):
        assert (tmp_path / "workbench-GPU-none-of-this-machine.lock").read_text() == f"run 'two' (pid {os.getpid()})"


def test_the_kernel_itself_is_named():
    error = _occupied(ON_GPU, [Occupant(os.getpid(), "python", 3.25)])
    assert str(error).startswith(f"actor, rollout on local:0: pid {os.getpid()} (python) holds 3.2 GiB (this kernel itself)")
    assert "restart the kernel" in error.fix
    assert "end that process" in _occupied(ON_GPU, [Occupant(1, "init", 3.0)]).fix


def test_devices_of_a_node_without_gpus():
    node = Node("node1", "id", "127.0.0.1", Topology.cpu(2), slots=2, gpus=0, cores=2, driver=True)
    cluster = SimpleNamespace(node=lambda name: node)
    assert [device.wants for device in find(cluster, {"cpu:1": ("actor",)})] == [{"CPU": 1.0}]


def test_one_device_by_two_names():
    cluster = SimpleNamespace(node=lambda name: MACHINE)
    with pytest.raises(
        ClusterError, match=r"local:0 and node1:0: they are one device, since this process is on node1\n  fix: write local:0"
    ):
        find(cluster, {"local:0": ("actor",), "node1:0": ("rollout",)})
