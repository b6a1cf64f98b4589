"""A model's sizes out of its ``config.json``, whatever its family calls them."""

from collections.abc import Mapping
from typing import Any

from workbench.errors import ConfigError
from workbench.mapping.model_shape import ModelShape

# Size -> its keys: those of most models first, then GPT-2's, then those of single families.
KEYS: Mapping[str, tuple[str, ...]] = {
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "intermediate": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "head_dim": ("head_dim", "kv_channels"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "expert_intermediate": ("moe_intermediate_size", "intermediate_size"),
}
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")  # where multimodal models keep the language model's
# Families whose parameters the formula gives exactly (tested against transformers).
EXACT = {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gpt2"}
PLAIN = {
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gpt_neox",
    "gptj",
    "opt",
    "bloom",
    "mpt",
    "falcon",
    "phi",
    "starcoder2",
}  # GPT-2's kind of layer
TIED = {"gpt2", "gpt_bigcode", "gpt_neo", "opt", "bloom", "mpt", "falcon", "gemma", "gemma2", "gemma3", "cohere"}  # where nobody says

Config = Mapping[str, Any]


def read(config: object, name: str) -> ModelShape:
    """The shape that a config (parsed JSON) describes; a multimodal one's language model. Raises ConfigError with the key at fault."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"model {name!r}", f"its config holds a {type(config).__name__}, no keys", "give the config.json of a model")
    if config.get("is_encoder_decoder") is True:
        raise ConfigError(f"model {name!r}", "is_encoder_decoder is true, and a policy is a decoder", "give a causal language model")
    inner, outer = _language_model(config), config
    keys = _Keys(inner, name)
    family = str(inner.get("model_type") or outer.get("model_type") or "").removesuffix("_text")
    plain = family in PLAIN or "n_embd" in inner
    sizes = {field: keys.need(field) for field in ("vocabulary", "hidden", "layers", "heads")}
    _divides(keys, sizes["hidden"], sizes["heads"])
    biased = keys.flag("attention_bias")
    return ModelShape(
        name=name,
        **sizes,
        kv_heads=keys.count("kv_heads") or (1 if keys.flag("multi_query") else sizes["heads"]),
        intermediate=keys.count("intermediate") or (4 * sizes["hidden"] if plain else keys.need("intermediate")),
        head_dim=keys.count("head_dim") or sizes["hidden"] // sizes["heads"],
        tied=_tied(inner, outer, family),
        qkv_bias=plain or biased or (family.startswith("qwen2") and inner.get("qkv_bias") is not False),
        o_bias=plain or (biased and not family.startswith("qwen2")),
        qk_norm=family.startswith(("qwen3", "gemma3")),
        plain=plain,
        positions=(keys.number("n_positions") or keys.number("max_position_embeddings") or 0) if family in ("gpt2", "gpt_bigcode") else 0,
        exact=family in EXACT and inner is outer and not keys.flag("mlp_bias"),
        **_experts(keys, sizes["layers"]),
    )


def _language_model(config: Config) -> Config:
    """The part that describes the language model."""
    for _ in range(3):
        inner = next((config[key] for key in NESTED if isinstance(config.get(key), Mapping)), None)
        if not inner:
            return config
        config = inner
    return config


def _divides(keys: "_Keys", hidden: int, heads: int) -> None:
    if keys.count("head_dim") is None and hidden % heads:
        found = f"{hidden} hidden is no multiple of {heads} heads, and head_dim is missing"
        raise ConfigError(f"model {keys.name!r}", found, "mend its config.json")


def _tied(inner: Config, outer: Config, family: str) -> bool:
    """Whether the head is the embedding."""
    said = inner.get("tie_word_embeddings", outer.get("tie_word_embeddings"))
    return family in TIED if said is None else said is True


def _experts(keys: "_Keys", layers: int) -> dict[str, int]:
    """What a config says of a mixture of experts; nothing where it has none."""
    experts = keys.count("experts", least=0)
    if not experts:
        return {}
    width = keys.need("expert_intermediate")
    shared = keys.number("shared_expert_intermediate_size", least=0) or width * (keys.number("n_shared_experts", least=0) or 0)
    return {
        "experts": experts,
        "expert_intermediate": width,
        "shared_intermediate": shared,
        "dense_layers": (keys.number("first_k_dense_replace", least=0) or 0) + layers - _sparse(keys, layers),
    }


def _sparse(keys: "_Keys", layers: int) -> int:
    """How many layers have experts: every ``decoder_sparse_step``-th, without ``mlp_only_layers``."""
    step, alone = keys.number("decoder_sparse_step") or 1, keys.config.get("mlp_only_layers") or []
    if not isinstance(alone, list) or not all(type(layer) is int for layer in alone):
        raise keys.wrong("mlp_only_layers", alone, "a list of layers")
    return layers // step - len({layer for layer in alone if 0 <= layer < layers and (layer + 1) % step == 0})


class _Keys:
    """A config's numbers, each checked where it is read."""

    def __init__(self, config: Config, name: str) -> None:
        self.config, self.name = config, name

    def count(self, field: str, least: int = 1) -> int | None:
        """The size that our ``field`` means; None where no key says it."""
        return next((value for key in KEYS[field] if (value := self.number(key, least)) is not None), None)

    def need(self, field: str) -> int:
        """Likewise; raises ConfigError with the keys that are missing."""
        value = self.count(field)
        if value is None:
            found = f"its config has no {' or '.join(KEYS[field])}"
            raise ConfigError(f"model {self.name!r}", found, "give the config.json of a causal language model, or shape:NAME")
        return value

    def number(self, key: str, least: int = 1) -> int | None:
        """A whole number from ``least`` on; None where the key is missing or null."""
        value = self.config.get(key)
        if value is not None and (type(value) is not int or value < least):
            raise self.wrong(key, value, f"a whole number from {least} on")
        return value

    def flag(self, key: str) -> bool:
        """Whether a key is true."""
        value = self.config.get(key)
        if value is not None and type(value) is not bool:
            raise self.wrong(key, value, "true or false")
        return bool(value)

    def wrong(self, key: str, value: object, wanted: str) -> ConfigError:
        """The error about a value."""
        return ConfigError(f"model {self.name!r}: {key}={repr(value)[:40]}", f"it must be {wanted}", "mend its config.json")
