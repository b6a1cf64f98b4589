"""The small model as GPUs like it."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def gpu_model(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small model in bfloat16, with heads of 64; made on the CPU."""
    return like_gpus(small_model, tmp_path_factory.mktemp("gpu-model"))


def like_gpus(small_model: Path, path: Path) -> Path:
    """The small model as GPU kernels like it, in ``path``."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    config = AutoConfig.from_pretrained(small_model)
    config.hidden_size, config.head_dim = 256, 64
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(path)
    PreTrainedTokenizerFast.from_pretrained(small_model).save_pretrained(path)
    return path
