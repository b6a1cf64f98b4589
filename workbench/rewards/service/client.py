"""A reward that a service gives: asked over HTTP, again where it is worth it, and not at all while it is known to be down."""

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from workbench.errors import ConfigError, RewardServiceError, check_kind
from workbench.rewards.models.dialogue import Dialogue
from workbench.rewards.rows import Row
from workbench.rewards.service.breaker import Breaker
from workbench.rewards.service.request import Again, Answer, Patience, as_json, content, exchange, persistently, read_answer
from workbench.rewards.wire.address import TOKEN_VARIABLE, check_url, is_loopback
from workbench.rewards.wire.shared_memory import Slots, block_path

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
Ids = list[list[int]]

_HEALTH_S = 2.0
HTTP_UNAUTHORIZED = 401
_NUMBERS = (
    ("timeout", float, 0.001),
    ("retries", int, 0),
    ("backoff", float, 0.0),
    ("rows_per_request", int, 1),
    ("breaker_failures", int, 1),
    ("breaker_seconds", float, 0.0),
)  # field, kind, least


@dataclass
class Service:
    """The rewards of the service at ``url``, one that ``workbench reward-server`` serves or that speaks its protocol (docs/rewards.md).

    ``token``: what it asks for, else the variable WORKBENCH_REWARD_TOKEN. ``timeout``: seconds for an answer. ``retries``: tries after
    the first, where it does not answer in time, can't be reached, or says 502, 503 or 504; the first after ``backoff`` seconds, each
    next one after twice as long. ``shared_mem_name``: token ids go through that block of shared memory; only on the same machine.
    ``rows_per_request``: of a batch. After ``breaker_failures`` requests in a row that failed in spite of retries, none is made for
    ``breaker_seconds``. Numbers: "tries" and "seconds" a request, and "model_changed", 1 where another model answered than before.
    Raises ConfigError where an argument can't be, RewardServiceError where the service is dead, slow or answers nonsense.
    """

    url: str
    token: str | None = field(default=None, repr=False, kw_only=True)
    timeout: float = field(default=30.0, kw_only=True)
    retries: int = field(default=3, kw_only=True)
    backoff: float = field(default=0.5, kw_only=True)
    shared_mem_name: str | None = field(default=None, kw_only=True)
    rows_per_request: int = field(default=256, kw_only=True)
    breaker_failures: int = field(default=3, kw_only=True)
    breaker_seconds: float = field(default=10.0, kw_only=True)

    def __post_init__(self) -> None:
        check_url(self.url)
        self.url = self.url.rstrip("/")
        if self.token is None:
            self.token = os.environ.get(TOKEN_VARIABLE)
        for name, kind, least in _NUMBERS:
            value = getattr(self, name)
            check_kind(f"Service({name})", value, kind, "a number")
            if value < least:
                raise ConfigError(f"Service({name}={value})", "that is too small", f"give {least:g} or more")
        if self.shared_mem_name is not None:
            block_path(self.shared_mem_name)
        self._begin()

    def _begin(self) -> None:
        self.model: str | None = None  # who answered last
        self.breaker = Breaker(self.breaker_failures, self.breaker_seconds)
        self._last = ""  # what the last failure was
        self._said: dict[str, float] = {}
        self._lock = threading.Lock()
        self._http: httpx.Client | None = None
        self._dialogue: tuple[str, Dialogue] | None = None  # the model whose tokens it makes, and it

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __call__(self, prompt: Any, completion: str, answer: Any) -> float:
        """The reward of one completion."""
        return self.score([(prompt, completion, answer)])[0]

    async def score_rows(self, rows: Sequence[Row]) -> list[float]:
        """One reward per row. A stop is heard at once; the request that is under way ends in a thread of its own."""
        stop = threading.Event()
        try:
            return await _in_thread(lambda: self.score(rows, stop))
        finally:
            stop.set()

    def score(self, rows: Sequence[Row], stop: threading.Event | None = None) -> list[float]:
        """One reward per row, waited for. ``stop``: when set, nothing is tried again."""
        before, began, stop = self.model, time.monotonic(), stop or threading.Event()
        answers: list[tuple[Answer, int]] = []  # and tries
        ask = self._ask_rows if self.shared_mem_name is None else self._ask_ids
        for first in range(0, len(rows), self.rows_per_request):
            answers += ask(rows[first : first + self.rows_per_request], stop)
        if answers:
            self.model = answers[-1][0].model
            changed = len({answer.model for answer, _ in answers} | {before or self.model}) > 1
            seconds, tries = (time.monotonic() - began) / len(answers), sum(tried for _, tried in answers) / len(answers)
            self._said = {"tries": tries, "seconds": seconds, "model_changed": float(changed)}
        return [reward for answer, _ in answers for reward in answer.rewards]

    def numbers(self) -> dict[str, float]:
        """Of the rows just scored."""
        return self._said

    def healthy(self) -> bool:
        """Whether it answers now, and is ready."""
        import httpx

        try:
            answer = self._client().get("/health", timeout=min(self.timeout, _HEALTH_S))
            return answer.status_code == 200 and answer.json().get("ready") is True
        except (httpx.HTTPError, ValueError, AttributeError):
            return False

    def greet(self) -> str:
        """Ask for nothing, before a run loads anything: "", or in words that it does not answer. Raises ConfigError on a wrong token."""
        import httpx

        try:
            answer = self._client().post("/score", content=as_json({"rows": []}), timeout=min(self.timeout, _HEALTH_S))
        except httpx.HTTPError as error:
            return f"reward service {self.url} does not answer ({type(error).__name__}: {error})"
        if answer.status_code == HTTP_UNAUTHORIZED:
            content(self.url, answer)
        return ""

    # ------------------------------------------------------------ ways to send rows

    def _ask_rows(self, rows: Sequence[Row], stop: threading.Event) -> list[tuple[Answer, int]]:
        """As texts."""
        body = as_json({"rows": [{"prompt": prompt, "completion": completion, "answer": answer} for prompt, completion, answer in rows]})
        return [self._guarded(lambda: self._post(body, len(rows)), stop)]

    def _ask_ids(self, rows: Sequence[Row], stop: threading.Event) -> list[tuple[Answer, int]]:
        """As token ids in shared memory; anew where another model answered than the one whose tokens they are."""
        slots = Slots(str(self.shared_mem_name))
        for _ in range(2):
            model, dialogue = self._tokens(stop)
            room, _ = self._guarded(lambda: _room(slots), stop)
            parts = _fitting([dialogue.ids(row) for row in rows], room)
            answers = [self._guarded(partial(self._post_ids, slots, ids), stop) for ids in parts]
            if all(answer.model == model for answer, _ in answers):
                return answers
            self._dialogue = None
        found = f"it says at /model that it is {model}, and answers as {answers[-1][0].model}"
        raise RewardServiceError(f"reward service {self.url}", found, "is something between, such as a proxy over several servers?")

    def _post(self, body: bytes, rows: int) -> Answer:
        return read_answer(self.url, content(self.url, exchange(self._client(), "POST", "/score", body)), rows)

    def _post_ids(self, slots: Slots, ids: Ids) -> Answer:
        with contextlib.ExitStack() as stack:
            try:
                lent = stack.enter_context(slots.lent(ids, self.timeout))
            except RewardServiceError as error:  # its server is being started again, maybe
                raise Again(error.found) from error
            return self._post(as_json({"shared": asdict(lent)}), len(ids))

    def _tokens(self, stop: threading.Event) -> tuple[str, Dialogue]:
        """The model there, and how it makes tokens of rows. Raises ConfigError where it takes none."""
        if self._dialogue is None:
            said, _ = self._guarded(lambda: content(self.url, exchange(self._client(), "GET", "/model", None)), stop)
            asked = f"reward service {self.url} with shared_mem_name={self.shared_mem_name!r}"
            if said.get("shared_mem_name") != self.shared_mem_name:
                there = f"its block is {said['shared_mem_name']!r}" if said.get("shared_mem_name") else "it has no shared memory"
                raise ConfigError(asked, there, f"start it with --shared-mem {self.shared_mem_name}, or leave shared_mem_name out")
            self._dialogue = str(said.get("model")), Dialogue(str(said.get("tokenizer")))
        return self._dialogue

    # ------------------------------------------------------------ with patience

    def _guarded(self, ask: Callable[[], T], stop: threading.Event) -> tuple[T, int]:
        """What ``ask`` gives and after how many tries, unless the breaker is open."""
        if not self.breaker.allows():
            found = (
                f"it failed {self.breaker_failures} times in a row and is left alone for another {self.breaker.wait():.0f} s; {self._last}"
            )
            raise RewardServiceError(f"reward service {self.url}", found, "see to it that it runs; then go on")
        try:
            outcome = persistently(self.url, ask, Patience(self.retries, self.backoff), stop)
        except RewardServiceError as error:
            self._last = error.found
            self.breaker.failed()
            raise
        except BaseException:
            self.breaker.dropped()
            raise
        self.breaker.succeeded()
        return outcome

    def _client(self) -> "httpx.Client":
        import httpx

        with self._lock:
            if self._http is None:
                headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
                own = is_loopback(urlsplit(self.url).hostname or "")  # a proxy does not reach this machine's own address
                self._http = httpx.Client(base_url=self.url, headers=headers, timeout=self.timeout, trust_env=not own)
                weakref.finalize(self, self._http.close)
            return self._http


def _room(slots: Slots) -> int:
    try:
        return slots.room()
    except RewardServiceError as error:
        raise Again(error.found) from error


def _fitting(ids: Ids, room: int) -> Iterator[Ids]:
    """``ids`` in parts of at most ``room`` tokens, in order. Raises ConfigError where one row alone is longer."""
    part: Ids = []
    for row in ids:
        if len(row) > room:
            fix = "start the server with more --shared-mem-mib"
            raise ConfigError("shared memory", f"a row has {len(row)} tokens, and a slot holds {room}", fix)
        if part and sum(map(len, part)) + len(row) > room:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


async def _in_thread(work: Callable[[], T]) -> T:
    """``work()`` in a thread that no one waits for at the end of the process."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # from here on it can't be cancelled: the thread may always say what came

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="workbench-reward-service", daemon=True).start()
    return await asyncio.wrap_future(done)
