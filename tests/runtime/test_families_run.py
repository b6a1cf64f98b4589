"""Two steps of every family in every mode, each sync proved and each batch seen by the canary: what docs/resharding.md says of them."""

import re
from pathlib import Path

import pytest

from tests.conftest import team_here
from tests.models.test_families import MOE, configured
from tests.rollout.families import made
from tests.runtime.conftest import learn, sample
from workbench.errors import ConfigError
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.tokenizer import Tokenizer
from workbench.rollout.config import MODES, VLLM
from workbench.runtime.plans import WorkerPlan

pytestmark = pytest.mark.usefixtures("free_process")
TRAINED = ("llama", "qwen2", "qwen3", "mistral", "phi3", "glm4", "smollm3", "olmo2")
REFUSED = {
    "gemma2": "sliding window",
    "nemotron": "packed rows would see each other",
    "qwen3_moe": "all experts of a layer in one parameter",
}
# The trainer's model is there before vLLM changes its class (adapter), and is made after it (zero_copy); adapters and weights in parts.
SHORT = {("smollm3", "adapter"), ("olmo2", "zero_copy"), ("glm4", "adapter"), ("phi3", "zero_copy")}


def plan_of(model: Path, mode: str) -> WorkerPlan:
    engine = VLLM(window=256, block_size=32, max_sequences=64, kv_cache_gib=0.05)
    lora = None if mode == "full" else LoRA(rank=4, alpha=8)
    return WorkerPlan(model, lora, Optimizer(), engine, "cpu", "float32", seed=0, mode=mode)


@pytest.mark.parametrize(
    ("family", "mode"),
    [pytest.param(f, mode, marks=() if (f, mode) in SHORT else pytest.mark.long) for f in TRAINED for mode in MODES],
)
def test_two_steps(small_model: Path, tmp_path: Path, family: str, mode: str) -> None:
    team = team_here(plan_of(made(family, tmp_path, Tokenizer(small_model).raw), mode))
    try:
        checksums = []
        for key in range(2):
            learn(team, sample(team, key), rate=1e-3)  # raises SyncError where engine and trainer differ by more than 1e-3 nats
            checksums.append(team.sync(key).checksum)  # raises it where the engine holds other weights
        learn(team, sample(team, 2), rate=1e-3)
    finally:
        team.close()
    assert len(set(checksums)) == 2


@pytest.mark.parametrize("family", REFUSED)
@pytest.mark.parametrize("mode", ["adapter", "zero_copy"])
def test_others_are_refused_before_anything_is_loaded(tmp_path: Path, family: str, mode: str) -> None:
    """The folder has a configuration alone: neither weights nor a tokenizer, which an engine would ask for."""
    path = configured(family, tmp_path, **(MOE if family == "qwen3_moe" else {}))
    with pytest.raises(ConfigError, match=REFUSED[family]):
        team_here(plan_of(path, mode))


def test_the_docs_say_what_is_tried_here() -> None:
    text = (Path(__file__).parents[2] / "docs/resharding.md").read_text()
    rows = {found[0]: found[1] for found in re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)}
    assert {family for family, said in rows.items() if said.startswith("all modes")} == set(TRAINED)
    assert {family for family, said in rows.items() if said.startswith("refused")} == set(REFUSED)
