"""``workbench reward-server``: the process that serves what its options say, until it is told to end."""

import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from workbench.errors import ConfigError
from workbench.rewards.server.application import Desk, application
from workbench.rewards.server.batching import Batcher
from workbench.rewards.server.metrics import Metrics
from workbench.rewards.server.options import Serving
from workbench.rewards.server.served import served
from workbench.rewards.wire.shared_memory import Block

GRACE_SECONDS = 10  # for requests that are under way when it is told to end


def serve(options: Serving, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C. ``say`` is told the address once it is ready. Raises ConfigError, and what loading raised."""
    what = served(options.model, options.dtype, options.device)
    if options.shared_mem is not None and what.tokenizer is None:
        found = f"{options.model} is a function of texts, and the shared memory is for token ids"
        raise ConfigError(f"--shared-mem {options.shared_mem}", found, "leave it out")
    with _bound(options) as listening, _block(options) as block:
        metrics = Metrics()
        wait, watch = options.max_wait_ms / 1000, metrics.batch
        batcher = Batcher(what.score, max_batch=options.max_batch, max_wait_s=wait, max_queue=options.max_queue, watch=watch)
        app = application(Desk(what, batcher, metrics, block, options.token))
        server = _Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_SECONDS))
        address = f"http://{options.host}:{listening.getsockname()[1]}"

        def make_ready() -> None:
            what.make_ready()
            say(f"serving {what.name} at {address}")

        batcher.start(make_ready, server.give_up)
        server.run_until_told(listening)
        batcher.close(timeout_s=1.0)
    if server.failure is not None:
        raise server.failure


class _Server(uvicorn.Server):
    """uvicorn's, which after SIGTERM would end the process by that signal: before anything here is cleaned up."""

    failure: BaseException | None = None

    def give_up(self, error: BaseException) -> None:
        """End, since the reward can't be made ready."""
        self.failure, self.should_exit = error, True

    def run_until_told(self, listening: socket.socket) -> None:
        """Serve on ``listening`` until a signal."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.handle_exit)
        self.run(sockets=[listening])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: see above."""
        yield


@contextlib.contextmanager
def _bound(options: Serving) -> Iterator[socket.socket]:
    asked = f"--host {options.host} --port {options.port}"
    try:
        family = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((options.host, options.port))
        listening.listen(2048)  # now: who reads the address and asks at once has to be heard
    except (OSError, OverflowError) as error:
        raise ConfigError(asked, f"can't listen there: {error}", "choose another port (0: any that is free), or end who has it") from error
    with listening:
        yield listening


@contextlib.contextmanager
def _block(options: Serving) -> Iterator[Block | None]:
    if options.shared_mem is None:
        yield None
        return
    block = Block(options.shared_mem, options.shared_mem_mib)
    try:
        yield block
    finally:
        block.close()
