"""A run's numbers for Prometheus, on a port of this machine. The names are those of ``series.py``; docs/prometheus.md explains them.

>>> exporter = Exporter(log, "quickstart-20261130-101500", endpoint(9400))
>>> exporter.url
'http://127.0.0.1:9400/metrics'
>>> exporter.close()
"""

import re
import socket
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.metrics_core import Metric

from workbench.errors import ConfigError
from workbench.events import Event, EventLog
from workbench.records import Notice
from workbench.telemetry.tally import Tally

LOOPBACK = "127.0.0.1"
MOST_PORT = 65535
Where = tuple[str, int]  # address and port
_ADDRESS = re.compile(r"(?:\[(?P<six>[^\[\]\s]+)\]|(?P<host>[^\s:/@?#\[\]]+)):(?P<port>[0-9]{1,5})")


def endpoint(asked: int | str) -> Where:
    """What ``asked`` means: a port of the loopback, or "ADDRESS:PORT". Raises ConfigError."""
    if isinstance(asked, int) and not isinstance(asked, bool) and 0 <= asked <= MOST_PORT:
        return LOOPBACK, asked
    found = _ADDRESS.fullmatch(asked) if isinstance(asked, str) else None
    host = (found["six"] or found["host"]) if found else ""
    if found is None or int(found["port"]) > MOST_PORT or not _is_name(host):
        fix = 'write a port such as 9400, 0 for any that is free, or "ADDRESS:PORT" such as "0.0.0.0:9400"'
        raise ConfigError(f"prometheus={asked!r}", "that is no port, and no address with one", fix)
    return host, int(found["port"])


def _is_name(host: str) -> bool:
    """Whether a resolver takes it at all: parts of a name are 1 to 63 bytes long in the net's spelling, and hold no zero byte."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in host


def export(log: EventLog, run: str, asked: int | str | None) -> "Exporter | None":
    """An exporter of what ``log`` records where one is ``asked`` for, and a Notice that says where it is. Raises ConfigError."""
    if asked is None:
        return None
    exporter = Exporter(log, run, endpoint(asked))
    log.emit(Notice(f"Prometheus finds the run's numbers at {exporter.url}"))
    return exporter


class Exporter:
    """Follows ``log`` and answers scrapes, from threads of its own, until it is closed. ``run``: the label of every series.

    ``url``: where, as this machine itself reaches it; None once it is closed. Its registry is its own: several runs of a process, and
    libraries that count for themselves, don't meet. Raises ConfigError where the port can't be had.
    """

    def __init__(self, log: EventLog, run: str, where: Where) -> None:
        self._lock = threading.Lock()
        self._tally = Tally(run, log.events[-1].seq + 1 if log.events else 0)
        self._server = _listening(where, self)
        self.url: str | None = _url(*self._server.server_address[:2])
        self._leave = log.subscribe(self.take)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name=f"prometheus-{run}", daemon=True)
        self._thread.start()

    def take(self, event: Event) -> None:
        """Take in one event; on the thread that writes the log."""
        with self._lock:
            self._tally.take(event)

    def collect(self) -> Iterable[Metric]:
        """All metrics as of now; its registry asks for them, on a thread of the server."""
        with self._lock:
            return self._tally.families(time.monotonic())

    def close(self) -> None:
        """Answer no more: the port is free, and no thread is left. Twice is harmless."""
        self.url = None
        self._leave()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def _listening(where: Where, collector: Exporter) -> "_Server":
    registry = CollectorRegistry()
    registry.register(collector)
    host, port = where
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return _Server(family, address, registry)
    except OSError as error:
        found = f"it can't be listened at ({error.strerror or error})"
        raise ConfigError(
            f"prometheus={f'{host}:{port}'!r}", found, "give a port that is free, 0 for any; and an address of this machine"
        ) from error


def _url(host: Any, port: int) -> str:
    """As this machine itself reaches it."""
    host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


class _Handler(MetricsHandler):
    timeout = 5.0  # seconds for a client that says nothing


class _Server(ThreadingHTTPServer):
    """A thread for each scrape, all of which end with it."""

    daemon_threads = False  # so that ``server_close`` waits for them

    def __init__(self, family: socket.AddressFamily, address: Any, registry: CollectorRegistry) -> None:
        self.address_family = family
        self._open: set[socket.socket] = set()
        super().__init__(address, type("Handler", (_Handler,), {"registry": registry}))

    def server_bind(self) -> None:
        """Bind, without asking a name server who this is as ``HTTPServer`` does: that may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        """One more client."""
        client, address = super().get_request()
        self._open.add(client)
        return client, address

    def shutdown_request(self, request: Any) -> None:
        """One less."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """Also of clients that have said nothing yet."""
        for client in tuple(self._open):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        super().server_close()
