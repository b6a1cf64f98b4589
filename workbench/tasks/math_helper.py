"""Compares mathematical answers in a process of its own, which ``mathematics`` starts: python math_helper.py LIMIT_SECONDS.

A line of JSON in, ``{"completion": ..., "answer": ...}``, and one out, ``{"score": 0.0 or 1.0}``; the first one out says that
it is ready, or why not. sympy can be led into computations that take hours and can't be interrupted (9**9**9**9), so a timer in C
ends the process where one takes longer than its limit. Imports nothing of the package: it is run as a file.
"""

import faulthandler
import json
import logging
import os
import resource
import signal
import sys
from typing import Any, TextIO

START_SECONDS = 120  # for the imports, on a slow disk
MEMORY_BYTES = 4 << 30  # of addresses: a number with a billion digits is refused with MemoryError, which scores 0
DELIMITERS = ("$", "\\boxed", "\\(", "\\[")


def main(limit_seconds: float) -> None:
    """Answer until the input ends, as it does when the process that asks has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for who asks
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    logging.disable()
    nowhere = open(os.devnull, "w")
    replies, sys.stdout = sys.stdout, nowhere  # a print anywhere below is no reply
    faulthandler.dump_traceback_later(START_SECONDS, exit=True, file=nowhere)
    try:
        works = score("so it is $\\frac{1}{2}$", "0.5") == 1.0
        _say(replies, {"ready": works} if works else {"error": "it does not find that 1/2 is 0.5"})
    except Exception as error:
        _say(replies, {"error": f"{type(error).__name__}: {error}"})
        return
    for line in sys.stdin:
        faulthandler.dump_traceback_later(limit_seconds, exit=True, file=nowhere)
        _say(replies, {"score": score(**json.loads(line))})
        faulthandler.cancel_dump_traceback_later()


def score(completion: str, answer: str) -> float:
    """1 where math-verify finds in ``completion`` what equals ``answer``."""
    from math_verify import parse, verify

    # Without delimiters it would read \frac{1}{2} as text that ends with the number 2.
    right = answer if any(mark in answer for mark in DELIMITERS) else f"\\boxed{{{answer}}}"
    # Its own time-outs can't interrupt what runs in C, and are caught inside it: ours end the process.
    return float(verify(parse(right, parsing_timeout=None), parse(completion, parsing_timeout=None), timeout_seconds=None))


def _say(replies: TextIO, reply: dict[str, Any]) -> None:
    print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
