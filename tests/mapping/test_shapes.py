import json
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import ConfigError
from workbench.mapping.model_config import read
from workbench.mapping.shapes import ModelShape, names, shape

LLAMA = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "tie_word_embeddings": False,
}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
# What the hub says of the safetensors files.
PUBLISHED = {
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-34b": 33_743_970_304,
    "llama-70b": 68_976_648_192,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "smollm2": 134_515_008,
}


def config(tmp_path, **changes) -> str:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | changes))
    return str(tmp_path)


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_built_in_shapes_have_the_published_parameters(name, parameters):
    found = shape(f"shape:{name}")
    assert found.parameters == parameters
    assert found.heads * found.head_dim == found.hidden


def test_by_hand():
    # embedding and head 2*100*32, attention 32*(32 + 16 + 16) + 32*32, MLP 3*32*48, two norms of 32 a layer and one at the end
    found = read(LLAMA, "x")
    assert found.parameters == 6400 + 3 * (3072 + 4608 + 64) + 32
    assert read(LLAMA | {"tie_word_embeddings": True}, "x").parameters == found.parameters - 3200
    assert found.weights_gib() == found.parameters * 2 / 2**30
    assert found.weights_gib(4) == 2 * found.weights_gib()
    # q 32+32, k and v 32+16, o 32+32, gate, up and down 32+48
    assert found.lora_parameters(8) == 8 * 3 * (64 + 48 + 48 + 64 + 3 * 80)
    assert found.lora_parameters(8, all_linear=False) == 8 * 3 * (64 + 48)
    assert round(shape("shape:llama-7b").weights_gib(), 2) == 12.55


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention_bias": True},
        {"model_type": "mistral", "head_dim": 16},
        {"model_type": "qwen2"},
        {"model_type": "qwen2", "tie_word_embeddings": True},
        {"model_type": "qwen3", "head_dim": 16},
        {"model_type": "mixtral", "num_local_experts": 4},
        {"model_type": "qwen3_moe", "head_dim": 8, **MOE, "decoder_sparse_step": 2},
        {"model_type": "qwen3_moe", "head_dim": 8, **MOE, "mlp_only_layers": [0]},
        {"model_type": "qwen2_moe", **MOE, "shared_expert_intermediate_size": 40},
        {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 3, "n_positions": 20, "tie_word_embeddings": True},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())) or "llama",
)
def test_parameters_are_those_that_transformers_builds(changes):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    data = LLAMA | changes
    if data["model_type"] == "gpt2":
        data = {key: value for key, value in data.items() if key in changes or key == "vocab_size"}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**data))
    found = read(data, "x")
    assert found.parameters == sum(weight.numel() for weight in model.parameters())
    assert found.exact


@pytest.mark.parametrize("all_linear", [True, False])
@pytest.mark.parametrize("changes", [{}, {"model_type": "qwen2"}, {"model_type": "qwen3", "head_dim": 16}])
def test_adapters_are_those_that_peft_builds(changes, all_linear):
    import peft
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    data = LLAMA | changes
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**data))
        adapted = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules="all-linear" if all_linear else ["q_proj", "v_proj"]))
    assert read(data, "x").lora_parameters(8, all_linear) == adapted.get_nb_trainable_parameters()[0]


def test_tiny_is_what_the_package_makes():
    from workbench.models import tiny

    made, found = tiny.Shape(), shape("tiny")
    assert (made.hidden, made.layers, made.heads, made.kv_heads) == (found.hidden, found.layers, found.heads, found.kv_heads)
    assert (made.head_dim, made.feed_forward) == (found.head_dim, found.intermediate)
    assert shape("shape:tiny") is shape("tiny")
    assert {"tiny", "smollm2", "qwen2.5-72b"} <= set(names())


def test_a_file_a_folder_and_a_path(tmp_path):
    folder = config(tmp_path)
    assert shape(folder).heads == 4
    assert shape(f"{folder}/config.json").kv_heads == 2
    assert shape(tmp_path).vocabulary == 100
    assert shape(tmp_path).name == folder


def test_a_hub_name_is_read_from_the_cache_alone(tmp_path):
    snapshot = tmp_path / "models--acme--small" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    config(snapshot)
    (tmp_path / "models--acme--small" / "refs").mkdir()
    (tmp_path / "models--acme--small" / "refs" / "main").write_text("a" * 40)
    code = "import sys; from workbench.mapping.shapes import shape; print(shape('acme/small').heads, 'transformers' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"HF_HUB_CACHE": str(tmp_path), "PATH": ""}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["4", "False"]
    with pytest.raises(ConfigError, match=r"(?s)local cache has its config.json.*shape:llama-7b"):
        shape("acme/absent")


def test_other_ways_to_write_a_config():
    bare = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert read(bare, "x").kv_heads == 4
    assert read(LLAMA | {"head_dim": None}, "x").head_dim == 8
    assert read(LLAMA | {"head_dim": 64}, "x").head_dim == 64
    assert not read(LLAMA | {"model_type": "new"}, "x").exact
    nested = read(
        {"model_type": "vl", "tie_word_embeddings": True, "vision_config": {}, "text_config": bare | {"tie_word_embeddings": None}}, "x"
    )
    assert (nested.hidden, nested.exact) == (32, False)
    assert read({"text_config": {key: value for key, value in bare.items() if "tie" not in key}, "tie_word_embeddings": True}, "x").tied


def test_gpt2():
    found = read(
        {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_inner": None, "n_positions": 1024}, "x"
    )
    assert found.parameters == 124_439_808  # the hub's, of openai-community/gpt2
    assert found.intermediate == 3072
    assert found.lora_parameters(8, all_linear=False) == 8 * 12 * (768 + 3 * 768)  # c_attn, in one piece


def test_mixtures():
    mixtral = {"vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
    found = read(mixtral | {"model_type": "mixtral", "intermediate_size": 14336, "num_local_experts": 8}, "x")
    assert found.parameters == 46_702_792_704  # the hub's, of Mixtral-8x7B-v0.1
    deepseek = read(LLAMA | {"n_routed_experts": 4, "moe_intermediate_size": 8, "n_shared_experts": 2, "first_k_dense_replace": 1}, "x")
    assert (deepseek.dense_layers, deepseek.shared_intermediate) == (1, 16)
    assert found.lora_parameters(8) == found.layers * 8 * (8192 + 5120 + 5120 + 8192)  # attention alone


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"])
def test_a_missing_key_is_named(tmp_path, key):
    with pytest.raises(ConfigError, match=f"no .*{key}"):
        shape(config(tmp_path, **{key: None}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads=0.*from 1 on"),
        ({"hidden_size": -4}, "hidden_size=-4"),
        ({"hidden_size": "32"}, "hidden_size='32'"),
        ({"hidden_size": 32.0}, r"hidden_size=32\.0"),
        ({"num_hidden_layers": True}, "num_hidden_layers=True"),
        ({"vocab_size": 10**30}, "vocabulary=1000.*lies between 1 and 100,000,000"),
        ({"num_key_value_heads": 3}, "4 attention heads, 3 key-value heads"),
        ({"num_attention_heads": 6}, "32 hidden is no multiple of 6 heads"),
        ({"num_experts": 4, "moe_intermediate_size": 0}, "moe_intermediate_size=0"),
        ({**MOE, "mlp_only_layers": "all"}, "mlp_only_layers='all'"),
        ({**MOE, "first_k_dense_replace": 9}, "9 dense layers of 3"),
        ({"attention_bias": "yes"}, "attention_bias='yes'.*true or false"),
        ({"is_encoder_decoder": True}, "a policy is a decoder"),
    ],
)
def test_bad_values_are_refused(tmp_path, changes, said):
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        shape(config(tmp_path, **changes))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "holds a list"),
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[" * 200_000, "nested too deeply|no JSON"),
        ("{}", "no vocab_size"),
        ('{"vocab_size": ' + "9" * 5000 + "}", "no JSON"),
        ('{"model_type": "vit", "hidden_size": 768}', "no vocab_size"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, said):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=said):
        shape(tmp_path)


def test_files_that_are_no_config(tmp_path):
    with pytest.raises(ConfigError, match=r"nor the hub's local cache has its config\.json"):
        shape(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * (2**24 + 1))
    with pytest.raises(ConfigError, match="16,777,217 bytes, too many"):
        shape(tmp_path / "model.safetensors")
    (tmp_path / "small.bin").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is no JSON"):
        shape(tmp_path / "small.bin")


@pytest.mark.parametrize(("name", "near"), [("shape:llama7b", "shape:llama-7b"), ("shape:qwen2.5-0.5", "shape:qwen2.5-0.5b")])
def test_an_unknown_shape_gets_the_nearest(name, near):
    with pytest.raises(ConfigError, match=f"(?s)built-in shapes are llama-7b.*write '{near}'"):
        shape(name)


def test_numbers_that_make_no_sense():
    fine = shape("tiny")
    for rank in (0, -1, 1.5, True, "8"):
        with pytest.raises(ConfigError, match="rank="):
            fine.lora_parameters(rank)
    with pytest.raises(ConfigError, match="that is a int"):
        shape(7)
    with pytest.raises(ConfigError, match="layers=0"):
        ModelShape("x", 1, 1, 0, 1, 1, 1, 1)


@given(st.one_of(st.text(), st.text().map("shape:{}".format), st.sampled_from(["\0", "~nobody", "a" * 5000, "..", "/", "\ud800", "~"])))
def test_no_text_raises_anything_else(text):
    with suppress(ConfigError):
        shape(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
MORE = (
    "head_dim",
    "num_experts",
    "moe_intermediate_size",
    "mlp_only_layers",
    "decoder_sparse_step",
    "text_config",
    "n_embd",
    "tie_word_embeddings",
)


@given(st.dictionaries(st.sampled_from([*LLAMA, *MORE]), VALUES))
def test_no_config_raises_anything_else(changes):
    with suppress(ConfigError):
        found = read(LLAMA | changes, "x")
        assert found.parameters > 0
