"""``workbench reward-server``: what it refuses before it serves, and what ends it."""

import os
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner

from tests.rewards.serving import HERE
from workbench.cli import main
from workbench.rewards import tiny_reward_model
from workbench.rewards.server.options import Serving
from workbench.rewards.wire.shared_memory import SHM

BLOCK = f"wb-test-command-{os.getpid()}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_reward_model(tmp_path_factory.mktemp("served"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["serving:letters", "--host", "0.0.0.0"],
            "everyone who reaches this machine could use it, for there is no token\n  fix: add --token",
        ),
        (["serving:letters", "--host", "192.168.1.1"], "for there is no token"),
        (["serving:letters", "--token", ""], "--token: it is empty"),
        (["gone:letters"], "'gone' can't be imported"),
        (["math:gone"], "math has no 'gone'"),
        (["math:pi"], "float can't be called"),
        (["./gone"], "its config.json can't be read"),
        (["math:hypot", "--shared-mem", "x"], "math:hypot is a function of texts, and the shared memory is for token ids"),
    ],
)
def test_what_can_not_be_served(options, message, monkeypatch):
    monkeypatch.delenv("WORKBENCH_REWARD_TOKEN", raising=False)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.syspath_prepend(HERE)
    result = CliRunner().invoke(main, ["reward-server", *options])
    assert result.exit_code == 2
    assert message in result.output


def test_a_port_that_is_taken(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["reward-server", str(folder), "--port", str(port)])
    assert result.exit_code == 2
    assert f"--host 127.0.0.1 --port {port}: can't listen there" in result.output


def test_shared_memory_larger_than_there_is_room(folder):
    state = os.statvfs(SHM)
    mib = state.f_bavail * state.f_frsize // 2**20 + 1000
    result = CliRunner().invoke(
        main, ["reward-server", str(folder), "--port", "0", "--shared-mem", BLOCK + "-big", "--shared-mem-mib", str(mib)]
    )
    assert result.exit_code == 2
    assert "/dev/shm has" in result.output
    assert "fix: write --shared-mem-mib" in result.output
    assert not (SHM / (BLOCK + "-big")).exists()


def test_a_reward_that_can_not_be_made_ready_ends_the_server():
    command = [sys.executable, "-m", "workbench", "reward-server", "serving:broken", "--port", "0", "--device", "cpu"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "error: reward Broken.prepare('cpu'): it raised OSError: no weights" in done.stderr


def test_the_token_is_in_no_repr():
    assert "sesame" not in repr(Serving("m", token="sesame"))


def test_help_names_every_option():
    shown = CliRunner().invoke(main, ["reward-server", "--help"]).output
    for option in (
        "--host",
        "--port",
        "--token",
        "--dtype",
        "--device",
        "--max-batch",
        "--max-wait-ms",
        "--max-queue",
        "--shared-mem ",
        "--shared-mem-mib",
    ):
        assert option in shown
