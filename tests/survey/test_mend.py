"""Mended files: only what changed is written, and the file reads as the new map."""

import json
import os
from pathlib import Path

import pytest

from workbench.errors import StorageError
from workbench.mapping import DeviceMap
from workbench.survey.mend import new_text, rewrite


def mended(text: str, *, is_json: bool = False, **patch) -> str:
    """The text after a patch; it reads as the patched map."""
    new = DeviceMap.parse(text).patched(patch)
    after = new_text(text, new, is_json)
    assert DeviceMap.parse(after.removeprefix("\ufeff")) == new
    return after


TWO = {"devices": [0, 1]}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        pytest.param(
            "# head\nactor: {devices: [0, 9]}  # policy\n\n# second\nref: 0,1   # ref\nreward: cpu\n",
            {"actor": {"devices": [0]}, "reference": {"share": "actor"}},
            "# head\nactor: {devices: [0]}  # policy\n\n# second\nref: share:actor   # ref\nreward: cpu\n",
            id="comments and names",
        ),
        pytest.param(
            "actor:  # policy\n  devices: [0, 9]  # two\n  layout: fsdp\n# tail\nreward_model: cpu\n",
            {"actor": {"devices": [0, 1], "layout": "fsdp"}},
            "# policy\n# two\nactor:\n  devices: [0, 1]\n  layout: fsdp\n# tail\nreward_model: cpu\n",
            id="a block stays one",
        ),
        pytest.param("actor: 0\r\n# x\r\nreward: cpu\r\n", {"actor": TWO}, "actor: 0-1\r\n# x\r\nreward: cpu\r\n", id="CRLF"),
        pytest.param("actor: 0", {"critic": {"share": "actor"}}, "actor: 0\ncritic: {share: actor}", id="no last line break"),
        pytest.param("\ufeffactor: 0\n", {"actor": TWO}, "\ufeffactor: 0-1\n", id="byte-order mark"),
        pytest.param("actor: 0\ncritic: 0  # gone\nreward: cpu\n", {"critic": None}, "actor: 0\nreward: cpu\n", id="a role less"),
        pytest.param("{actor: 0, critic: 0}\n", {"critic": None}, "{actor: 0}\n", id="in braces, the last"),
        pytest.param("{critic: 0, actor: 0}\n", {"critic": None}, "{actor: 0}\n", id="in braces, the first"),
        pytest.param(
            "device_map:\n  # inner\n  actor: 0 # a\n",
            {"actor": TWO, "critic": {"share": "actor"}},
            "device_map:\n  # inner\n  actor: 0-1 # a\n  critic: {share: actor}\n",
            id="wrapper",
        ),
        pytest.param(
            "groups:\n  train: {devices: [0, 1]} # g\nactor: train\nrollout: {device_group: train, tp: 2}\n",
            {"rollout": TWO},
            "groups:\n  train: {devices: [0, 1]} # g\nactor: train\nrollout: {devices: [0, 1]}\n",
            id="one of a group's roles",
        ),
        pytest.param(
            "groups:\n  # about t\n  t: {devices: [0,1,9]}  # keep me\n"
            "actor: {device_group: t, tp: 1} # actor why\nparallelism_config:\n  actor: {dp: 3} # sizes why\n",
            {"actor": {"devices": [0, 1], "dp": 2}},
            "groups:\n  # about t\n  t: {devices: [0, 1]}  # keep me\n"
            "actor: {device_group: t, tp: 1} # actor why\nparallelism_config:\n  actor: {dp: 2} # sizes why\n",
            id="a group's devices, and sizes apart",
        ),
        pytest.param(
            "groups: {t: 0-9}\nactor: t # a\nrollout: {device_group: t, tp: 2}\n",
            {"actor": {"devices": [*range(8)]}, "rollout": {"devices": [*range(8)], "tp": 2}},
            "groups: {t: 0-7}\nactor: t # a\nrollout: {device_group: t, tp: 2}\n",
            id="a group of two roles",
        ),
        pytest.param(
            "critic: 0-1\nparallelism_config:\n  actor: {tp: 2}\n  critic: {tp: 2}\n# c\nactor: 0-1\n",
            {"critic": {"share": "actor"}},
            "critic: share:actor\nparallelism_config:\n  actor: {tp: 2}\n# c\nactor: 0-1\n",
            id="sizes of a role that shares",
        ),
        pytest.param(
            "# c\nactor: &a {devices: [0, 1]}\nrollout: *a # r\n",
            {"rollout": {"devices": [0, 1], "tp": 2}},
            "# c\nactor: &a {devices: [0, 1]}\nrollout: {devices: [0, 1], tp: 2} # r\n",
            id="an alias",
        ),
        pytest.param(
            "actor: >-\n  0,9\n# about the rollout\nrollout: 0-1\n",
            {"actor": {"devices": [0]}},
            "actor: 0\n# about the rollout\nrollout: 0-1\n",
            id="a text in lines of its own",
        ),
        pytest.param(
            "actor: |\n\n  0,9\n\n\nrollout: 0-1\n",
            {"actor": {"devices": [0]}},
            "actor: 0\n\n\nrollout: 0-1\n",
            id="blank lines after it",
        ),
        pytest.param(
            "actor: 0-7 tp8 # all\nrollout: 0\n",
            {"actor": {"devices": [0, 1, 2, 3], "tp": 4}, "rollout": {"devices": [0, 1], "mode": "adapter"}},
            "actor: 0-3 tp4 # all\nrollout: {devices: [0, 1], mode: adapter}\n",
            id="compact where that says all",
        ),
    ],
)
def test_yaml(before, patch, after):
    assert mended(before, **patch) == after


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        (
            '{\n  "actor": {"devices": [0]},\n  "ref_model": "share:actor"\n}\n',
            {"actor": TWO, "critic": {"share": "actor"}},
            '{\n  "actor": {"devices": [0, 1]},\n  "ref_model": "share:actor",\n  "critic": "share:actor"\n}\n',
        ),
        ('{\t"actor": "0", "critic": "0"}', {"critic": None}, '{\t"actor": "0"}'),
        ('{"device_map": {"actor": 0}}', {"actor": TWO}, '{"device_map": {"actor": "0-1"}}'),
    ],
)
def test_json(before, patch, after):
    assert mended(before, is_json=True, **patch) == after
    json.loads(after)


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "map.yaml"
    path.write_text("actor: 0  # policy\n")
    return path


OLD_TEXT = "actor: 0  # policy\n"
OLD, NEW = DeviceMap(actor="0"), DeviceMap(actor="0-1")


def test_the_diff_of_what_was_written(file):
    diff = rewrite(file, OLD, NEW)
    assert diff.splitlines()[3:] == ["-actor: 0  # policy", "+actor: 0-1  # policy"]
    assert file.read_text() == "actor: 0-1  # policy\n"
    assert [one.name for one in file.parent.iterdir()] == ["map.yaml"]


def test_of_a_link_the_file_behind_it_is_written(file, tmp_path):
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    rewrite(link, OLD, NEW)
    assert link.is_symlink()
    assert DeviceMap.load(file) == NEW


def test_permissions_stay(file):
    file.chmod(0o640)
    rewrite(file, OLD, NEW)
    assert file.stat().st_mode & 0o777 == 0o640


def test_it_stays_the_same_file(tmp_path):
    """Hard links and the owner stay; nothing is left beside it; a name as long as names can be is no trouble."""
    path, other = tmp_path / f"{'m' * 250}.yaml", tmp_path / "other.yaml"
    path.write_text("actor: 0-1\n\n# a longer file before\n")
    other.hardlink_to(path)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    before = path.stat()
    rewrite(path, DeviceMap(actor="0-1"), OLD)
    after = path.stat()
    assert (after.st_ino, after.st_uid, after.st_gid, after.st_nlink) == (before.st_ino, before.st_uid, before.st_gid, 2)
    assert other.read_text() == "actor: 0\n\n# a longer file before\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_leaves_the_map_as_it_was(file, monkeypatch):
    monkeypatch.setattr(os, "pwrite", lambda number, data, at, write=os.pwrite: write(number, data[: len(OLD_TEXT)], at))
    with pytest.raises(StorageError, match="it can't be written \\(No space left on device\\)"):
        rewrite(file, OLD, NEW)
    assert file.read_text() == OLD_TEXT


def test_anchors_that_roles_share_are_left_to_people(tmp_path):
    text = "actor: &a {devices: [0, 9]}\nrollout: *a\n"
    with pytest.raises(StorageError, match=r"write by hand:\n    actor: \{devices: \[0\]\}") as refused:
        new_text(text, DeviceMap(actor="0", rollout="0,9"))
    assert "rollout" not in refused.value.fix


def test_a_read_only_file_is_left_alone(file):
    file.chmod(0o444)
    with pytest.raises(StorageError, match="it is read-only\n  fix: chmod u\\+w it"):
        rewrite(file, OLD, NEW)
    assert file.read_text() == "actor: 0  # policy\n"


@pytest.mark.parametrize("text", ["actor: 0-7\n", "no map", "\xff"])
def test_a_file_that_changed_since_it_was_read_is_left_alone(file, text):
    file.write_text(text, encoding="latin-1")
    with pytest.raises(StorageError, match="it has changed since it was read"):
        rewrite(file, OLD, NEW)
    assert file.read_text(encoding="latin-1") == text


def test_a_file_that_is_gone(file):
    file.unlink()
    with pytest.raises(StorageError, match=r"it can't be written \(No such file or directory\)"):
        rewrite(file, OLD, NEW)


def test_a_file_of_somebody_else(file):
    """Root may write anywhere, so it is somebody else for as long as that takes."""
    root = os.geteuid() == 0
    for folder in file.parents if root else ():
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o005)
    file.chmod(0o644 if root else 0o466)
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(StorageError, match="it can't be written"):
            rewrite(file, OLD, NEW)
    finally:
        if root:
            os.seteuid(0)
        file.chmod(0o644)
    assert DeviceMap.load(file) == OLD
