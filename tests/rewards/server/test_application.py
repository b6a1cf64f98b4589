"""The reward server as a process: what it answers, under load, and with what it is refused. One server for most tests."""

import asyncio
import contextlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.rewards.serving import serving
from workbench.errors import ConfigError, RewardServiceError
from workbench.rewards import RewardModel, Scorer, Service, score_all, tiny_reward_model
from workbench.rewards.wire.shared_memory import SHM

TOKEN = "sesame"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
BLOCK = f"wb-test-server-{os.getpid()}"
ROWS = [(f"prompt {number}", "completion " * (number % 5), None) for number in range(24)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_reward_model(tmp_path_factory.mktemp("served"), chat=True)


@pytest.fixture(scope="module")
def server(folder):
    """A reward model, with a token and shared memory."""
    with serving(
        folder, "--token", TOKEN, "--dtype", "float32", "--shared-mem", BLOCK, "--shared-mem-mib", 1, "--max-wait-ms", 20
    ) as running:
        yield running


@pytest.fixture(scope="module")
def plain():
    """A function, without a token."""
    with serving("serving:letters", "--max-wait-ms", 100) as running:
        yield running


@pytest.fixture(scope="module")
def expected(folder):
    return score_all(RewardModel(folder, dtype="float32"), ROWS)


@pytest.fixture(scope="module")
def name(folder):
    """What the server of ``folder`` answers as."""
    return f"{folder}@{RewardModel(folder, dtype='float32').fingerprint()}"


def post(server, body, headers=HEADERS):
    kind = {"content": body} if isinstance(body, bytes) else {"json": body}
    return httpx.post(f"{server.url}/score", headers=headers, trust_env=False, **kind)


# ---------------------------------------------------------------- answers


def test_the_server_scores_as_the_model_does(server, expected, name):
    service = Service(server.url, token=TOKEN, rows_per_request=10)
    with Scorer(service) as scorer:
        assert scorer.score(ROWS) == pytest.approx(expected, abs=1e-5)
        assert scorer.numbers()["tries"] == 1.0
    assert service(*ROWS[3]) == pytest.approx(expected[3], abs=1e-5)
    assert service.model == name


def test_messages_go_through(server, folder):
    rows = [([{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}], "hi", {"any": ["json", 1]})]
    assert score_all(Service(server.url, token=TOKEN), rows) == pytest.approx(
        score_all(RewardModel(folder, dtype="float32"), rows), abs=1e-5
    )


def test_token_ids_in_the_request(server, folder, expected, name):
    model = RewardModel(folder, dtype="float32")
    model.prepare("cpu")
    answer = post(server, {"ids": [model.dialogue.ids(row) for row in ROWS]}).json()
    assert answer["rewards"] == pytest.approx(expected, abs=1e-5)
    assert answer["model"] == name


def test_health_and_metrics(server, name):
    assert httpx.get(f"{server.url}/health", trust_env=False).json() == {"model": name, "ready": True, "version": "0.1.0"}
    assert Service(server.url).healthy()
    before = server.metric('workbench_reward_rows_total{via="rows"}', HEADERS)
    score_all(Service(server.url, token=TOKEN), ROWS)
    assert server.metric('workbench_reward_rows_total{via="rows"}', HEADERS) == before + len(ROWS)
    assert server.metric("workbench_reward_queue_requests", HEADERS) == 0
    assert server.metric("workbench_reward_queue_rows", HEADERS) == 0
    assert server.metric("workbench_reward_queue_limit_rows", HEADERS) == 8192
    assert server.metric('workbench_reward_requests_total{status="200"}', HEADERS) > 0
    assert server.metric("workbench_reward_request_seconds_count", HEADERS) > 0


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer sesam\xe9"}]
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/score"), ("GET", "/model"), ("GET", "/metrics")])
def test_without_the_token(server, headers, method, path):
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    answer = httpx.request(method, server.url + path, headers=encoded, trust_env=False)
    assert answer.status_code == 401
    assert "Authorization: Bearer TOKEN" in answer.json()["detail"]


def test_a_wrong_token_is_the_callers_mistake(server):
    with pytest.raises(ConfigError, match=r"it refuses the token.*\n  fix: give the server's token: Service\(url, token=\.\.\.\)"):
        score_all(Service(server.url, token="wrong"), ROWS)


def test_the_token_from_the_environment(server, monkeypatch, expected):
    monkeypatch.setenv("WORKBENCH_REWARD_TOKEN", TOKEN)
    service = Service(server.url)
    assert TOKEN not in repr(service)
    assert score_all(service, ROWS) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "Invalid JSON"),
        (b"[]", "Input should be an object"),
        ({}, "give one of rows, ids and shared, here are none"),
        ({"rows": [], "ids": []}, "here are rows and ids"),
        ({"rows": [{"prompt": "p"}]}, "rows.0.completion: Field required"),
        ({"rows": [{"prompt": 1, "completion": "c"}]}, "rows.0.prompt"),
        ({"rows": [{"prompt": "p", "completion": "c", "reference": "r"}]}, "rows.0.reference: Extra inputs are not permitted"),
        ({"ids": [[1], []]}, "token ids of row 1: there are none"),
        ({"ids": [[1, 5000]]}, "token ids of row 0: they are 1 to 5000"),
        ({"ids": [[-1]]}, "they are -1 to -1"),
        ({"ids": [["a"]]}, "ids.0.0"),
        ({"shared": {"block": "x", "slot": 99, "lengths": [1]}}, None),
        ({"rows": [{"prompt": [{"role": "user"}], "completion": "c"}]}, "content"),
    ],
)
def test_bad_input_is_refused_in_plain_words(server, body, message):
    answer = post(server, body)
    assert answer.status_code == (422 if message else 409)
    assert (message or "gone") in answer.json()["detail"]


def test_a_request_that_is_too_large(server):
    answer = post(server, b" " * (64 * 2**20 + 1))
    assert answer.status_code == 413
    assert "at most 64 MiB: send fewer rows" in answer.json()["detail"]

    def chunks():
        for _ in range(65):
            yield b" " * 2**20

    # the server may close a connection that it has answered while the client still writes
    with contextlib.suppress(httpx.WriteError, httpx.ReadError):
        assert httpx.post(f"{server.url}/score", headers=HEADERS, content=chunks(), trust_env=False).status_code == 413


def test_nothing_to_score(server):
    assert post(server, {"rows": []}).json()["rewards"] == []


# ---------------------------------------------------------------- functions


def test_a_function_is_served_with_answers(plain):
    rows = [("p", "banana", "a"), ("p", "banana", "n"), ("p", "", "a")]
    assert score_all(Service(plain.url), rows) == [3.0, 2.0, 0.0]


def test_a_function_takes_no_ids(plain):
    answer = post(plain, {"ids": [[1]]}, {})
    assert answer.status_code == 422
    assert "the reward here is a function of texts" in answer.json()["detail"]


def test_requests_that_arrive_together_are_scored_together(plain):
    before = plain.metric("workbench_reward_batch_rows_count")
    with ThreadPoolExecutor(16) as pool:
        scores = list(pool.map(lambda n: Service(plain.url)("p", "a" * n, "a"), range(16)))
    assert scores == [float(n) for n in range(16)]
    assert plain.metric("workbench_reward_batch_rows_count") - before <= 8, "16 requests of one row"


def test_a_row_that_fails_fails_its_own_request_alone(plain):
    def ask(completion):
        try:
            return Service(plain.url)("p", completion, "a")
        except RewardServiceError as error:
            return str(error)

    before = plain.metric("workbench_reward_errors_total")
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(ask, ["aa"] * 4 + ["!"] + ["a"] * 3))
    assert said[:4] + said[5:] == [2.0] * 4 + [1.0] * 3
    assert "status 500: the reward failed: RewardError: reward letters" in said[4]
    assert "KeyError: 'no score for this'" in said[4]
    assert plain.metric("workbench_reward_errors_total") == before + 1


def until(true):
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_nobody_waits_for_is_not_scored(plain, tmp_path):
    """A client that gave up leaves no work behind in the queue."""
    before = plain.metric('workbench_reward_rows_total{via="rows"}')
    blocker = threading.Thread(target=lambda: Service(plain.url)(str(tmp_path / "begun"), "~3", "a"))
    blocker.start()
    until((tmp_path / "begun").exists)
    with pytest.raises(RewardServiceError, match="did not answer in time"):
        Service(plain.url, timeout=0.2, retries=1, backoff=0.01).score([("p", "a", "a")] * 50)
    blocker.join()
    assert score_all(Service(plain.url), [("p", "a", "a")]) == [1.0]
    assert plain.metric('workbench_reward_rows_total{via="rows"}') == before + 2


def test_a_full_queue_sends_away_and_takes_again(tmp_path):
    rows = {"rows": [{"prompt": "p", "completion": "aa", "answer": "a"}] * 3}
    with serving("serving:letters", "--max-queue", 4, "--max-wait-ms", 0) as server, ThreadPoolExecutor(3) as pool:
        blocked = pool.submit(Service(server.url), str(tmp_path / "begun"), "~2", "a")
        until((tmp_path / "begun").exists)
        waiting = pool.submit(post, server, rows)
        until(lambda: server.metric("workbench_reward_queue_rows") == 3)
        refused = post(server, rows)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert "the queue is full: 3 rows wait, 4 may, and here are 3 more; ask again in a second" in refused.json()["detail"]
        patient = Service(server.url, retries=20)
        assert patient.score([("p", "aaa", "a")] * 6) == [3.0] * 6, "larger than the queue, and taken when nobody else waits"
        assert patient.numbers()["tries"] > 1
        assert (waiting.result().json()["rewards"], blocked.result()) == ([2.0] * 3, 0.0)
        assert server.metric('workbench_reward_requests_total{status="503"}') >= 2


# ---------------------------------------------------------------- load


def test_many_threads_at_once(server, expected):
    service = Service(server.url, token=TOKEN, rows_per_request=3)

    def work(_):
        return service.score(ROWS)

    with ThreadPoolExecutor(16) as pool:
        for scores in pool.map(work, range(48)):
            assert scores == pytest.approx(expected, abs=1e-5)


def test_sigterm_lets_what_is_under_way_finish(tmp_path):
    with serving("serving:letters") as server:
        said = []
        asking = threading.Thread(target=lambda: said.append(Service(server.url, retries=0)(str(tmp_path / "begun"), "~1", "1")))
        asking.start()
        until((tmp_path / "begun").exists)
        assert server.end() == 0
        asking.join()
        assert said == [1.0]


# ---------------------------------------------------------------- shared memory


def test_token_ids_do_not_go_through_http(server, expected, monkeypatch):
    sent = []
    real = httpx.Client.request

    def request(self, method, url, **named):
        sent.extend([named["content"]] if method == "POST" else [])
        return real(self, method, url, **named)

    monkeypatch.setattr(httpx.Client, "request", request)
    before = server.metric('workbench_reward_rows_total{via="shared"}', HEADERS)
    long = [(prompt * 20, completion, answer) for prompt, completion, answer in ROWS]
    shared, plain = Service(server.url, token=TOKEN, shared_mem_name=BLOCK), Service(server.url, token=TOKEN)
    assert score_all(shared, ROWS) == pytest.approx(expected, abs=1e-5)
    assert score_all(shared, long) == pytest.approx(score_all(plain, long), abs=1e-5)
    assert server.metric('workbench_reward_rows_total{via="shared"}', HEADERS) == before + 2 * len(ROWS)
    by_memory, by_text = sent[-2], sent[-1]
    assert b"prompt" not in by_memory
    assert len(by_memory) < 250 < 4000 < len(by_text)


def test_a_step_larger_than_a_slot_goes_in_parts(server):
    rows = [("x" * 400, "y" * 90, None)] * 150  # 75,000 tokens; a slot of 1 MiB / 8 holds 32,768
    with Scorer(Service(server.url, token=TOKEN, shared_mem_name=BLOCK)) as scorer:
        scores = scorer.score(rows)
    assert scores == pytest.approx([scores[0]] * 150)


def test_shared_memory_that_the_server_does_not_have(server, plain):
    with pytest.raises(ConfigError, match=r"its block is 'wb-test-server-.*\n  fix: start it with --shared-mem other"):
        score_all(Service(server.url, token=TOKEN, shared_mem_name="other"), ROWS)
    with pytest.raises(ConfigError, match=r"it has no shared memory"):
        score_all(Service(plain.url, shared_mem_name=BLOCK), ROWS)
    answer = post(plain, {"shared": {"block": "x", "slot": 0, "lengths": [1]}}, {})
    assert answer.status_code == 422
    assert "this server has no shared memory" in answer.json()["detail"]


def test_a_service_inside_a_running_loop(server, expected):
    async def cell():
        return await Service(server.url, token=TOKEN).score_rows(ROWS)

    assert asyncio.run(cell()) == pytest.approx(expected, abs=1e-5)


# ---------------------------------------------------------------- death: last, for it ends the server of the tests above


def test_killed_and_started_again_in_the_middle_then_ended(server, expected):
    """kill -9 while clients ask, also through shared memory: retries bring every score, and the stale block is replaced."""
    patient = {"token": TOKEN, "retries": 60, "backoff": 0.2, "timeout": 10.0, "rows_per_request": 4}
    services = [Service(server.url, **patient), Service(server.url, shared_mem_name=BLOCK, **patient)]
    stop, wrong, done, changed = threading.Event(), [], [0, 0], [0.0, 0.0]

    def work(place):
        while not stop.is_set():
            scores = services[place].score(ROWS)
            if scores != pytest.approx(expected, abs=1e-5):
                wrong.append(scores)
            changed[place] += services[place].numbers()["model_changed"]
            done[place] += 1

    threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1)]
    for thread in threads:
        thread.start()
    until(lambda: min(done) >= 2)
    server.kill()
    assert (SHM / BLOCK).exists(), "the dead server's block"
    reached = list(done)
    server.start()
    until(lambda: all(now > then + 2 for now, then in zip(done, reached, strict=True)))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert changed == [0.0, 0.0], "the same weights again"
    assert server.end() == 0
    assert not (SHM / BLOCK).exists()
    assert not services[0].healthy()
