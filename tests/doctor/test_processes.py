"""What a run of several processes needs, against limits and folders made up for it."""

import os
import socket
from pathlib import Path

import pytest

from workbench.doctor import Check, processes
from workbench.errors import ClusterError
from workbench.runtime import private

NO_LIMIT = processes.resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "status", "found"),
    [
        ((65536, 65536), "ok", "65536 a process"),
        ((NO_LIMIT, NO_LIMIT), "ok", "65536 a process"),
        ((1024, 1048576), "ok", "1024 a process, up to 65536 for Ray's"),
        ((1024, 4096), "ok", "1024 a process, up to 4096 for Ray's"),
        ((1024, 1024), "warning", "1024 a process; Ray wants 4096"),
        ((1024, 2048), "warning", "1024 a process, up to 2048 for Ray's; Ray wants 4096"),
    ],
)
def test_open_files(limits, status, found):
    check = processes.open_files(limits)
    assert (check.status, check.found) == (status, found)
    assert ("--ulimit nofile=65536" in check.fix) == (status == "warning")


@pytest.mark.parametrize("folder", ["sys/fs/cgroup", "sys/fs/cgroup/pids"], ids=["v2", "v1"])
def test_threads_of_a_control_group(tmp_path, monkeypatch, folder):
    monkeypatch.setattr(processes.resource, "getrlimit", lambda _: (NO_LIMIT, NO_LIMIT))
    assert processes.threads(tmp_path) == Check("threads", "ok", "not limited")
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "pids.max").write_text("2048\n")
    (tmp_path / folder / "pids.current").write_text("1500\n")
    check = processes.threads(tmp_path)
    assert (check.status, check.found) == ("warning", "548 left of the control group's limit; Ray, torch and the engine take hundreds")
    assert "--pids-limit=-1" in check.fix
    (tmp_path / folder / "pids.current").write_text("48\n")
    assert processes.threads(tmp_path) == Check("threads", "ok", "2000 left of the control group's limit")
    (tmp_path / folder / "pids.max").write_text("max\n")
    assert processes.threads(tmp_path).found == "not limited"


@pytest.mark.parametrize(("user", "found"), [(1000, "1500 allowed by ulimit -u"), (0, "not limited")])
def test_threads_of_a_user(tmp_path, monkeypatch, user, found):
    monkeypatch.setattr(processes.resource, "getrlimit", lambda _: (1500, 1500))
    monkeypatch.setattr(processes.os, "geteuid", lambda: user)
    assert processes.threads(tmp_path).found == found


def test_a_folder_whose_name_leaves_no_room_for_sockets(tmp_path, monkeypatch):
    """The doctor refuses what a start of Ray refuses."""
    assert processes.sockets(Path("/tmp")).status == "ok"
    deep = tmp_path / ("x" * 40)
    deep.mkdir()
    check = processes.sockets(deep)
    assert (check.status, check.fix) == ("error", "set TMPDIR=/tmp before the kernel starts")
    monkeypatch.setattr(private.tempfile, "gettempdir", lambda: str(deep))
    with pytest.raises(ClusterError, match="longer than 40 characters"):
        private._folder()


def test_a_folder_that_can_not_be_written_to(monkeypatch):
    monkeypatch.setattr(processes.os, "access", lambda path, mode: False)
    check = processes.sockets(Path("/tmp"))
    assert (check.status, check.found) == ("error", f"/tmp/workbench-{os.getuid()} can't be written to")


@pytest.mark.parametrize("address", [None, "", "local"])
def test_no_cluster(address):
    assert processes.cluster({} if address is None else {"RAY_ADDRESS": address}) == []


def test_the_cluster_of_the_environment():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert processes.cluster({"RAY_ADDRESS": address}) == [Check("RAY_ADDRESS", "ok", f"{address} answers; runs go there")]
    (silent,) = processes.cluster({"RAY_ADDRESS": address})
    assert (silent.status, silent.found) == ("error", f"nothing answers at {address} (Connection refused), and runs go there")
    assert "unset RAY_ADDRESS" in silent.fix


@pytest.mark.parametrize(
    ("address", "words"), [("ray://10.0.0.1:10001", "a Ray client runs the driver"), ("10.0.0.1", "that is no address")]
)
def test_an_address_that_is_none(address, words):
    (check,) = processes.cluster({"RAY_ADDRESS": address})
    assert check.status == "error"
    assert words in check.found


def test_the_ray_of_this_machine():
    assert [check.status for check in processes.cluster({"RAY_ADDRESS": "auto"})] == ["ok"]


def test_the_doctor_asks_all_of_it(tmp_path):
    assert [check.name for check in processes.examine({}, tmp_path)] == ["open files", "threads", "Ray's folder"]
