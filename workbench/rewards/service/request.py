"""One question to a reward service: what its answer means, and when to ask again."""

import json
import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from workbench.errors import ConfigError, RewardServiceError

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

AGAIN = (502, 503, 504)  # not there for a moment, or still loading
NEW_BLOCK = 409  # the ids lay in the shared memory of a server that is gone
LONGEST_PAUSE_S = 10.0
_SHOWN = 200  # characters of an answer in an error
_START = "start it again (workbench reward-server ...), look at its log; what was to be scored can be asked for again"


class Again(Exception):  # noqa: N818 - what happened, not yet a fault
    """What came instead of an answer, where the next try may bring one, and how many seconds that should wait at least."""

    def __init__(self, what: str, after_s: float = 0.0) -> None:
        super().__init__(what)
        self.after_s = min(after_s, LONGEST_PAUSE_S)


@dataclass(frozen=True)
class Answer:
    """Rewards, one per row that was sent, and the model that gave them."""

    rewards: list[float]
    model: str


@dataclass(frozen=True)
class Patience:
    """``retries`` after the first try; the first after ``backoff`` seconds, each next one after twice as long."""

    retries: int
    backoff: float

    def pause(self, tried: int) -> float:
        """Seconds before the next try; by chance up to half shorter, so that clients don't come back all at once."""
        return float(min(self.backoff * 2 ** (tried - 1), LONGEST_PAUSE_S) * random.uniform(0.5, 1.0))


def persistently(url: str, ask: Callable[[], T], patience: Patience, stop: threading.Event) -> tuple[T, int]:
    """What ``ask`` gives, and how many tries it took. Raises RewardServiceError after the last one, or when ``stop`` is set."""
    tried = 0
    while True:
        tried += 1
        try:
            return ask(), tried
        except Again as again:
            if tried > patience.retries or stop.wait(max(patience.pause(tried), again.after_s)):
                times = f"{tried} tries" if tried > 1 else "1 try"
                raise RewardServiceError(f"reward service {url}", f"no answer after {times}: {again}", _START) from again


def as_json(body: dict[str, Any]) -> bytes:
    """``body`` as it is sent. Raises ConfigError where JSON can't hold it."""
    try:
        return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        found = f"JSON can't hold a prompt, completion or answer: {error}"
        raise ConfigError("rows for a reward service", found, "let answers be numbers, texts, lists and dicts of them") from error


def exchange(client: "httpx.Client", method: str, path: str, body: bytes | None) -> "httpx.Response":
    """The response. Raises Again where there is none, or one that says "not now"."""
    import httpx

    try:
        response = client.request(method, path, content=body, headers={"Content-Type": "application/json"})
    except httpx.TimeoutException as error:
        raise Again(f"it did not answer in time ({type(error).__name__})") from error
    except httpx.TransportError as error:
        raise Again(f"{type(error).__name__}: {error}") from error
    if response.status_code in (*AGAIN, NEW_BLOCK):
        raise Again(f"status {response.status_code}: {_detail(response)}", _asked_to_wait(response))
    return response


def content(url: str, response: "httpx.Response") -> dict[str, Any]:
    """The JSON object of a good response. Raises ConfigError where the caller is at fault, RewardServiceError where the service is."""
    asked, status = f"reward service {url}", response.status_code
    if status == 401:
        fix = "give the server's token: Service(url, token=...), or the variable WORKBENCH_REWARD_TOKEN"
        raise ConfigError(asked, f"it refuses the token: {_detail(response)}", fix)
    if status == 413:
        raise ConfigError(asked, f"the request is too large: {_detail(response)}", "write a smaller rows_per_request")
    if 400 <= status < 500 and status not in (408, 429):
        raise ConfigError(
            asked, f"it refuses the request (status {status}): {_detail(response)}", "look at the address, and at what is scored"
        )
    if status != 200:
        raise RewardServiceError(asked, f"status {status}: {_detail(response)}", "look at the service's log; then go on")
    try:
        said = response.json()
    except ValueError as error:
        raise _nonsense(url, f"no JSON: {response.text[:_SHOWN]!r}") from error
    if not isinstance(said, dict):
        raise _nonsense(url, f"{str(said)[:_SHOWN]}")
    return said


def read_answer(url: str, said: dict[str, Any], rows: int) -> Answer:
    """Rewards and model of the answer to ``rows`` rows. Raises RewardServiceError where it is nonsense."""
    rewards, model = said.get("rewards"), said.get("model")
    if not isinstance(rewards, list) or not isinstance(model, str):
        raise _nonsense(url, f"an answer without rewards or model: {str(said)[:_SHOWN]}")
    if len(rewards) != rows:
        raise _nonsense(url, f"{len(rewards)} rewards for {rows} rows")
    for row, reward in enumerate(rewards):
        if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
            raise _nonsense(url, f"{reward!r} as the reward of row {row}")
    return Answer([float(reward) for reward in rewards], model)


def _nonsense(url: str, what: str) -> RewardServiceError:
    fix = 'is that a reward service? It has to answer {"rewards": [one finite number per row], "model": "..."}'
    return RewardServiceError(f"reward service {url}", f"it answers nonsense: {what}", fix)


def _asked_to_wait(response: "httpx.Response") -> float:
    """Seconds of its Retry-After; 0 where it has none, or a date."""
    said = response.headers.get("Retry-After", "")
    return float(said) if said.isdecimal() else 0.0


def _detail(response: "httpx.Response") -> str:
    """What the response says, on one line."""
    try:
        said = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        said = response.text
    return " ".join(str(said).split())[:_SHOWN]
