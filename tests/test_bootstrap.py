"""scripts/bootstrap.py: which Python, which wheels, and what it says where it can't go on."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "scripts/bootstrap.py")
bootstrap = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bootstrap)


def test_find_links_of_uv_then_of_pip(monkeypatch, tmp_path):
    pip = [sys.executable, "-m", "pip"]
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    (tmp_path / "pip.conf").write_text("[global]\nfind-links = /wheels/a /wheels/b\n")
    assert bootstrap.find_links(pip) == ["/wheels/a", "/wheels/b"]
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels/c")
    assert bootstrap.find_links(pip) == ["/wheels/c"]
    monkeypatch.setenv("UV_FIND_LINKS", "/wheels/d,/wheels/e")
    assert bootstrap.find_links(pip) == ["/wheels/d", "/wheels/e"]


def fake_python(folder: Path, name: str, answer: str) -> Path:
    """An interpreter that gives ``answer`` when it is asked for its version."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return path


def test_a_fitting_python_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    fake_python(tmp_path, "python3", "echo 3 9")
    fake_python(tmp_path, "python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    fake_python(tmp_path, "python3.11", "echo 3 11")
    assert bootstrap.fitting_python("python3") == "python3.11"
    fake_python(tmp_path, "python3", "echo 3 13")
    assert bootstrap.fitting_python("python3") == "python3"


def test_no_python_fits(monkeypatch, tmp_path):
    monkeypatch.setattr(bootstrap, "version_of", {"python3": (3, 9), "python3.13": None}.get)
    with pytest.raises(SystemExit, match=r"Python 3.11 to 3.13 is needed and was not found \(python3 is 3.9\)\n  fix: install one"):
        bootstrap.fitting_python("python3")


def test_no_venv_module(tmp_path):
    python = fake_python(tmp_path, "python3", 'case "$2" in *ensurepip*) exit 1;; *) echo 3 11;; esac')
    with pytest.raises(SystemExit, match=r"has no venv module.*\n  fix: sudo apt-get install python3.11-venv"):
        bootstrap.make_venv(tmp_path / "venv", str(python))
    assert not (tmp_path / "venv").exists()


def test_a_disk_that_is_too_small(monkeypatch, tmp_path):
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9e9, 7e9, 2e9))
    with pytest.raises(SystemExit, match=r"needs about 3.5 GB, its disk has 2.0 GB free\n  fix: free some space"):
        bootstrap.say_size(1e9, tmp_path)


def test_size_of_the_download(capsys, tmp_path):
    uv = fake_python(tmp_path, "uv", "echo ' + numpy==2.3.5\n + absent==1.0\n ~ rl-workbench==0.1.0\n - gone==1' >&2")
    numpy = bootstrap.download_bytes([str(uv)])
    assert 15e6 < numpy < 25e6  # a wheel of numpy
    bootstrap.say_size(numpy * 50, tmp_path)
    assert re.fullmatch(r"setup: about 0.\d GB|setup: about 1.0 GB", capsys.readouterr().out.split(" to download")[0])


def test_without_a_compiler_pycosat_is_left_out(monkeypatch, tmp_path, capsys):
    python = sys.executable
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.left_out(python) == ["pycosat"]
    assert "no C compiler" in capsys.readouterr().out
    fake_python(tmp_path, "gcc", "")
    assert bootstrap.left_out(fake_python(tmp_path, "has_headers", "exit 0")) == []
    assert bootstrap.left_out(fake_python(tmp_path, "has_none", "exit 1")) == ["pycosat"]


def test_an_environment_that_is_not_usable(tmp_path):
    assert not bootstrap.usable(tmp_path)
    (tmp_path / "bin").mkdir()
    fake_python(tmp_path / "bin", "pip", "")
    fake_python(tmp_path / "bin", "python", "echo 3 12")
    assert bootstrap.usable(tmp_path)
    fake_python(tmp_path / "bin", "python", "echo 3 10")
    assert not bootstrap.usable(tmp_path)
