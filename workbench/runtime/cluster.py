"""The connection to Ray: attach to a cluster or start a private one, once for a process, and end only what was started here."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.errors import ClusterError
from workbench.runtime.nodes import Node, survey
from workbench.runtime.private import Private, quiet
from workbench.runtime.settings import Ray, check_address, host_and_port

REACH_SECONDS = 5.0
ATTEMPTS = 5  # of Ray to be let in, one a second: by itself it tries a wrong token for 20 s


@dataclass
class _Connection:
    """What the runs of a process share. ``started``: a private Ray of ours; ``opened``: the connection is ours to end."""

    address: str
    started: Private | None = None
    opened: bool = True
    users: int = 0


_lock = threading.Lock()
_current: _Connection | None = None


@dataclass
class Cluster:
    """One run's use of the connection. ``close`` it when the run has ended."""

    address: str
    private: bool  # a Ray of this process, which no other sees
    logs: Path | None  # where the workers of this machine write what they print, and why they crashed
    _closed: bool = field(default=False, repr=False)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The machines that are alive: asked once. Takes seconds. Raises ClusterError for a silent node, and for other versions."""
        import ray

        return survey(ray.nodes(), ray.get_runtime_context().get_node_id())

    def node(self, name: str) -> Node:
        """The node called ``name``; "local" and "cpu" are the driver's. Raises ClusterError where there is none."""
        for node in self.nodes:
            if node.name == name or (node.driver and name in ("local", "cpu")):
                return node
        names = ", ".join(node.name for node in self.nodes)
        if name in ("local", "cpu"):
            found = f"this process is on no node of the cluster, which has {names}"
            raise ClusterError(f"the node {name!r}", found, "name the node: 'node1:0'")
        raise ClusterError(f"the node {name!r}", f"the cluster has {names}", "write one of them, or start one with `ray start --node-name`")

    def close(self) -> None:
        """This run needs the connection no longer. The last one ends a private Ray, and leaves a cluster as it was. Twice is harmless."""
        global _current
        with _lock:
            if self._closed:
                return
            self._closed = True
            shared = _current
            if shared is None or shared.address != self.address:
                return  # somebody called ray.shutdown()
            shared.users -= 1
            if shared.users == 0:
                _current = None
                _disconnect(shared)


def connect(settings: Ray, slots: int = 1) -> Cluster:
    """Attach to the cluster that ``settings`` or RAY_ADDRESS name, else start a private Ray with room for ``slots`` processes.

    A Ray that this process has already is used as it is. Raises ClusterError where there is no such cluster, where it has other
    versions or another token, and in a worker of Ray.
    """
    global _current
    ray = _imported()
    asked, address = _asked(settings)
    with _lock:
        if ray.is_initialized():
            _check_driver(ray)
            current = ray.get_runtime_context().gcs_address
            if _current is None or _current.address != current:
                _current = _Connection(current, opened=False)
            _check_same(ray, asked, address, _current)
        elif address is None:
            _current = _start(ray, slots)
        else:
            _current = _attach(ray, asked, address)
        _current.users += 1
        return Cluster(_current.address, _current.started is not None, _logs(ray))


def _imported() -> Any:
    # calls that were given up need no word: what they failed of is told by the run
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    try:
        import ray
    except ImportError as error:
        found = f"Ray can't be imported: {error}"
        raise ClusterError("runtime='ray'", found, "pip install 'ray>=2.60', or write runtime='inline'") from error
    return ray


def _asked(settings: Ray) -> tuple[str, str | None]:
    """Where a cluster's address was written, and the address: None for a private Ray."""
    if settings.address is not None:
        return f"Ray(address={settings.address!r})", settings.address
    address = os.environ.get("RAY_ADDRESS", "")
    if address in ("", "local"):
        return "a private Ray", None
    check_address(f"RAY_ADDRESS={address}", address)
    return f"RAY_ADDRESS={address}", address


def _check_driver(ray: Any) -> None:
    """Raise ClusterError in a worker of Ray."""
    worker = ray._private.worker
    if worker.global_worker.mode == worker.WORKER_MODE:
        found = "this process is a worker of Ray itself, and a run starts workers of its own"
        raise ClusterError("a run inside a Ray task or actor", found, "start it from a notebook or script (`ray job submit` runs one)")


def _check_same(ray: Any, asked: str, address: str | None, current: _Connection) -> None:
    """Raise ClusterError where a process that is connected is asked to go elsewhere."""
    if address is None or address == "auto" or _same_place(address, current.address):
        return
    found = f"this process is connected to Ray at {current.address}, and a process has one connection"
    raise ClusterError(asked, found, "close the other run (or call ray.shutdown()), or leave the address out")


def _same_place(one: str, other: str) -> bool:
    """Whether two addresses are one socket, however the host is written."""
    (host_a, port_a), (host_b, port_b) = host_and_port(one), host_and_port(other)
    return port_a == port_b and bool(_resolved(host_a) & _resolved(host_b))


def _resolved(host: str) -> set[Any]:
    try:
        return {info[4][0] for info in socket.getaddrinfo(host, None)} | {host}
    except OSError:
        return {host}


def _logs(ray: Any) -> Path | None:
    node = ray._private.worker.global_worker.node
    return Path(node.get_logs_dir_path()) if node else None


def _disconnect(shared: _Connection) -> None:
    import ray

    if shared.started is not None:
        shared.started.end()
    elif shared.opened:
        ray.shutdown()


def _start(ray: Any, slots: int) -> _Connection:
    started = Private(slots)
    return _Connection(ray.get_runtime_context().gcs_address, started)


# ------------------------------------------------------------ a cluster that is there


def _attach(ray: Any, asked: str, address: str) -> _Connection:
    if address == "auto":
        address = _found_here(asked)
    _check_reachable(asked, address)
    try:
        with quiet(), _variable("RAY_gcs_server_port_wait_time_s", str(ATTEMPTS)):
            ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
        raise _refused(asked, address, error) from error
    return _Connection(ray.get_runtime_context().gcs_address)


def _found_here(asked: str) -> str:
    """The address of the Ray that runs on this machine."""
    from ray._private import services

    try:
        return str(services.canonicalize_bootstrap_address_or_die("auto"))
    except ConnectionError as error:
        found = str(error).partition("Please")[0].strip()  # none, or several
        raise ClusterError(asked, found, "write the 'host:port' that `ray start --head` printed, or leave the address out") from error


def _check_reachable(asked: str, address: str) -> None:
    """Raise ClusterError where nothing listens: Ray itself would try for minutes."""
    try:
        socket.create_connection(host_and_port(address), timeout=REACH_SECONDS).close()
    except OSError as error:
        where = address if address in asked else f"{address}, the last Ray here"
        fix = "`ray start --head --port 6379` there prints the address; is its port open from here?"
        raise ClusterError(asked, f"nothing answers at {where} ({error.strerror or error})", fix) from error


def _refused(asked: str, address: str, error: BaseException) -> ClusterError:
    """What Ray said, as an error that says what to do. It never holds a token."""
    words = " ".join(str(part) for part in (error, error.__cause__, error.__context__) if part)
    if "Version mismatch" in words:
        found = " ".join(words[words.index("Version mismatch") :].split())
        return ClusterError(asked, found, "run this process with the cluster's versions of Ray and Python")
    if any(sign in words for sign in ("UNAUTHENTICATED", "Unauthenticated", "uthentication", "token")):
        fix = "give RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH (or RAY_AUTH_TOKEN) as on the head node, before the kernel starts"
        return ClusterError(asked, f"Ray at {address} does not take this process's token", fix)
    return ClusterError(asked, f"Ray at {address} took no connection: {words.strip().splitlines()[0]}", "see `ray status` on the head node")


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """A variable of the environment for the length of a block, unless the user has set it."""
    before = os.environ.get(name)
    os.environ.setdefault(name, value)
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
