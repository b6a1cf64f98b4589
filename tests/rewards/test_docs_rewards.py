"""docs/rewards.md: its Python runs, and its options and defaults are those of the code."""

import re
from dataclasses import fields
from pathlib import Path

from workbench.cli import reward_server
from workbench.rewards import Service
from workbench.rewards.server.options import Serving
from workbench.rewards.wire.messages import MAX_BODY_MIB, About, Health

PAGE = (Path(__file__).parents[2] / "docs/rewards.md").read_text(encoding="utf-8")


def test_its_python_runs():
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)


def test_its_options_are_the_commands():
    known = {option for param in reward_server.params for option in param.opts if option.startswith("--")}
    assert set(re.findall(r"`(--[\w-]+)`", PAGE)) == known
    options = Serving("m")
    assert f"| `--max-batch`, `--max-wait-ms` | {options.max_batch}, {options.max_wait_ms:g} |" in PAGE
    assert f"| `--max-queue` | {options.max_queue} |" in PAGE
    assert f"| `--shared-mem`, `--shared-mem-mib` | none, {options.shared_mem_mib} |" in PAGE
    assert f"| `--host`, `--port` | `{options.host}`, {options.port} |" in PAGE


def test_its_defaults_are_the_clients():
    default = {each.name: each.default for each in fields(Service)}
    assert f'Service("http://127.0.0.1:8080", timeout={default["timeout"]}, retries={default["retries"]})' in PAGE
    assert f"{default['rows_per_request']} rows a request" in PAGE
    assert f"after {default['backoff']} s" in PAGE
    assert f"none is made for {default['breaker_seconds']:g} s" in PAGE
    assert default["breaker_failures"] == 3
    assert "three requests in a row" in PAGE


def test_its_protocol_is_the_servers():
    for path, model in (("/health", Health), ("/model", About)):
        assert "{" + ", ".join(f'"{name}"' for name in model.model_fields) + "}" in re.search(rf"`GET {path}`.*", PAGE)[0]
    assert f"more than {MAX_BODY_MIB} MiB" in PAGE
