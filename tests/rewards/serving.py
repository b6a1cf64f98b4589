"""A real reward server in a process of its own, and rewards for it to serve."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

HERE = Path(__file__).parent


def letters(prompt, completion, answer):
    """How often the answer is in the completion. Fails on "!"; "~2": takes 2 s, and makes the file ``prompt``."""
    if completion == "!":
        raise KeyError("no score for this")
    if completion.startswith("~"):
        Path(prompt).touch()
        time.sleep(float(completion[1:]))
    return float(completion.count(answer))


def lengths(prompt, completion, answer):
    """Served as ``serving:lengths``: any completion has one."""
    return float(len(completion))


class Broken:
    """Served as ``serving:broken``: can't be made ready."""

    def __call__(self, prompt, completion, answer):
        return 0.0

    def prepare(self, device):
        raise OSError("no weights")


broken = Broken()


class Server:
    """``workbench reward-server`` on a free port; ``start`` after ``kill`` takes the same port."""

    def __init__(self, model, *options, folder=HERE):
        self.model, self.options, self.folder, self.port, self.process = str(model), options, folder, 0, None

    def start(self):
        """Returns the seconds until it was ready."""
        began = time.monotonic()
        command = [sys.executable, "-m", "workbench", "reward-server", self.model, "--port", str(self.port), *map(str, self.options)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert "serving" in line, f"it ended with {self.process.wait()}"
        self.port = int(line.rsplit(":", 1)[1])
        return time.monotonic() - began

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def metric(self, name, headers=None):
        """The value of one line of /metrics."""
        lines = httpx.get(f"{self.url}/metrics", headers=headers, trust_env=False).text.splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + " ")), 0.0)


@contextlib.contextmanager
def serving(model, *options, folder=HERE):
    """A started server, told to end at the end if it still lives: a killed one would leave its shared memory behind."""
    server = Server(model, *options, folder=folder)
    server.start()
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end()
        server.process.stdout.close()
