"""Families that are refused before anything is loaded: a folder with a configuration alone is enough to tell."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rollout.families import CHANGES, SIZES
from workbench.errors import ConfigError
from workbench.models.families import check_family, skeleton
from workbench.models.lora import LoRA

MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
LONG_ROPE = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 16, "long_factor": [2.0] * 16, "factor": 2.0}


def configured(family: str, folder: Path, **more: Any) -> Path:
    """A folder with the configuration of a model, and no weights."""
    from transformers import AutoConfig

    AutoConfig.for_model(family, **{**SIZES, **CHANGES.get(family, {}), **more}).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral", "phi3", "smollm3", "olmo2", "glm4"])
def test_families_with_full_attention_are_let_pass(tmp_path: Path, family: str) -> None:
    path = configured(family, tmp_path)
    for mode in ("adapter", "merged", "zero_copy"):
        check_family(path, LoRA(), mode, "cpu")
    assert {parameter.device.type for parameter in skeleton(path).parameters()} == {"meta"}


def test_long_positions_can_not_be_computed_without_weights_and_are_let_pass(tmp_path: Path) -> None:
    path = configured("phi3", tmp_path, rope_parameters=LONG_ROPE, original_max_position_embeddings=512)
    with pytest.raises(RuntimeError), torch.no_grad():  # as is_told calls it
        skeleton(path)(input_ids=torch.zeros(1, 2, dtype=torch.long, device="meta"), use_cache=False)
    check_family(path, LoRA(), "adapter", "cpu")


@pytest.mark.parametrize(
    ("family", "found"),
    [
        ("gemma2", "its layers attend within a sliding window"),
        ("nemotron", "doesn't pass on to its attention where rows begin"),
        ("qwen3_moe", r"keeps all experts of a layer in one parameter \(model.layers.0.mlp.experts\)"),
        ("bloom", "packed rows would see each other"),
    ],
)
def test_others_are_refused_by_name(tmp_path: Path, family: str, found: str) -> None:
    path = configured(family, tmp_path, **(MOE if family == "qwen3_moe" else {}))
    with pytest.raises(ConfigError, match=found):
        check_family(path, LoRA(), "adapter", "cpu")


def test_what_helps_a_model_with_experts_on_a_gpu(tmp_path: Path) -> None:
    path = configured("qwen3_moe", tmp_path, **MOE)
    with pytest.raises(ConfigError, match=r"mode merged: .*\n.*mode: adapter"):
        check_family(path, LoRA(), "merged", "cuda")
    with pytest.raises(ConfigError, match=r"LoRA\(targets=\('q_proj', 'k_proj', 'v_proj', 'o_proj'\)\)"):
        check_family(path, LoRA(), "adapter", "cuda")
    check_family(path, LoRA(targets=("q_proj", "k_proj", "v_proj", "o_proj")), "adapter", "cuda")
    with pytest.raises(ConfigError, match=r"mode full: .*experts\), which vLLM's tables don't name\n  fix: use a family without"):
        check_family(path, None, "full", "cuda")
