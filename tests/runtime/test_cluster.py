"""Attaching to Ray, starting a private one, and the ways in which that can fail. Each live part runs in processes of its own."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbench.errors import ClusterError, ConfigError
from workbench.runtime import cluster, private
from workbench.runtime.holders import occupants, running
from workbench.runtime.nodes import Node, check_versions, handed_out, names_of, versions
from workbench.runtime.settings import Ray
from workbench.topology import Topology
from workbench.topology.devices import GPU

TOKEN = "a" * 40


def program(code: str, **variables: str) -> subprocess.Popen:
    """Python of its own; its stdout is a pipe."""
    words = [sys.executable, "-c", textwrap.dedent(code)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, env=os.environ | variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def ends_within(seconds: float, *pids: int) -> bool:
    """Whether all processes are gone by then."""
    until = time.monotonic() + seconds
    while any(map(running, pids)):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


# ------------------------------------------------------------ a private Ray

PRIVATE = """
    import os, psutil, sys, threading
    from workbench.runtime.cluster import connect
    from workbench.runtime.settings import Ray
    made = []
    starter = threading.Thread(target=lambda: made.append(connect(Ray(), slots=3)))
    starter.start(); starter.join()  # Ray outlives the thread that asked for it
    first, second = made[0], connect(Ray(), slots=3)
    import ray
    assert first.private and first.address == second.address
    assert first.node("local").slots >= 11, first.nodes
    first.close(); first.close()
    assert ray.is_initialized()
    children = psutil.Process().children(recursive=True)
    listening = {c.laddr.ip for child in [psutil.Process(), *children] for c in child.net_connections("inet") if c.status == "LISTEN"}
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}, listening
    print(first.logs, *(child.pid for child in children), flush=True)
    if sys.stdin.readline() == "close\\n":
        second.close()
        assert not ray.is_initialized()
        print("closed", flush=True)
"""


def test_a_private_ray_ends_with_its_last_user_or_its_process():
    closing = program(PRIVATE)
    logs, *pids = closing.stdout.readline().split() or [closing.stderr.read()]
    killed = program(PRIVATE)
    other_logs, *others = killed.stdout.readline().split() or [killed.stderr.read()]
    assert Path(logs).is_dir()
    assert Path(logs) != Path(other_logs)  # two notebooks, two Rays
    killed.kill()
    assert ends_within(10, *map(int, others))
    assert all(map(running, map(int, pids)))  # the neighbour's live on
    out, errors = closing.communicate("close\n")
    assert (out, errors) == ("closed\n", "")  # and nothing was printed
    assert ends_within(5, *map(int, pids))
    killed.communicate()


def test_what_is_left_of_a_killed_ray(tmp_path):
    log = tmp_path / "log"
    log.touch()
    sleep = "import sys, time; print('up', flush=True); file = open(sys.argv[1], sys.argv[2]); print('open', flush=True); time.sleep(600)"
    lives = [
        subprocess.Popen([sys.executable, "-c", sleep, str(path), mode], stdout=subprocess.PIPE, text=True)
        for path, mode in ((log, "a"), (log, "r"), (tmp_path.with_name("beside"), "a"))
    ]
    for process in lives:
        assert [process.stdout.readline(), process.stdout.readline()] == ["up\n", "open\n"]
    with (tmp_path / "own").open("w"):  # the driver writes there too
        watch = private._watch(str(tmp_path))
        assert running(lives[0].pid)
        watch.communicate()  # as when its driver ends
    assert ends_within(5, lives[0].pid)
    assert all(running(process.pid) for process in lives[1:])  # who reads a log, and who writes elsewhere
    for process in lives:
        process.kill()
        process.communicate()


def test_a_busy_machine_is_given_more_time(monkeypatch: pytest.MonkeyPatch):
    import ray

    tried = []

    def fail(**settings):
        tried.append(settings["num_cpus"])
        raise Exception("The current node timed out during startup." if len(tried) < 3 else "no such thing")  # as Ray does

    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(ClusterError, match="did not start: no such thing"):
        private.Private(slots=3)
    assert len(tried) == 3
    with pytest.raises(ClusterError, match="did not start: no such thing"):  # what more time does not help is told at once
        private.Private(slots=3)
    assert len(tried) == 4


PRINTED = """
    from workbench.runtime.cluster import _imported
    _imported()
    from ray._private.ray_logging import stdout_deduplicator
    for line in ("A worker died or was killed while executing a task by ...", "the disk is full"):
        print(stdout_deduplicator.deduplicate({"lines": [line], "pid": "raylet", "ip": "x", "job": "y"}))
"""


def test_ray_does_not_print_every_worker_that_is_ended():
    ended, other = program(PRINTED).communicate()[0].splitlines()
    assert "A worker died" not in ended
    assert "the disk is full" in other


# ------------------------------------------------------------ a cluster

HEAD = """
    import json, sys
    from ray.cluster_utils import Cluster
    head = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    print(head.address, flush=True)
    sys.stdin.readline()
    other = json.dumps({"ray_version": "2.1.0", "python_version": "3.9.1"}).encode()
    head.head_node.get_gcs_client().internal_kv_put(b"CLUSTER_METADATA", other, True, b"cluster")
    print("other versions", flush=True)
    sys.stdin.readline()
    head.shutdown()
"""
DRIVER = """
    import ray, sys
    from workbench.errors import ClusterError
    from workbench.runtime.cluster import connect
    from workbench.runtime.settings import Ray

    def attempt(**fields):
        try:
            connect(Ray(**fields)).close()
        except ClusterError as error:
            print("refused:", *str(error).split(), flush=True)
        else:
            print("attached", flush=True)

    @ray.remote(num_cpus=0)
    def inside():
        connect(Ray())

    attempt()
    if sys.argv[1:]:
        sys.exit()
    one = connect(Ray())
    attempt(address="127.0.0.1:1")
    try:
        ray.get(inside.remote())
    except ClusterError as error:
        print("refused:", *str(error).split(), flush=True)
    one.close()
    assert not ray.is_initialized()
    sys.stdin.readline()
    attempt()
"""


def test_a_cluster_with_a_token():
    head = program(HEAD, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN)
    address = head.stdout.readline().strip()
    assert address, head.stderr.read()
    right = program(DRIVER, RAY_ADDRESS=address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN)
    wrong = program(DRIVER.replace("sys.argv[1:]", "True"), RAY_ADDRESS=address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="b" * 40)
    began = time.monotonic()
    out, errors = wrong.communicate()
    assert f"refused: RAY_ADDRESS={address}: Ray at {address} does not take this process's token fix: give RAY_AUTH_MODE=token" in out
    assert TOKEN not in out + errors
    assert "b" * 40 not in out + errors
    assert time.monotonic() - began < 30
    said = [right.stdout.readline() for _ in range(3)]
    assert said[0] == "attached\n", said
    assert f"this process is connected to Ray at {address}, and a process has one connection" in said[1]
    assert "a run inside a Ray task or actor: this process is a worker of Ray itself" in said[2]
    head.stdin.write("\n")
    head.stdin.flush()
    assert head.stdout.readline() == "other versions\n"
    out, errors = right.communicate("\n")
    assert "started with: Ray: 2.1.0 Python: 3.9.1" in out, errors
    assert f"Python: {versions()['python']}" in out
    head.communicate("\n")


@pytest.fixture
def unconnected(monkeypatch):
    """A process that has no Ray; nothing is started."""
    import ray

    assert not ray.is_initialized()  # another test left its connection
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return monkeypatch


def test_an_address_where_nobody_is(unconnected):
    began = time.monotonic()
    with pytest.raises(ClusterError, match=r"Ray\(address='127.0.0.1:1'\): nothing answers at 127.0.0.1:1 \(Connection refused\)"):
        cluster.connect(Ray(address="127.0.0.1:1"))
    unconnected.setenv("RAY_ADDRESS", "no-such-host.invalid:6379")
    with pytest.raises(ClusterError, match=r"RAY_ADDRESS=no-such-host.invalid:6379: nothing answers"):
        cluster.connect(Ray())
    assert time.monotonic() - began < 15
    unconnected.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(ConfigError, match=r"RAY_ADDRESS=ray://head:10001: a Ray client"):
        cluster.connect(Ray())


def test_ray_is_not_installed(unconnected):
    unconnected.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"runtime='ray': Ray can't be imported: .*\n  fix: pip install 'ray>=2.60'"):
        cluster.connect(Ray())


def test_little_shared_memory(monkeypatch):
    sizes = {"free": 2**40}
    monkeypatch.setattr(private.shutil, "disk_usage", lambda path: SimpleNamespace(**sizes))
    assert private._store_bytes() == 256 * 2**20
    sizes["free"] = 150 * 2**20
    assert private._store_bytes() == 120 * 2**20
    sizes["free"] = 64 * 2**20
    with pytest.raises(ClusterError, match=r"/dev/shm has 64 MiB free, and Ray's objects need 80\n  fix: .*--shm-size=1g"):
        private._store_bytes()


def test_a_folder_too_long_for_sockets(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 60)))
    with pytest.raises(ClusterError, match=r"longer than 40 characters.*\n  fix: set TMPDIR=/tmp"):
        private.Private(slots=1)


def test_a_private_ray_that_does_not_start(unconnected, tmp_path):
    unconnected.setattr("tempfile.tempdir", str(tmp_path))
    unconnected.setattr(private, "LONGEST_FOLDER", 400)
    session = private._folder() / f"session_2026-01-01_00-00-00_000000_{os.getpid()}"
    session.mkdir()
    begun = []

    def init(**options):
        begun.append(subprocess.Popen(["sleep", "600"], stdout=(session / "log").open("w")))
        raise RuntimeError("The current node timed out during startup.\nmore")

    unconnected.setattr("ray.init", init)
    said = r"a private Ray: it did not start: The current node timed out.*\n  fix: .*Its logs are in .*/session_latest/logs"
    with pytest.raises(ClusterError, match=said):
        private.Private(slots=1)
    assert begun[0].wait(5) == -signal.SIGKILL


def test_old_sessions_go_but_not_those_that_run(monkeypatch, tmp_path):
    monkeypatch.setattr(private, "LONGEST_FOLDER", 400)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = private._folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    names = [f"session_2026-01-0{day}_00-00-00_000000_{2**22 + day}" for day in range(2, 9)]
    mine = f"session_2026-01-01_00-00-00_000000_{os.getpid()}"
    for name in (mine, *names):
        (folder / name).mkdir()
    private._folder()
    assert sorted(path.name for path in folder.iterdir()) == [mine, *names[-5:]]


# ------------------------------------------------------------ nodes, without Ray


def record(id: str, name: str = "10.0.0.1", address: str = "10.0.0.1", head: bool = False) -> dict:
    """A line of ``ray.nodes()``."""
    return {"NodeID": id, "NodeName": name, "NodeManagerAddress": address, "Resources": {"node:__internal_head__": 1.0} if head else {}}


def test_names_of_nodes():
    assert names_of([record("b"), record("c"), record("a", head=True)]) == {"a": "node1", "b": "node2", "c": "node3"}
    given = [record("b", "trainer"), record("a", head=True), record("c", "10.0.0.2", "10.0.0.2")]
    assert names_of(given) == {"a": "node1", "b": "trainer", "c": "node3"}
    with pytest.raises(ClusterError, match="the node 'gpu': two nodes of the cluster have that name"):
        names_of([record("a", "gpu"), record("b", "gpu")])


def test_devices_that_ray_hands_out():
    seen = Topology("4 x H200", tuple(GPU(index, uuid=f"GPU-{index}") for index in range(4)))
    assert handed_out(seen, slots=8, gpus=4) is seen
    assert [gpu.uuid for gpu in handed_out(seen, slots=8, gpus=2).gpus] == ["GPU-0", "GPU-1"]
    assert handed_out(seen, slots=8, gpus=0).ids == tuple(f"cpu:{slot}" for slot in range(8))
    unseen = handed_out(Topology.cpu(2), slots=8, gpus=2)
    assert unseen.ids == ("local:0", "local:1")
    assert unseen.warnings == ("Ray was told of 2 GPUs, and NVML sees none of them",)


def test_versions_must_be_alike():
    ours = {"python": "3.11.7", "ray": "2.60.0", "torch": "2.13.0+cpu", "vllm": "0.32.0", "workbench": "0.1.0"}
    node = Node("node2", "id", "10.0.0.2", Topology.cpu(1), 1, 0, 1, versions=ours | {"torch": "2.13.0+cu130"})
    check_versions(node, ours)
    other = Node("node2", "id", "10.0.0.2", Topology.cpu(1), 1, 0, 1, versions=ours | {"torch": "2.11.0"})
    with pytest.raises(ClusterError, match=r"node2 has torch 2.11.0, and this process 2.13.0\+cpu\n  fix: install torch"):
        check_versions(other, ours)


def test_versions_of_this_process():
    assert versions()["python"] == sys.version.split()[0]
    assert "none" not in versions().values()


# ------------------------------------------------------------ who is on a GPU


class Pynvml:
    """A GPU called GPU-1, on which ``processes`` (pid, GiB) are, and ``used`` GiB altogether."""

    class NVMLError(Exception):
        value = 3

    nvmlMemory_v2 = 33554472  # noqa: N815 - NVML's name

    def __init__(self, used: float, *processes: tuple[int, float]) -> None:
        self.used, self.processes = used, processes

    def nvmlInit(self):  # noqa: N802
        pass

    def nvmlShutdown(self):  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        if uuid != "GPU-1":
            raise self.NVMLError
        return object()

    def nvmlDeviceGetComputeRunningProcesses(self, handle):  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=int(gib * 2**30)) for pid, gib in self.processes]

    def nvmlDeviceGetMemoryInfo(self, handle, version):  # noqa: N802
        return SimpleNamespace(used=int(self.used * 2**30))


def on_gpu(*facts) -> list[str]:
    found = occupants(["GPU-1", "GPU-2"], library=Pynvml(*facts))
    return [str(occupant) for occupant in found.get("GPU-1", ())]


def test_who_is_on_a_gpu():
    name = Path("/proc/self/comm").read_text().strip()
    assert on_gpu(0.5) == []
    assert on_gpu(1.4, (os.getpid(), 0.9)) == []
    assert on_gpu(9.0, (os.getpid(), 8.5)) == [f"pid {os.getpid()} ({name}) holds 8.5 GiB"]
    assert on_gpu(9.0, (2**22 + 1, 8.5)) == [f"pid {2**22 + 1} (of another container or user) holds 8.5 GiB"]
    assert on_gpu(9.0) == ["a process that can't be seen from here (a container hides it) holds 9.0 GiB"]


def test_memory_that_is_being_given_back_is_waited_for():
    library = Pynvml(9.0)
    threading.Timer(0.3, setattr, (library, "used", 0.1)).start()
    assert occupants(["GPU-1"], patience=5.0, library=library) == {}
