"""What processes leave in /dev/shm, where tests of another process have blocks of their own at the same time."""

import time
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")


def left_behind(before: set[Path], seconds: float = 15) -> set[Path]:
    """Files that came to /dev/shm after ``before``, and that no living process has open or mapped: what is left after ``seconds``.

    Semaphores have no holder that can be seen, and are left out. Another test's killed server may leave a block until it is up again.
    """
    end = time.monotonic() + seconds
    while (left := _nobodys() - before) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def _nobodys() -> set[Path]:
    """Files without a holder. Names are listed first: a file that comes later has no time to lose its holder."""
    files = {path for path in SHARED_MEMORY.iterdir() if not path.name.startswith("sem.")}
    for process in Path("/proc").glob("[0-9]*"):
        if not files:
            break
        files -= _held(process)
    return files


def _held(process: Path) -> set[Path]:
    """Files of /dev/shm that a process has mapped or open; none of one that is gone or somebody else's."""
    try:
        mapped = {line.split(maxsplit=5)[-1] for line in (process / "maps").read_text().splitlines() if f"{SHARED_MEMORY}/" in line}
        opened = {str(file.readlink()) for file in (process / "fd").iterdir()}
    except OSError:
        return set()
    return {Path(name) for name in mapped | opened if name.startswith(f"{SHARED_MEMORY}/")}
