"""A private Ray: on this machine, for this process, on the loopback alone."""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workbench.errors import ClusterError
from workbench.runtime import after

SPARE = 8  # CPUs beyond the slots that are asked for, for GPUs' bundles and a second run; they are counted, not used
MIB = 2**20
STORE_MIB, LEAST_STORE_MIB = 256, 80  # of shared memory for Ray's objects; Ray wants 75 at least
LONGEST_FOLDER = 40  # characters: the name of a unix socket has 107, and Ray adds 65
KEPT_SESSIONS = 5
STARTS, SLOW = 3, "timed out during startup"  # how often it is tried, where Ray says that


class Private:
    """A Ray on this machine for this process, on the loopback alone. It ends with ``end``, and with the process."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._ready, self._over = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        # Linux ends Ray's processes with the thread that started them, so that thread has to stay. It also leaves the
        # handler of SIGTERM, which Ray takes in the main thread, to the kernel.
        self._thread = threading.Thread(target=self._live, name="workbench-ray", daemon=True)
        self._thread.start()
        try:
            self._ready.wait()
        except BaseException:  # an interrupt: a Ray that comes up afterwards would be nobody's
            self.end()
            raise
        if isinstance(self._error, ClusterError):
            raise self._error
        if self._error is not None:
            words = str(self._error).strip().partition("\n")[0]
            fix = f"is the machine too busy for it? Its logs are in {_folder()}/session_latest/logs"
            raise ClusterError("a private Ray", f"it did not start: {words}", fix) from self._error

    def end(self) -> None:
        """Stop its processes."""
        self._over.set()
        self._thread.join()

    def _live(self) -> None:
        import ray

        try:
            with quiet(), _loopback():
                _init(self._slots)
            watch = _watch(ray._private.worker.global_worker.node.get_session_dir_path())
        except BaseException as error:
            self._error = error
            _end_half_started()
            return
        finally:
            self._ready.set()
        self._over.wait()
        ray.shutdown()
        watch.communicate()


def _init(slots: int) -> None:
    """Start it. Ray gives up after 30 s, whatever it is told, and a busy machine may need more: the next time all is in memory."""
    import ray

    for left in reversed(range(STARTS)):
        try:
            ray.init(
                address="local",
                num_cpus=max(os.cpu_count() or 1, slots + SPARE),
                object_store_memory=_store_bytes(),
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=False,
                _temp_dir=str(_folder()),
            )
            return
        except Exception as error:  # Ray raises no more special one
            if not left or SLOW not in str(error):
                raise
            _end_half_started()


def _end_half_started() -> None:
    """A Ray that gave up waiting for a part of itself leaves the others running."""
    for session in Path(tempfile.gettempdir(), f"workbench-{os.getuid()}").glob(f"session_2*_{os.getpid()}"):
        after.end(str(session), os.getpid())


def _watch(session: str) -> "subprocess.Popen[bytes]":
    """What ends the rest of a private Ray when this process is killed: see ``after``. Ctrl-C is not for it: it has its own session."""
    return subprocess.Popen([sys.executable, "-S", "-E", after.__file__, session], stdin=subprocess.PIPE, start_new_session=True)


def _store_bytes() -> int:
    """Bytes of shared memory for Ray's objects. Raises ClusterError where /dev/shm has no room."""
    free = shutil.disk_usage("/dev/shm").free // MIB
    if free < LEAST_STORE_MIB:
        found = f"/dev/shm has {free} MiB free, and Ray's objects need {LEAST_STORE_MIB}"
        raise ClusterError("a private Ray", found, "give the container more: docker run --shm-size=1g")
    return int(min(STORE_MIB, free * 4 // 5)) * MIB if free * 4 // 5 > LEAST_STORE_MIB else LEAST_STORE_MIB * MIB


def _folder() -> Path:
    """Where private Rays keep sockets and logs: short, and this user's alone. Logs of the last few stay."""
    folder = Path(tempfile.gettempdir()) / f"workbench-{os.getuid()}"
    if len(str(folder)) > LONGEST_FOLDER:
        found = f"{folder} is longer than {LONGEST_FOLDER} characters, and Ray's sockets have no room for it"
        raise ClusterError("a private Ray", found, "set TMPDIR=/tmp for this process")
    folder.mkdir(mode=0o700, exist_ok=True)
    for old in sorted(folder.glob("session_2*"))[:-KEPT_SESSIONS]:
        if not Path("/proc", old.name.rpartition("_")[2]).exists():
            shutil.rmtree(old, ignore_errors=True)
    return folder


@contextmanager
def quiet() -> Iterator[None]:
    """Ray says on stderr what it does; its errors come as exceptions. It reports no use of this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _loopback() -> Iterator[None]:
    """Ray's processes listen on 127.0.0.1: what Ray does on macOS, where it spares the user a question of the firewall.

    Asked for 127.0.0.1 by name, it takes the address that other machines reach, and listens on all.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
