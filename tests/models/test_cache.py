"""The cache of models survives damage, crashes and company."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import ConfigError
from workbench.manifest import NAME as MANIFEST
from workbench.manifest import damage
from workbench.models.cache import Make, cache_folder, kept


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def silent(share: float, note: str) -> None:
    """No progress."""


def two_files(folder: Path) -> dict[str, Any]:
    """A model, as far as the cache knows."""
    (folder / "config.json").write_text('{"layers": 2}')
    (folder / "model.safetensors").write_bytes(b"weights")
    return {"loss": 0.5}


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir())


def test_it_is_made_once() -> None:
    told: list[tuple[float, str]] = []
    folder = kept("m", two_files, lambda *what: told.append(what))
    assert folder == cache_folder() / "models" / "m"
    assert told == [(1.0, f"saved in {folder}")]
    told.clear()
    assert kept("m", lambda folder: pytest.fail("made again"), lambda *what: told.append(what)) == folder
    assert told == [(1.0, "from the cache")]


def test_the_manifest_lists_the_files_and_the_facts() -> None:
    manifest = json.loads((kept("m", two_files, silent) / MANIFEST).read_text())
    # echo -n weights | sha256sum
    assert manifest["files"]["model.safetensors"] == "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c"
    assert manifest["files"].keys() == {"config.json", "model.safetensors"}
    assert manifest["loss"] == 0.5


@pytest.mark.parametrize(
    ("name", "harm", "said"),
    [
        ("model.safetensors", lambda path: path.write_bytes(b"weightz"), "model.safetensors is not as it was written"),
        ("model.safetensors", lambda path: path.write_bytes(b"wei"), "model.safetensors is not as it was written"),
        ("config.json", Path.unlink, "config.json is missing"),
        (MANIFEST, Path.unlink, f"{MANIFEST} is missing"),
        (MANIFEST, lambda path: path.write_text("{"), f"{MANIFEST} can't be read"),
        (MANIFEST, lambda path: path.write_text("[]"), f"{MANIFEST} can't be read"),
    ],
)
def test_a_damaged_entry_is_made_again(name: str, harm: Any, said: str, cache: Path) -> None:
    told: list[tuple[float, str]] = []
    folder = kept("m", two_files, silent)
    harm(folder / name)
    with pytest.warns(UserWarning, match=rf"is damaged \({said}.*making it again"):
        assert kept("m", two_files, lambda *what: told.append(what)) == folder
    assert told[0][0] == 0.0
    assert "is damaged" in told[0][1]
    assert damage(folder) is None
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert entries(cache) == ["m"]


def test_an_interrupt_leaves_nothing_behind(cache: Path) -> None:
    def stop(folder: Path) -> dict[str, Any]:
        two_files(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept("m", stop, silent)
    assert entries(cache) == []


def test_what_killed_processes_left_is_cleared_after_a_day(cache: Path) -> None:
    old, new = cache / "models" / ".making-old", cache / "models" / ".making-new"
    for folder in (old, new):
        (folder / "deep").mkdir(parents=True)
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    kept("m", two_files, silent)
    assert entries(cache) == [".making-new", "m"]


def meanwhile(other: Make) -> Make:
    """What makes the model while another process, which makes it by ``other``, is quicker."""

    def make(folder: Path) -> dict[str, Any]:
        other(kept("m", two_files, silent))
        return two_files(folder)

    return make


def test_of_two_at_once_the_first_to_end_stays(cache: Path) -> None:
    quicker: list[int] = []
    folder = kept("m", meanwhile(lambda made: {"": quicker.append(made.stat().st_ino)}), silent)
    assert [folder.stat().st_ino] == quicker
    assert damage(folder) is None
    assert entries(cache) == ["m"]


def test_what_came_up_damaged_meanwhile_is_replaced(cache: Path) -> None:
    folder = kept("m", meanwhile(lambda made: {"": (made / "config.json").write_text("{}")}), silent)
    assert damage(folder) is None
    assert entries(cache) == ["m"]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("WORKBENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "rl-workbench"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path.home() / ".cache" / "rl-workbench"


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"file/models: can't be written: .*\n  fix: set WORKBENCH_CACHE"):
        kept("m", two_files, silent)
