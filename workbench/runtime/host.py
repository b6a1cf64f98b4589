"""The process around a worker on Ray: one call at a time, while two more threads answer whether it lives and let it be stopped.

Nothing here imports torch before the process sits where it should: near its GPU, and seeing no other.
"""

import os
import pickle
import socket
import threading
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.runtime.account import Account, attended
from workbench.runtime.seat import sit_near

if TYPE_CHECKING:
    from workbench.runtime.worker import Worker

Progress = tuple[str, float, float, str]  # what, done, total, note


@dataclass(frozen=True)
class Receipt:
    """Of an answer: how many bytes it has, and what it took."""

    bytes: int
    account: Account


class Host:
    """A Ray actor. ``plan`` and ``post`` are pickled: reading them imports torch. Answers are pickled too, so that their size is known."""

    def __init__(self, plan: bytes, post: bytes, cpus: str | None) -> None:
        sit_near(cpus)
        self._plan, self._post = plan, post
        self._worker: Worker | None = None
        self._interrupted: set[int] = set()
        self._progress: deque[Progress] = deque()
        self._news: deque[tuple[int, str]] = deque()
        self._over = threading.Event()

    # ------------------------------------------------------------ one at a time

    def address(self) -> tuple[str, int]:
        """Where the ranks of this pool can meet: this machine, and a port that is free."""
        import ray

        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), int(probe.getsockname()[1])

    def join(self, address: tuple[str, int] | None) -> None:
        """Become a rank of the pool's world, whose ranks meet at ``address``; None: of no world."""
        plan, post = pickle.loads(self._plan), pickle.loads(self._post)
        if address is not None:
            from workbench.runtime.world import join_world

            join_world(post.rank, post.pool.size, address, plan.device)
        from workbench.runtime.worker import Worker

        self._worker = Worker(plan, post)

    def call(self, number: int, method: str, args: bytes, carried: bytes | None = None, *, telling: bool = False) -> tuple[Receipt, bytes]:
        """``method(*args)`` of the worker: a receipt, and the answer, as two results. ``telling``: ``news`` is asked meanwhile."""
        worker = self._worker
        if worker is None:
            raise RuntimeError("the worker has not joined its world yet")
        worker.stop = lambda: number in self._interrupted
        self._news.clear()
        worker.tell = self._keep if telling else lambda row, text: None
        values = pickle.loads(args)
        if method == "open":
            values = (self._tell,)
        if carried is not None:
            values = (*values, pickle.loads(carried))
        try:
            value, account = attended(worker, method, values)
            answer = pickle.dumps(value, protocol=5)
        except BaseException as error:  # sys.exit() in a user's code too: it would end this process without a word
            told = crossable(error)
            if told is error:
                raise
            raise told from error
        finally:
            self._interrupted.discard(number)
        return Receipt(len(answer), account), answer

    def leave(self) -> None:
        """End engine and models in an orderly way; the process itself is ended from outside."""
        worker, self._worker = self._worker, None
        self._over.set()
        if worker is not None:
            worker.close()

    # ------------------------------------------------------------ at any time

    def interrupt(self, number: int) -> None:
        """Let the call of that number raise Stopped as soon as it looks."""
        self._interrupted.add(number)

    def progress(self) -> list[Progress]:
        """What the worker has reported since this was asked last."""
        return [self._progress.popleft() for _ in range(len(self._progress))]

    def news(self) -> list[tuple[int, str]]:
        """Completions that have ended since this was last asked: their places and their texts."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def pid(self) -> int:
        """Of this process."""
        return os.getpid()

    def live(self) -> None:
        """Returns when the host is told to leave; fails when its process dies, which is how the driver learns of it."""
        self._over.wait()

    def _keep(self, row: int, text: str) -> None:
        self._news.append((row, text))

    def _tell(self, what: str, done: float, total: float, note: str) -> None:
        self._progress.append((what, done, total, note))


def crossable(error: BaseException) -> Exception:
    """``error`` as another process can raise it: itself where it can be pickled and read again, else its name and its words."""
    if isinstance(error, Exception):
        with suppress(Exception):  # a class of the user's may fail in any way here
            if type(pickle.loads(pickled(error))) is type(error):
                return error
    return RuntimeError("".join(traceback.format_exception_only(error)).strip())


def pickled(value: Any) -> bytes:
    """``value`` as bytes, functions of a notebook included. Raises ConfigError where a reward or an algorithm can't leave its process."""
    from ray import cloudpickle

    try:
        blob: bytes = cloudpickle.dumps(value, protocol=5)
    except Exception as error:  # an object's own __reduce__ may raise anything
        found = f"something in it can't be pickled ({type(error).__name__}: {error})"
        fix = "make locks, connections and open files of a reward or an algorithm when it is first called, or put the reward on 'cpu'"
        raise ConfigError("send a reward or an algorithm to a worker's process", found, fix) from error
    return blob
