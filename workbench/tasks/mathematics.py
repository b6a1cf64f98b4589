"""Mathematical answers compared by meaning, with math-verify (https://github.com/huggingface/Math-Verify)."""

import atexit
import json
import subprocess
import sys
import threading
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError

LIMIT_SECONDS = 5.0  # for one comparison; nearly all take milliseconds
HELPER = Path(__file__).with_name("math_helper.py")


class Verifier:
    """math-verify in one process of its own, started on first use and again after one that hung.

    Rewards run in threads, where math-verify's time-outs (SIGALRM) raise, and some of sympy's computations can't be interrupted
    by any exception: only a process can be ended. Calls may come from any thread, one after the other.
    """

    def __init__(self, limit_seconds: float = LIMIT_SECONDS) -> None:
        self.limit_seconds = limit_seconds
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._warned = False

    def score(self, completion: str, answer: str) -> float:
        """1 where ``completion`` says ``answer``, else 0; also 0, with one warning, where comparing takes longer than the limit.

        Raises ConfigError where math-verify can't be started.
        """
        with self._lock:
            reply = self._ask({"completion": completion, "answer": answer})
        if reply is None:
            self._warn(completion)
            return 0.0
        return float(reply["score"])

    def close(self) -> None:
        """End the process. The next ``score`` starts a new one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _ask(self, question: dict[str, str]) -> dict[str, Any] | None:
        """The helper's reply; None where it ended instead."""
        try:
            process = self._started()
            reply = _exchange(process, question)
        except BaseException:  # an interrupt leaves a reply in the pipe, which is not the next question's
            self.close()
            raise
        if reply is None:
            self.close()
        return reply

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-P", str(HELPER), str(self.limit_seconds)]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, encoding="utf-8")
            reply = _exchange(self._process, None) or {"error": f"it ended with code {self._process.wait()}"}
            if "error" in reply:
                raise ConfigError("scorer='math'", f"math-verify does not start: {reply['error']}", "reinstall it: pip install math-verify")
        return self._process

    def _warn(self, completion: str) -> None:
        if not self._warned:
            self._warned = True
            text = f"scorer='math': comparing a completion took longer than {self.limit_seconds:g} s or broke its process; it scored 0"
            warnings.warn(f"{text}, as all such will. The first one ends with {completion[-60:]!r}", stacklevel=4)


def _exchange(process: subprocess.Popen[str], question: dict[str, str] | None) -> dict[str, Any] | None:
    """The reply to ``question``, or the first line of all; None where the process ended."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the helper was started without pipes")
    if question is not None:
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
    line = process.stdout.readline()
    return json.loads(line) if line.endswith("\n") else None


VERIFIER = Verifier()
atexit.register(VERIFIER.close)


def math(prompt: Any, completion: str, answer: Any) -> float:
    """1 where the completion's final answer is mathematically ``answer`` (LaTeX or plain: "\\frac{1}{2}", "0.5", "x^2 + 1").

    The final answer is what stands in ``\\boxed{}``, or else the last expression in ``$...$``, or else the last number.
    Comparing happens in a process of its own; see ``Verifier`` for its limit. Needs the package math-verify.
    """
    return VERIFIER.score(completion, str(answer))


def check_installed() -> None:
    """Raise ConfigError where math-verify is missing."""
    if find_spec("math_verify") is None:
        raise ConfigError(
            "scorer='math'", "the package math-verify is not installed", "pip install 'rl-workbench[math]', or pip install math-verify"
        )
