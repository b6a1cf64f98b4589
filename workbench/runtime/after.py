"""A small process that waits for its driver to end, however it ends, and then ends what is left of the driver's private Ray.

Linux ends most of Ray's processes with the driver, but not the children of those: two agents try for a minute to tell a server
that is dead too, and what a worker has started (an engine's processes) may live on with a GPU's memory. Needs nothing but Python.
"""

import os
import signal
import sys
import time
from pathlib import Path

ROUNDS = 20  # of looking for who is left, a quarter of a second apart
_WRITES = os.O_WRONLY | os.O_RDWR


def writers(folder: str) -> list[int]:
    """The processes that write to a file or socket in ``folder``, as every process of a Ray does to its logs."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in pids if _writes(pid, folder)]


def _writes(pid: int, folder: str) -> bool:
    try:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            if str(fd.readlink()).startswith(f"{folder}/"):
                flags = Path(f"/proc/{pid}/fdinfo/{fd.name}").read_text().partition("flags:")[2].split()[0]
                if int(flags, 8) & _WRITES:
                    return True
    except (OSError, IndexError):  # it has ended meanwhile, or is another user's
        return False
    return False


def end(folder: str, driver: int) -> None:
    """Kill whoever writes to ``folder``, until nobody is left but ``driver``: it writes there too, and lives on."""
    for _ in range(ROUNDS):
        left = [pid for pid in writers(folder) if pid not in (driver, os.getpid())]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not left:
            return
        time.sleep(0.25)


if __name__ == "__main__":
    parent = os.getppid()
    sys.stdin.read()  # until the driver closes the other end, or ends
    end(sys.argv[1], parent)
