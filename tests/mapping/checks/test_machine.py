"""What this machine forbids or lacks."""

import http.server
import socket
import threading

import pytest

from tests.mapping.checks.helpers import ask, codes, only
from workbench.mapping.checks.machine import silence
from workbench.topology.detection.host import Host

GIB = 2**30
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
ROOMY = Host(shm_bytes_free=8 * GIB)


@pytest.mark.parametrize(
    ("free", "severity", "words"),
    [
        (None, "error", "there is no /dev/shm"),
        (64 * 2**20, "error", "/dev/shm has 0.06 GiB free"),
        (GIB // 2, "warning", "/dev/shm has 0.50 GiB free"),
    ],
)
def test_shared_memory(free, severity, words):
    found = only(ask("l40s-4", actor="0-3", host=Host(shm_bytes_free=free)), "WB601")
    assert (found.severity, found.asked) == (severity, "processes on 4 devices")
    assert found.found.startswith(words)


@pytest.mark.parametrize(
    ("machine", "actor", "told"), [("l40s-4", "0", True), ("cpu:2", "0-1", True), ("cpu:2", "cpu", False), ("l40s-4", "cpu", False)]
)
def test_only_one_process_on_the_cpu_needs_no_shared_memory(machine, actor, told):
    """Everything else Ray starts, with its objects in shared memory."""
    assert ("WB601" in codes(ask(machine, actor=actor, host=Host(shm_bytes_free=0)))) == told


def test_enough_shared_memory():
    assert codes(ask("l40s-4", actor="0-3", host=ROOMY)) == codes(ask("l40s-4", actor="0-3")) == []


def test_a_block_for_a_service_needs_shared_memory():
    reward = {"service_url": "http://localhost:8000", "shared_mem_name": "rewards"}
    found = only(ask("l40s-4", actor="0", reward=reward, host=Host(shm_bytes_free=0)), "WB601")
    assert (found.role, found.asked) == ("reward", "reward: shared_mem_name")


@pytest.mark.parametrize(
    ("scope", "may", "environment", "severity"),
    [
        (1, False, EXPANDABLE, "error"),
        (3, True, EXPANDABLE, "error"),
        (1, False, {}, "info"),
        (1, True, EXPANDABLE, None),
        (0, False, EXPANDABLE, None),
        (None, None, EXPANDABLE, None),
    ],
)
def test_cuda_ipc(scope, may, environment, severity):
    host = Host(shm_bytes_free=8 * GIB, ptrace_scope=scope, may_ptrace=may, environment=environment)
    question = ask("l40s-4", actor="0-3", reward="0", host=host)
    found = [one for one in question.devices.check(question.topology, host=host) if one.code == "WB602"]
    assert [(one.severity, one.asked) for one in found] == ([(severity, "actor and reward share GPUs")] if severity else [])
    assert all(f"ptrace_scope is {scope}" in one.found for one in found)


def test_who_hands_memory_over():
    host = Host(shm_bytes_free=8 * GIB, ptrace_scope=1, may_ptrace=False, environment=EXPANDABLE)
    assert only(ask("hgx-h100", actor="0-7", rollout="0-7 tp2", host=host), "WB602").asked == "rollout: tp 2"
    assert codes(ask("hgx-h100", actor="0-7", host=host)) == []  # one pool, one process a GPU
    assert codes(ask("hgx-h100", actor="0-3", rollout="4-7", host=host)) == []


@pytest.fixture
def server():
    """A service that answers with the status in its path: /503 with 503. Gives its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(int(self.path.split("/")[1]))
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def test_a_service_that_answers(server):
    assert [silence(f"{server}/{status}") for status in (200, 404, 500)] == ["", "", ""]
    assert silence(f"{server}/503") == "HTTP status 503 (Service Unavailable)"
    assert codes(ask("l40s-4", actor="0-3", reward=f"{server}/200", probe=True)) == []


def test_a_service_that_does_not():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    here = only(ask("l40s-4", actor="0-3", reward=url, probe=True, host=ROOMY), "WB603")
    assert (here.severity, here.asked) == ("error", f"reward: {url}")
    assert here.found.startswith("it does not answer: ")
    assert "refused" in here.found
    away = only(ask("l40s-4", actor="0-3", reward=url, probe=True), "WB603")
    assert (away.severity, away.found.startswith("from this machine it does not answer")) == ("warning", True)
    assert codes(ask("l40s-4", actor="0-3", reward=url)) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://no-such-host.invalid", "http://[::1"])
def test_addresses_that_lead_nowhere(url):
    assert silence(url) != ""


def test_something_that_speaks_no_http():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: listening.accept()[0].sendall(b"SSH-2.0-none\r\n\r\n"), daemon=True)
        thread.start()
        assert silence(f"http://127.0.0.1:{listening.getsockname()[1]}") != ""
        thread.join()


def test_settings():
    host = Host(shm_bytes_free=8 * GIB, environment={"NCCL_BLOCKING_WAIT": "0", "CUDA_LAUNCH_BLOCKING": "1"})
    assert codes(ask("l40s-4", actor="0-3", host=host)) == ["WB605", "WB604"]
