"""The supervised phase learns, repeats itself, and is kept in the cache (whose own tests are in test_cache.py)."""

import json
from pathlib import Path

import pytest
import torch

from workbench.errors import ConfigError
from workbench.manifest import NAME as MANIFEST
from workbench.models.tiny import Shape
from workbench.models.warm_start import Recipe, ensure, warm_start

SMALL = Shape(hidden=64, layers=1, heads=2, kv_heads=1, feed_forward=64, window=16)
RECIPE = Recipe(name="Echo!", steps=40, batch=16, learning_rate=1e-2, shape=SMALL)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def echo(seed: int, count: int) -> list[tuple[str, str]]:
    """Say the letter again; which letters come depends on the seed."""
    return [(f"say {'abcd'[(seed + n) % 4]}=", "abcd"[(seed + n) % 4]) for n in range(count)]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {name: value.clone() for name, value in load_file(folder / "model.safetensors").items()}  # no views on the file


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir())


def test_it_learns_to_imitate() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = warm_start(echo, RECIPE)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for letter in "abcd":
        ids = tokenizer(f"say {letter}=", return_tensors="pt").input_ids
        said = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=3, do_sample=False)[0, ids.shape[1] :]
        assert said.tolist() == [*tokenizer(letter).input_ids, tokenizer.eos_token_id]


def test_the_second_call_returns_at_once() -> None:
    told: list[tuple[int, int, str]] = []
    first = warm_start(echo, RECIPE, progress=lambda *what: told.append(what))
    assert first.name.startswith("echo--")
    assert told[0] == (0, 40, "building a tiny model")
    assert [done for done, _, _ in told[1:]] == [1, 6, 11, 16, 21, 26, 31, 36, 40, 40]
    assert told[-1] == (40, 40, f"saved in {first}")
    assert "loss" in told[1][2]
    told.clear()
    assert warm_start(echo, RECIPE, progress=lambda *what: told.append(what)) == first
    assert told == [(40, 40, "from the cache")]


def test_the_same_recipe_gives_the_same_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = warm_start(echo, RECIPE)
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "elsewhere"))
    torch.manual_seed(2)
    second = warm_start(echo, RECIPE)
    assert second != first
    assert second.name == first.name
    assert all(torch.equal(value, weights(second)[name]) for name, value in weights(first).items())


@pytest.mark.parametrize(
    "other",
    [
        Recipe(name="Echo!", steps=41, batch=16, learning_rate=1e-2, shape=SMALL),
        Recipe(name="Echo!", steps=40, batch=16, learning_rate=1e-2, shape=SMALL, seed=1),
        Recipe(name="Echo!", steps=40, batch=16, learning_rate=1e-2, shape=Shape(hidden=64, layers=2, heads=2, kv_heads=1, window=16)),
    ],
)
def test_another_recipe_is_another_entry(other: Recipe) -> None:
    assert warm_start(echo, other) != warm_start(echo, RECIPE)


def test_other_demonstrations_are_another_entry() -> None:
    assert warm_start(lambda seed, count: [(prompt, said * 2) for prompt, said in echo(seed, count)], RECIPE) != warm_start(echo, RECIPE)


def test_a_damaged_entry_is_made_again() -> None:
    told: list[tuple[int, int, str]] = []
    folder = warm_start(echo, RECIPE)
    whole = weights(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.warns(UserWarning, match=r"is damaged \(tokenizer.json is missing\): making it again"):
        assert warm_start(echo, RECIPE, progress=lambda *what: told.append(what)) == folder
    assert told[0][:2] == (0, 40)
    assert "is damaged" in told[0][2]
    assert all(torch.equal(value, weights(folder)[key]) for key, value in whole.items())


def test_an_interrupt_leaves_nothing_behind(cache: Path) -> None:
    def stop(done: int, total: int, note: str) -> None:
        if done >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        warm_start(echo, RECIPE, progress=stop)
    assert entries(cache) == []


def test_the_manifest_says_what_it_was_made_of() -> None:
    manifest = json.loads((warm_start(echo, RECIPE) / MANIFEST).read_text())
    assert manifest["recipe"]["steps"] == 40
    assert manifest["recipe"]["shape"]["hidden"] == 64
    assert 0 < manifest["loss"] < 0.2
    assert "model.safetensors" in manifest["files"]


@pytest.mark.parametrize(
    ("demonstrations", "message"),
    [
        (lambda seed, count: echo(seed, 3), r"demonstrations of 'Echo!': 3 came when asked for 640 \(40 steps of 16\)"),
        (lambda seed, count: [("", "a")] * count, "'' -> 'a' has an empty side"),
        (lambda seed, count: [("a", "")] * count, "'a' -> '' has an empty side"),
        (lambda seed, count: [("a" * 12, "b" * 5)] * count, "tokens, and the tiny model's window holds 16"),
    ],
)
def test_demonstrations_that_nothing_is_learnt_from(demonstrations: object, message: str, cache: Path) -> None:
    if "window" in message:  # the prompts' common start would be one token
        demonstrations = lambda seed, count: [("xy"[n % 2] * 12, "b" * 5) for n in range(count)]  # noqa: E731
    with pytest.raises(ConfigError, match=message):
        warm_start(demonstrations, RECIPE)  # type: ignore[arg-type]
    assert not cache.exists() or entries(cache) == []


def test_a_rate_that_blows_up() -> None:
    with pytest.raises(ConfigError, match=r"the loss is nan at step \d+\n  fix: lower the learning rate"):
        warm_start(echo, Recipe(name="e", steps=40, batch=16, learning_rate=1e30, shape=SMALL))
    with pytest.raises(ConfigError, match="each of them is above 0"):
        Recipe(name="e", steps=0)


def test_ensure_names_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Recipe] = []
    monkeypatch.setattr("workbench.models.warm_start.warm_start", lambda pairs, recipe, progress: seen.append(recipe))
    ensure("sorting", echo, seed=4)
    assert seen == [Recipe(name="sorting", seed=4)]
