"""Token ids through memory that client and server share on one node: a block with slots, a file in /dev/shm.

The server makes the block and holds a lock on it while it lives. A client takes a free slot by locking the slot's bytes, writes ids there,
and sends only the slot's number and the rows' lengths; locks end with their process, so nobody who died holds a slot. No
``multiprocessing.shared_memory``: in Python 3.11 it unlinks a block when somebody who only attached to it ends.
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import struct
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from workbench.errors import ConfigError, RewardServiceError

SHM = Path("/dev/shm")
SLOTS = 8  # clients that can have ids in the block at the same time
MIB = 2**20
_MAGIC = b"WBREWARD"
_HEADER = struct.Struct("<8s16sQ")  # magic, id of this block, bytes of a slot
_PAGE = 4096  # where the slots begin
_ID_BYTES = 4  # int32
_POLL_S = 0.002
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Lent:
    """Where a request's ids are: rows of ``lengths`` one after the other in slot ``slot`` of the block ``block``."""

    block: str
    slot: int
    lengths: list[int]


def block_path(name: str, folder: Path = SHM) -> Path:
    """The file of the block ``name``. Raises ConfigError where it is no name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"shared memory {name!r}", "a name has letters, digits, '-', '_' and '.', at most 100", "write 'rewards', say")
    return folder / name


class Block:
    """The server's side: made new, read from, unlinked by ``close``.

    Raises ConfigError where there is too little memory, another server has the name, or another program.
    """

    def __init__(self, name: str, mib: int, folder: Path = SHM) -> None:
        self.path, self.name = block_path(name, folder), name
        self.id = secrets.token_bytes(16)
        self.slot_bytes = mib * MIB // SLOTS
        _replace_stale(self.path)
        self._file = self._made(mib)

    def read(self, lent: Lent) -> list[list[int]] | None:
        """The rows of ``lent``; None where they are in a block that is gone. Raises ValueError on what can't lie in a slot."""
        if lent.block != self.id.hex():
            return None
        if not 0 <= lent.slot < SLOTS or any(length < 1 for length in lent.lengths) or sum(lent.lengths) * _ID_BYTES > self.slot_bytes:
            raise ValueError(
                f"slot {lent.slot} with {sum(lent.lengths)} ids: there are {SLOTS} slots of {self.slot_bytes // _ID_BYTES} ids"
            )
        ids = array("i")
        ids.frombytes(os.pread(self._file, sum(lent.lengths) * _ID_BYTES, _PAGE + lent.slot * self.slot_bytes))
        return [ids[end - length : end].tolist() for end, length in zip(accumulate(lent.lengths), lent.lengths, strict=True)]

    def close(self) -> None:
        """Unlink the block, and give its memory back once no client reads it."""
        if self._file >= 0:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            os.close(self._file)
            self._file = -1

    def _made(self, mib: int) -> int:
        folder, size = self.path.parent, _PAGE + self.slot_bytes * SLOTS
        _check_room(self.name, mib, size, folder)
        asked = f"shared memory {self.name!r} of {mib} MiB"
        try:
            file = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except OSError as error:
            raise ConfigError(asked, f"{self.path} can't be made: {error.strerror}", "choose another name") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.pwrite(file, _HEADER.pack(_MAGIC, self.id, self.slot_bytes), 0)
            os.posix_fallocate(file, 0, size)  # taken now: to find it missing later would be an error in the middle of a run
        except OSError as error:
            self.path.unlink()
            os.close(file)
            raise ConfigError(asked, str(error), "write a smaller --shared-mem-mib") from error
        return file


class Slots:
    """A client's side: lends slots of a block that a server made. Safe from several threads, and through pickle."""

    def __init__(self, name: str, folder: Path = SHM) -> None:
        self.path = block_path(name, folder)

    def room(self) -> int:
        """Token ids that a slot holds. Raises RewardServiceError where there is no block."""
        with self._opened() as (_, _, slot_bytes):
            return slot_bytes // _ID_BYTES

    @contextlib.contextmanager
    def lent(self, rows: Sequence[Sequence[int]], timeout_s: float) -> Iterator[Lent]:
        """``rows`` in a slot that is ours until the end. They have to fit: see ``room``. Raises RewardServiceError."""
        with self._opened() as (file, block, slot_bytes):
            if sum(map(len, rows)) * _ID_BYTES > slot_bytes:
                found = f"{sum(map(len, rows))} ids for a slot of {slot_bytes // _ID_BYTES}"
                raise RewardServiceError(f"shared memory {self.path.name!r}", found, "ask for the room anew: the server was started again")
            slot = self._take(file, slot_bytes, timeout_s)
            flat = array("i", [token for row in rows for token in row])
            os.pwrite(file, flat.tobytes(), _PAGE + slot * slot_bytes)
            yield Lent(block, slot, [len(row) for row in rows])

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[int, str, int]]:
        asked = f"shared memory {self.path.name!r}"
        fix = f"start the server on this machine with --shared-mem {self.path.name}, or leave shared_mem_name out"
        try:
            file = os.open(self.path, os.O_RDWR)
        except OSError as error:
            raise RewardServiceError(asked, f"{self.path} can't be opened: {error.strerror}", fix) from error
        try:
            block, slot_bytes = _header(file)
            if not block:
                raise RewardServiceError(asked, f"{self.path} is not a reward server's", fix)
            yield file, block, slot_bytes
        finally:
            os.close(file)  # ends the lock of the slot

    def _take(self, file: int, slot_bytes: int, timeout_s: float) -> int:
        """A free slot, locked for this open file alone: threads of a process exclude each other too."""
        end = time.monotonic() + timeout_s
        first = secrets.randbelow(SLOTS)
        while True:
            for number in range(SLOTS):
                slot = (first + number) % SLOTS
                if _locked(file, _PAGE + slot * slot_bytes, slot_bytes):
                    return slot
            if time.monotonic() > end:
                found = f"all {SLOTS} slots were in use for {timeout_s:g} s"
                raise RewardServiceError(f"shared memory {self.path.name!r}", found, "use fewer clients at a time, or a faster server")
            time.sleep(_POLL_S)


def _locked(file: int, start: int, size: int) -> bool:
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, size, 0)  # struct flock of 64-bit Linux
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _header(file: int) -> tuple[str, int]:
    """Id of the block, and bytes of a slot; "" of a file that is none."""
    raw = os.pread(file, _HEADER.size, 0)
    if len(raw) < _HEADER.size:
        return "", 0
    magic, block, slot_bytes = _HEADER.unpack(raw)
    return (block.hex(), slot_bytes) if magic == _MAGIC else ("", 0)


def _replace_stale(path: Path) -> None:
    """Unlink the block of a server that was killed. Raises ConfigError where it is a living one's, or no block of ours."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"shared memory {path.name!r}", f"{path} is there: {error.strerror}", "choose another name") from error
    try:
        if not _header(file)[0]:
            raise ConfigError(f"shared memory {path.name!r}", f"{path} is another program's", "choose another name")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError as error:
        raise ConfigError(
            f"shared memory {path.name!r}", "another reward server is using it", "choose another name, or end that one"
        ) from error
    finally:
        os.close(file)


def _check_room(name: str, mib: int, size: int, folder: Path) -> None:
    try:
        state = os.statvfs(folder)
    except OSError as error:
        raise ConfigError(f"shared memory {name!r}", f"there is no {folder}", "leave --shared-mem out: token ids go by HTTP") from error
    free = state.f_bavail * state.f_frsize
    if free < size:
        fits = max((free - _PAGE) // MIB, 0)
        fix = f"write --shared-mem-mib {fits}" if fits else "leave --shared-mem out"
        found = f"{folder} has {free / MIB:.1f} MiB free"
        raise ConfigError(f"shared memory {name!r} of {mib} MiB", found, f"{fix}; or make room: docker run --shm-size=2g")
