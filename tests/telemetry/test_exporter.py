"""The exporter over HTTP: both formats as Prometheus' own parsers read them, ports and threads given back, and a real run scraped."""

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import URLError

import pytest

from tests.telemetry.scrapes import OPENMETRICS, everything, page, scraped, table
from tests.telemetry.streams import a_step
from tests.telemetry.test_sampler import Place
from tests.test_run import make
from workbench.errors import ConfigError
from workbench.events import EventLog
from workbench.records import Load, Notice
from workbench.run import Run
from workbench.telemetry.exporter import Exporter, endpoint, export
from workbench.telemetry.sampler import Sampler

ANY = ("127.0.0.1", 0)


def threads() -> set[str]:
    """Names of those that answer scrapes, or hold a client."""
    return {one.name for one in threading.enumerate() if one.name.startswith("prometheus-") or "process_request" in one.name}


def until(test: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end
        time.sleep(0.01)


def told(log: EventLog) -> None:
    """What a run that says everything says, into a log; its clock is now's."""
    for event in everything().events:
        log.emit(event.record, role=event.role, phase=event.phase, device=event.device)


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
def test_prometheus_parsers_read_what_is_served(accept: str) -> None:
    log = EventLog()
    exporter = Exporter(log, 'a "run"\\', ANY)
    told(log)
    families = scraped(exporter.url, accept)
    exporter.close()
    assert {sample.labels["run"] for family in families for sample in family.samples} == {'a "run"\\'}
    kinds = {family.name: family.type for family in families}
    assert kinds["workbench_device_power_watts"] == "gauge"
    assert kinds["workbench_phase_seconds"] == "histogram"
    assert kinds["workbench_tokens"] == "counter"
    assert len(families) > 60
    said = table(families)
    assert said["workbench_device_temperature_celsius gpu=0 node=node1"] == 64
    assert said["workbench_tokens_total kind=completion"] == 400


def test_one_that_never_tells_an_empty_family() -> None:
    exporter = Exporter(EventLog(), "a-run", ANY)
    assert page(exporter.url) == ""
    exporter.close()


def test_two_in_one_process_do_not_meet() -> None:
    logs = EventLog(), EventLog()
    exporters = [Exporter(log, f"run-{number}", ANY) for number, log in enumerate(logs)]
    logs[0].emit(a_step(1, kl=0.5))
    logs[1].emit(a_step(7, kl=0.25))
    said = [scraped(exporter.url) for exporter in exporters]
    for exporter in exporters:
        exporter.close()
    assert [table(families)["workbench_kl_nats"] for families in said] == [0.5, 0.25]
    runs = [{sample.labels["run"] for family in families for sample in family.samples} for families in said]
    assert runs == [{"run-0"}, {"run-1"}]


def test_a_closed_one_gives_back_its_port_and_its_threads_and_hears_nothing() -> None:
    log = EventLog()
    exporter = export(log, "a-run", 0)
    assert exporter is not None
    assert exporter.url is not None
    assert [event.data["text"] for event in log.events] == [f"Prometheus finds the run's numbers at {exporter.url}"]
    port = int(exporter.url.split(":")[2].split("/")[0])
    silent = socket.create_connection(("127.0.0.1", port))  # a client that never says what it wants
    until(lambda: len(threads()) == 2)
    url = exporter.url
    began = time.monotonic()
    exporter.close()
    exporter.close()  # twice is harmless
    assert time.monotonic() - began < 2
    assert threads() == set()
    assert exporter.url is None
    silent.close()
    log.emit(Notice("heard by nobody"))
    with pytest.raises(URLError):
        page(url)
    again = Exporter(log, "a-run", ("127.0.0.1", port))
    assert again.url == url
    again.close()


def test_a_client_that_goes_away_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    log = EventLog()
    exporter = Exporter(log, "a-run", ANY)
    told(log)
    port = int((exporter.url or "").split(":")[2].split("/")[0])
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # it hangs up at once
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert table(scraped(exporter.url))["workbench_step"] == 2
    exporter.close()
    assert capsys.readouterr() == ("", "")


def test_a_port_in_use_is_refused_with_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(ANY)
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127.0.0.1:{port}.*Address already in use(.|\n)*a port that is free, 0 for any"):
            export(EventLog(), "a-run", port)
    assert threads() == set()


@pytest.mark.parametrize(
    ("asked", "where"),
    [(9400, ("127.0.0.1", 9400)), (0, ANY), ("0.0.0.0:9400", ("0.0.0.0", 9400)), ("[::1]:80", ("::1", 80)), ("node7:0", ("node7", 0))],
)
def test_where(asked: int | str, where: tuple[str, int]) -> None:
    assert endpoint(asked) == where


@pytest.mark.parametrize(
    "asked",
    [
        True,
        9400.0,
        -1,
        70000,
        "",
        "9400",
        "localhost",
        ":9400",
        "a:b",
        "http://a:9400",
        "a:1/x",
        "me@a:1",
        "a:1#x",
        " a:1",
        None,
        "a..b:80",
        "x" * 64 + ":80",
        "\0:80",
    ],
)
def test_what_is_no_port_and_no_address(asked: object) -> None:
    with pytest.raises(ConfigError, match=r"prometheus=.*\n  fix: write a port such as 9400"):
        endpoint(asked)  # type: ignore[arg-type]


def test_an_address_for_all_networks_is_told_as_this_machine_reaches_it() -> None:
    exporter = Exporter(EventLog(), "a-run", ("0.0.0.0", 0))
    assert (exporter.url or "").startswith("http://127.0.0.1:")
    assert page(exporter.url) == ""
    exporter.close()


def test_a_run_is_scraped_while_it_trains(free_process: None, small_model: Path, tmp_path: Path) -> None:
    """A tiny run on the CPU, its load by a real sampler; then the same run goes on in another, as after a crash."""
    run = make(small_model, tmp_path, trackers=(), prometheus=0, name="scraped")
    assert run.metrics_url is None
    seats = [Place(role, "cpu:0", os.getpid()) for role in ("actor", "rollout")]
    list(run.train(2))
    (notice,) = [event.data["text"] for event in run.events if "Prometheus" in event.data.get("text", "")]
    assert notice.endswith(f" {run.metrics_url}")
    with Sampler({"cpu:0": None}, seats, run._training.log.emit, hz=4):
        until(lambda: sum(isinstance(event.record, Load) and event.record.role_busy[0] is not None for event in run.events) > 1)
        families = scraped(run.metrics_url)
    said = table(families)
    assert {sample.labels["run"] for family in families for sample in family.samples} == {run.path.name}
    assert (said["workbench_step"], said["workbench_steps_total"], said["workbench_steps_wanted"]) == (2, 2, 2)
    assert said["workbench_reward_mean"] == run.steps[-1].reward_mean
    assert said["workbench_tokens_total kind=completion"] == sum(step.tokens_completion for step in run.steps)
    assert said["workbench_held_out_step"] == 2
    assert said["workbench_syncs_total mode=adapter"] == 3
    assert said["workbench_phase_seconds_sum phase=rollout"] == pytest.approx(sum(step.phase_seconds["rollout"] for step in run.steps))
    assert said["workbench_run_state state=finished"] == 1
    bubbles = run.bubbles()
    worked = {role: said[f"workbench_device_busy_seconds_total gpu=cpu:0 node=local role={role}"] for role in ("actor", "rollout")}
    assert worked == pytest.approx({role: bubbles.devices[0].busy_seconds[role] for role in worked})
    assert said["workbench_device_memory_used_bytes gpu=cpu:0 node=local"] > 10**8
    assert "workbench_role_busy_ratio gpu=cpu:0 node=local role=actor, rollout" in said
    assert "workbench_device_power_watts gpu=cpu:0 node=local" not in said
    url = run.metrics_url
    run.close()
    assert run.metrics_url is None
    assert threads() == set()
    with pytest.raises(URLError):
        page(url)
    again = Run.restore(run.path, task=run.plan.task)
    assert again.plan.prometheus == 0
    list(again.train(1))
    said = table(scraped(again.metrics_url))
    again.close()
    assert (said["workbench_step"], said["workbench_steps_total"]) == (3, 1)
