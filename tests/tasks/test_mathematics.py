"""Mathematical answers, with math-verify itself, in its process."""

import asyncio
import json
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator

import pytest

from workbench.errors import ConfigError
from workbench.tasks import from_list, mathematics
from workbench.tasks.mathematics import Verifier
from workbench.tasks.scorers import scorer_named

HANGS = "so it is $\\boxed{9^{9^{9^9}}}$"


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    one = Verifier()
    yield one
    one.close()


@pytest.mark.parametrize(
    ("completion", "answer", "score"),
    [
        ("The answer is $\\frac{1}{2}$.", "0.5", 1),
        ("so \\boxed{0.5}", "\\frac{1}{2}", 1),
        ("so \\boxed{0.2}", "\\frac{1}{2}", 0),
        ("$x^2+2x+1$", "(x+1)^2", 1),
        ("$x^2+2x$", "(x+1)^2", 0),
        ("It is 3. No: \\boxed{4}", "4", 1),
        ("the answer is 1,234", "$1234$", 1),
        ("$\\{1, 2\\}$", "\\{2, 1\\}", 1),
        ("", "3", 0),
        ("no idea\nat all", "3", 0),
        ("é — \\boxed{7}", "7", 1),
    ],
)
def test_answers_are_compared_by_meaning(verifier: Verifier, completion: str, answer: str, score: float) -> None:
    assert verifier.score(completion, answer) == score


def test_a_computation_that_hangs_scores_nothing_and_says_so_once() -> None:
    verifier = Verifier(limit_seconds=0.7)
    try:
        assert verifier.score("$2$", "2") == 1  # started
        begin = time.monotonic()
        with pytest.warns(UserWarning, match=r"longer than 0.7 s .*; it scored 0, as all such will.*boxed\{9"):
            assert verifier.score(HANGS, "3") == 0
        assert time.monotonic() - begin < 10
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert verifier.score("$2$", "2") == 1  # in a new process
            verifier._warn(HANGS)
    finally:
        verifier.close()


def test_it_runs_in_the_thread_and_the_loop_that_rewards_run_in(verifier: Verifier) -> None:
    scores: list[float] = []

    async def step() -> None:
        scores.extend(verifier.score("$1/2$", "0.5") for _ in range(3))

    thread = threading.Thread(target=lambda: asyncio.run(step()))
    thread.start()
    thread.join(60)
    assert scores == [1, 1, 1]


def test_threads_get_their_own_replies(verifier: Verifier) -> None:
    wrong: list[int] = []

    def ask(number: int) -> None:
        wrong.extend(n for n in range(10) if verifier.score(f"${n}$", str(number)) != float(n == number))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_close_ends_the_process_and_the_next_score_starts_another() -> None:
    verifier = Verifier()
    verifier.score("1", "1")
    process = verifier._process
    assert process is not None
    verifier.close()
    verifier.close()
    assert process.poll() is not None


def test_the_process_ends_with_who_asks() -> None:
    """Its input ends, as it does when the asking process has died."""
    command = [sys.executable, "-P", str(mathematics.HELPER), "5"]
    question = json.dumps({"completion": "$1$", "answer": "1"})
    done = subprocess.run(command, input=question + "\n", capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ['{"ready": true}', '{"score": 1.0}']
    assert done.returncode == 0


def test_a_helper_that_does_not_start_is_no_wrong_answer(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    broken = tmp_path / "helper.py"
    monkeypatch.setattr(mathematics, "HELPER", broken)
    for source, found in (("raise SystemExit(3)", "it ended with code 3"), ('print(\'{"error": "no sympy"}\')', "no sympy")):
        broken.write_text(source)
        with pytest.raises(ConfigError, match=f"scorer='math': math-verify does not start: {found}"):
            Verifier().score("1", "1")


def test_by_name() -> None:
    task = from_list([(f"{n} + 1?", f"{n + 1}") for n in range(20)], scorer="math")
    assert task.scorer("1 + 1?", "\\boxed{\\frac{4}{2}}", "2") == 1
    assert task.scorer("1 + 1?", "3", 2) == 0


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mathematics, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"scorer='math': the package math-verify is not installed\n  fix: pip install 'rl-workbench\[math\]'"
    ):
        scorer_named("math")
