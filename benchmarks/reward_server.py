"""The reward server on this machine: requests/s and latency under 8 clients, batching on and off, and how long a kill is felt.

``python -m benchmarks.reward_server``; the model is the tiny one that tests use, so what is measured is the service around it.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.common import write
from workbench.rewards import Service, tiny_reward_model

CLIENTS = 8
ROWS = [(f"sort {number} letters of the alphabet=", "abcdefghijklmnop"[: number % 16], None) for number in range(64)]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(model: str, port: int, options: Sequence[object]) -> "subprocess.Popen[str]":
    """A server, as soon as it is ready."""
    command = [sys.executable, "-m", "workbench", "reward-server", model, "--port", str(port), *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if "serving" not in process.stdout.readline():
        raise RuntimeError(f"the server ended with {process.wait()}")
    return process


@contextmanager
def server(model: str, *options: object) -> Iterator[str]:
    """The url of a server that runs inside."""
    port = free_port()
    process = start(model, port, options)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def load(service: Service, rows: int, seconds: float) -> dict[str, float]:
    """``CLIENTS`` threads that each ask for ``rows`` rows again and again."""
    taken: list[float] = []

    def client() -> None:
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            service.score(ROWS[:rows])
            taken.append(time.monotonic() - began)

    service.score(ROWS[:rows])
    threads, began = [threading.Thread(target=client) for _ in range(CLIENTS)], time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed, cuts = time.monotonic() - began, statistics.quantiles(taken, n=100)
    return {
        "rows_per_request": rows,
        "requests_per_second": round(len(taken) / elapsed, 1),
        "rows_per_second": round(len(taken) * rows / elapsed, 1),
        "p50_ms": round(1000 * cuts[49], 2),
        "p99_ms": round(1000 * cuts[98], 2),
    }


def killed(model: str) -> dict[str, float]:
    """kill -9 while a client asks, and a start by somebody at once: seconds until the next good answer."""
    port = free_port()
    process = start(model, port, ())
    service = Service(f"http://127.0.0.1:{port}", retries=600, backoff=0.05)
    service.score(ROWS)
    process.kill()
    process.wait()
    died, again = time.monotonic(), []
    starting = threading.Thread(target=lambda: again.append(start(model, port, ())))
    starting.start()
    service.score(ROWS)
    back = time.monotonic() - died
    starting.join()
    again[0].terminate()
    again[0].wait(20)
    return {"seconds_from_kill_to_good_answer": round(back, 2), "tries": service.numbers()["tries"]}


def main() -> None:
    """Measure, and write ``benchmarks/results/reward_server_cpu.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    seconds = parser.parse_args().seconds
    block = f"workbench-benchmark-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        model = str(tiny_reward_model(Path(folder)))
        with server(model, "--shared-mem", block, "--shared-mem-mib", 8) as url:
            batched = load(Service(url), 1, seconds)
            step = load(Service(url), 64, seconds)
            shared = load(Service(url, shared_mem_name=block), 64, seconds)
        with server(model, "--max-batch", 1, "--max-wait-ms", 0) as url:
            single = load(Service(url), 1, seconds)
        figures: dict[str, Any] = {
            "load_average": os.getloadavg()[0],
            "clients": CLIENTS,
            "batched": batched,
            "not_batched": single,
            "whole_steps": step,
            "whole_steps_through_shared_memory": shared,
            "killed": killed(model),
        }
    write("reward_server_cpu", figures)


if __name__ == "__main__":
    main()
