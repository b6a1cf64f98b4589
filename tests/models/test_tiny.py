"""The model made on the spot: an ordinary checkpoint folder, its tokenizer included."""

from pathlib import Path

import pytest
import torch

from workbench.errors import ConfigError
from workbench.models.tiny import Shape, build, build_tokenizer, save, vocabulary

PIECES = ("sort ", "=", *"abcd", "\n")


def test_the_vocabulary_is_what_the_texts_are_made_of() -> None:
    assert vocabulary([("sort ba=", "ab"), ("sort ca=", "ac")]) == ("sort ", "=", "a", "b", "c")
    assert vocabulary([("ba=", "ab"), ("ca=", "ac")]) == ("=", "a", "b", "c")
    assert vocabulary([("ab", "c"), ("ad", "c")]) == ("a", "b", "c", "d")  # a start of one character is that character


def test_a_text_is_cut_into_its_pieces() -> None:
    tokenizer = build_tokenizer(PIECES)
    # <pad> 0, <eos> 1, <unk> 2, then the pieces in their order
    assert tokenizer("sort dab=\n").input_ids == [3, 8, 5, 6, 4, 9]
    assert tokenizer.decode([3, 8, 5, 6, 4, 9]) == "sort dab=\n"
    assert tokenizer("sort").input_ids == [2, 2, 2, 2]
    assert tokenizer.decode([5, 6, 1, 0], skip_special_tokens=True) == "ab"
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id) == (0, 1, None)
    assert len(tokenizer) == 10


def test_the_longest_piece_wins() -> None:
    tokenizer = build_tokenizer(("a", "ab", "ab.", "."))
    assert tokenizer("ab.aab").input_ids == [5, 3, 4]


def test_pieces_that_are_none() -> None:
    for pieces in (("a", "a"), ("a", ""), ("<eos>",)):
        with pytest.raises(ConfigError, match="a piece is empty, there twice, or a special token"):
            build_tokenizer(pieces)


@pytest.mark.parametrize("loader", ["AutoTokenizer", "PreTrainedTokenizerFast"])
def test_a_saved_model_loads_as_any_other(loader: str, tmp_path: Path) -> None:
    import transformers

    tokenizer, model = build_tokenizer(PIECES), build(10, seed=3)
    save(model, tokenizer, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    ids = getattr(transformers, loader).from_pretrained(tmp_path)("sort cab=").input_ids
    assert ids == [3, 7, 5, 6, 4]
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert again.dtype == torch.float32
    assert again.generation_config.eos_token_id == again.config.eos_token_id == 1
    with torch.no_grad():
        assert torch.equal(again(torch.tensor([ids])).logits, model.eval()(torch.tensor([ids])).logits)


def test_saving_leaves_the_progress_bars_as_they_were(tmp_path: Path) -> None:
    from transformers.utils import logging

    save(build(10, Shape(layers=1)), build_tokenizer(PIECES), tmp_path)
    assert logging.is_progress_bar_enabled()


def test_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = build(10, Shape(layers=1), seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = build(10, Shape(layers=1), seed=5).state_dict(), build(10, Shape(layers=1), seed=6).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


def test_its_size() -> None:
    parameters = sum(p.numel() for p in build(31).parameters())
    # per layer: q and o 192 x 192, k and v 192 x 64, three of 192 x 512, two norms; two tables of 31 x 192 and a norm
    assert parameters == 4 * (2 * 192 * 192 + 2 * 192 * 64 + 3 * 192 * 512 + 2 * 192) + 2 * 31 * 192 + 192 == 1_586_496


def test_shapes_that_no_engine_takes() -> None:
    with pytest.raises(ConfigError, match=r"Shape\(heads=6, kv_heads=4, head_dim=32\): heads are shared out evenly"):
        Shape(kv_heads=4)
    with pytest.raises(ConfigError, match="head_dim=48"):
        Shape(head_dim=48)
