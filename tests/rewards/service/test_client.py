"""The client of a reward service, against small servers that lie, break and wait. The real server is in tests/rewards/server."""

import json
import pickle
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from workbench.errors import ConfigError, RewardServiceError, Stopped
from workbench.rewards import Ensemble, Scorer, Service, Weighted, score_all

ROWS = [("p", "a", None), ("p", "bb", None)]
GOOD = {"rewards": [1.0, 2.0], "model": "m"}


class Liar:
    """Answers POSTs with what is in ``answers``, the last one again and again: (status, body), or a function that gives it."""

    def __init__(self):
        self.answers, self.asked, self.connections = [(200, GOOD)], [], set()
        liar = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                liar.connections.add(self.client_address)
                liar.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                answer = liar.answers.pop(0) if len(liar.answers) > 1 else liar.answers[0]
                self.give(*(answer() if callable(answer) else answer))

            def do_GET(self):
                self.give(*liar.health)

            def give(self, status, body):
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_):
                pass

        self.health = (200, {"ready": True})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def service(self, **named):
        return Service(self.url, **({"backoff": 0.001, "timeout": 5.0} | named))


@pytest.fixture
def liar():
    made = Liar()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_rows_go_as_json_over_one_connection(liar):
    service = liar.service(rows_per_request=2)
    assert score_all(service, [*ROWS, *ROWS]) == [1.0, 2.0, 1.0, 2.0]
    assert service.score(ROWS) == [1.0, 2.0]
    assert liar.asked[0] == {
        "rows": [{"prompt": "p", "completion": "a", "answer": None}, {"prompt": "p", "completion": "bb", "answer": None}]
    }
    assert len(liar.asked) == 3
    assert len(liar.connections) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>hello</html>", r"it answers nonsense: no JSON: '<html>hello"),
        ([1.0, 2.0], r"nonsense: \[1\.0, 2\.0\]"),
        ({"scores": [1.0, 2.0]}, r"an answer without rewards or model"),
        ({"rewards": [1.0, 2.0]}, r"an answer without rewards or model"),
        ({"rewards": [1.0], "model": "m"}, r"1 rewards for 2 rows"),
        (b'{"rewards": [1.0, NaN], "model": "m"}', r"nan as the reward of row 1"),
        (b'{"rewards": [1.0, 1e999], "model": "m"}', r"inf as the reward of row 1"),
        ({"rewards": [1.0, None], "model": "m"}, r"None as the reward of row 1"),
        ({"rewards": [1.0, "2"], "model": "m"}, r"'2' as the reward of row 1"),
        ({"rewards": [True, 2.0], "model": "m"}, r"True as the reward of row 0"),
    ],
)
def test_nonsense_is_not_believed_and_not_asked_for_again(liar, body, message):
    liar.answers = [(200, body)]
    with pytest.raises(RewardServiceError, match=rf"reward service {liar.url}: .*{message}"):
        score_all(liar.service(), ROWS)
    assert len(liar.asked) == 1


@pytest.mark.parametrize("status", [502, 503, 504])
def test_what_passes_is_asked_for_again(liar, status):
    liar.answers = [(status, {"detail": "wait"}), (status, b"busy"), (200, GOOD)]
    with Scorer(liar.service()) as scorer:
        assert scorer.score(ROWS) == [1.0, 2.0]
        assert scorer.numbers()["tries"] == 3.0


def test_after_the_last_try(liar):
    liar.answers = [(503, {"detail": "loading"})]
    with pytest.raises(RewardServiceError, match=r"no answer after 3 tries: status 503: loading\n  fix: start it again"):
        score_all(liar.service(retries=2), ROWS)
    assert len(liar.asked) == 3


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (401, ConfigError, r"it refuses the token: no\n  fix: give the server's token"),
        (404, ConfigError, r"it refuses the request \(status 404\): no\n  fix: look at the address"),
        (413, ConfigError, r"too large: no\n  fix: write a smaller rows_per_request"),
        (422, ConfigError, r"it refuses the request \(status 422\)"),
        (429, RewardServiceError, r"status 429: no"),
        (500, RewardServiceError, r"status 500: no\n  fix: look at the service's log"),
        (302, RewardServiceError, r"status 302"),
    ],
)
def test_what_does_not_pass_is_asked_for_once(liar, status, kind, message):
    liar.answers = [(status, {"detail": "no"})]
    with pytest.raises(kind, match=message):
        score_all(liar.service(), ROWS)
    assert len(liar.asked) == 1


def test_a_time_out_is_tried_again(liar):
    def slow():
        time.sleep(1.0)
        return 200, GOOD

    liar.answers = [slow, (200, GOOD)]
    assert score_all(liar.service(timeout=0.3), ROWS) == [1.0, 2.0]
    liar.answers = [slow]
    with pytest.raises(RewardServiceError, match=r"no answer after 2 tries: it did not answer in time \(ReadTimeout\)"):
        score_all(liar.service(timeout=0.1, retries=1), ROWS)


def test_nobody_listens():
    service = Service("http://127.0.0.1:9", retries=1, backoff=0.001)
    with pytest.raises(RewardServiceError, match=r"reward service http://127\.0\.0\.1:9: no answer after 2 tries: ConnectError"):
        score_all(service, ROWS)
    assert not service.healthy()


def test_a_connection_cut_in_the_middle_of_an_answer(liar):
    def cut():
        raise ConnectionAbortedError

    liar.server.handle_error = lambda *_: None
    liar.answers = [cut, (200, GOOD)]
    assert score_all(liar.service(), ROWS) == [1.0, 2.0]


def test_a_changed_model_is_told(liar):
    liar.answers = [(200, GOOD), (200, GOOD), (200, GOOD | {"model": "other"}), (200, GOOD | {"model": "other"})]
    service = liar.service()
    told = []
    with Scorer(service) as scorer:
        for _ in range(4):
            scorer.score(ROWS)
            told.append(scorer.numbers()["model_changed"])
    assert told == [0.0, 0.0, 1.0, 0.0]
    assert service.model == "other"


def test_a_model_that_changes_within_a_batch_is_told(liar):
    liar.answers = [(200, GOOD), (200, GOOD | {"model": "other"})]
    service = liar.service(rows_per_request=2)
    service.score([*ROWS, *ROWS])
    assert service.numbers()["model_changed"] == 1.0


@pytest.mark.parametrize(
    ("health", "well"),
    [
        ((200, {"ready": True}), True),
        ((200, {"ready": False}), False),
        ((503, {"ready": True}), False),
        ((200, b"?"), False),
        ((200, []), False),
    ],
)
def test_healthy(liar, health, well):
    liar.health = health
    assert liar.service().healthy() is well


# ---------------------------------------------------------------- the breaker


def test_a_service_that_is_down_is_left_alone_for_a_while(liar):
    liar.answers = [(500, {"detail": "broken"})]
    service = liar.service(breaker_failures=2, breaker_seconds=0.4)
    for _ in range(2):
        with pytest.raises(RewardServiceError, match="status 500"):
            service.score(ROWS)
    assert service.breaker.state == "open"
    with pytest.raises(RewardServiceError, match=r"it failed 2 times in a row and is left alone for another 0 s; status 500: broken"):
        service.score(ROWS)
    assert len(liar.asked) == 2, "an open breaker asks nothing"
    time.sleep(0.45)
    with pytest.raises(RewardServiceError, match="status 500"):
        service.score(ROWS)
    assert service.breaker.state == "open", "one failed trial is enough"
    time.sleep(0.45)
    liar.answers = [(200, GOOD)]
    assert service.score(ROWS) == [1.0, 2.0]
    assert service.breaker.state == "closed"


def test_the_callers_mistakes_open_no_breaker(liar):
    liar.answers = [(422, {"detail": "no"})]
    service = liar.service(breaker_failures=1)
    for _ in range(2):
        with pytest.raises(ConfigError, match="status 422"):
            service.score(ROWS)


# ---------------------------------------------------------------- stop, threads, other processes


def test_a_stop_does_not_wait_for_the_answer(liar):
    def slow():
        time.sleep(2.0)
        return 503, {}

    liar.answers = [slow]
    begin = time.monotonic()
    with Scorer(liar.service(retries=50, backoff=0.5)) as scorer:
        with pytest.raises(Stopped):
            scorer.score(ROWS, should_stop=lambda: time.monotonic() > begin + 0.2)
        assert time.monotonic() - begin < 1.0
        liar.answers = [(200, GOOD)]
        assert scorer.score(ROWS) == [1.0, 2.0]
        asked = len(liar.asked)
        time.sleep(2.2)
    assert len(liar.asked) == asked, "what was stopped is not tried again"


def test_services_of_an_ensemble_are_asked_at_the_same_time(liar):
    together = threading.Barrier(2)

    def both():
        together.wait(5)
        return 200, GOOD

    liar.answers = [both]
    assert score_all(Ensemble([liar.service(retries=0), liar.service(retries=0)]), ROWS) == [1.0, 2.0]


def test_a_service_in_a_combination_is_named(liar):
    liar.answers = [(500, {"detail": "broken"})]
    reward = Weighted({"length": (lambda p, c, a: len(c), 0.1), "style": (liar.service(), 1.0)})
    with pytest.raises(RewardServiceError, match=rf"part 'style': reward service {liar.url}: status 500"):
        score_all(reward, ROWS)


def test_it_crosses_to_other_processes(liar):
    service = liar.service(token="t", retries=7)
    service.score(ROWS)
    there = pickle.loads(pickle.dumps(service))
    assert there == service
    assert (there.token, there.retries) == ("t", 7)
    assert there.score(ROWS) == [1.0, 2.0]


# ---------------------------------------------------------------- what can't be


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"timeout": 0}, r"Service\(timeout=0\): that is too small"),
        ({"timeout": "30"}, r"that is a str"),
        ({"retries": -1}, r"retries=-1"),
        ({"retries": 1.5}, r"that is a float"),
        ({"rows_per_request": 0}, r"rows_per_request=0"),
        ({"shared_mem_name": "a/b"}, r"a name has letters"),
    ],
)
def test_arguments_are_checked(named, message):
    with pytest.raises(ConfigError, match=message):
        Service("http://x", **named)


@pytest.mark.parametrize("answer", [Path("x"), float("nan"), {1, 2}, "\ud800"])
def test_what_json_can_not_hold(liar, answer):
    with pytest.raises(ConfigError, match=r"JSON can't hold a prompt, completion or answer"):
        score_all(liar.service(), [("p", "c", answer)])
    assert liar.asked == []
