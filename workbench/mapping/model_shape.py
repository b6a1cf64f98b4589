"""A model's sizes, and what follows from them: how many weights it has, how much memory they take, how large an adapter is."""

from dataclasses import dataclass, fields

from workbench.errors import ConfigError, check_kind

MOST = 10**8  # of anything that a config counts; the largest vocabularies have 10^6 tokens
Linear = tuple[int, int]
"""(in, out) of one linear layer."""


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a causal language model, as transformers builds it.

    ``intermediate``: width of the MLP (of a dense layer). ``tied``: the head is the embedding. ``qkv_bias``, ``o_bias``: which projections
    have one. ``qk_norm``: queries and keys are normalised per head (Qwen3). ``experts``: of a mixture of experts, 0 without one, each
    ``expert_intermediate`` wide, beside a shared one of ``shared_intermediate`` (0: none); ``dense_layers`` layers have no experts.
    ``plain``: GPT-2's kind of layer, an ungated MLP, biases everywhere, ``positions`` learned ones. ``exact``: whether ``parameters``
    is known to be right for its family; otherwise it is near, and of a multimodal model the language model alone.
    """

    name: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    head_dim: int
    tied: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    experts: int = 0
    expert_intermediate: int = 0
    shared_intermediate: int = 0
    dense_layers: int = 0
    plain: bool = False
    positions: int = 0
    exact: bool = True

    def __post_init__(self) -> None:
        least = {"vocabulary", "hidden", "layers", "heads", "kv_heads", "intermediate", "head_dim"}
        for name in (field.name for field in fields(self) if field.type is int or field.type == "int"):
            value = getattr(self, name)
            check_kind(f"model {self.name!r}: {name}", value, int, "a whole number")
            if not (name in least) <= value <= MOST:
                found = f"it lies between {int(name in least)} and {MOST:,}"
                raise ConfigError(f"model {self.name!r}: {name}={str(value)[:20]}", found, "mend the model's config.json")
        if self.heads % self.kv_heads:
            asked = f"model {self.name!r}: {self.heads} attention heads, {self.kv_heads} key-value heads"
            raise ConfigError(asked, "heads are shared out evenly among key-value heads", "mend the model's config.json")
        if self.dense_layers > self.layers:
            asked = f"model {self.name!r}: {self.dense_layers} dense layers of {self.layers}"
            raise ConfigError(asked, "there are more than layers", "mend the model's config.json")

    @property
    def parameters(self) -> int:
        """All weights, counted as transformers does: a tied head once."""
        embeddings = self.hidden * (self.vocabulary * (1 if self.tied else 2) + self.positions)
        norm = self.hidden * (2 if self.plain else 1)  # LayerNorm has a bias, RMSNorm none
        dense = _weights(self._mlp) + (self.intermediate + self.hidden if self.plain else 0)
        sparse = self._sparse_layers
        layer = _weights(self._attention) + self._attention_vectors + 2 * norm
        return embeddings + norm + self.layers * layer + (self.layers - sparse) * dense + sparse * self._mixture

    def weights_gib(self, bytes_per_parameter: float = 2) -> float:
        """GiB (2^30 bytes) of the weights; 2 bytes in bfloat16, 4 in float32."""
        return self.parameters * bytes_per_parameter / 2**30

    def lora_parameters(self, rank: int, all_linear: bool = True) -> int:
        """Weights of an adapter of ``rank``: rank * (in + out) on each linear layer but the head, or on those of queries and values alone.

        Experts are no linear layers to peft (transformers keeps their weights stacked), so they have no adapters.
        """
        check_kind("rank", rank, int, "a whole number such as 16")
        if rank < 1:
            raise ConfigError(f"rank={rank}", "an adapter has rank 1 or more", "write 16")
        attention = self._attention
        if not all_linear:
            return rank * self.layers * _ends(attention[:1] if self.plain else attention[0:3:2])
        sparse = self._sparse_layers
        shared = [*_gated(self.hidden, self.shared_intermediate), (self.hidden, 1)] if self.shared_intermediate else []
        return rank * (self.layers * _ends(attention) + (self.layers - sparse) * _ends(self._mlp) + sparse * _ends(shared))

    @property
    def _sparse_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def _attention(self) -> list[Linear]:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        if self.plain:
            return [(self.hidden, queries + 2 * keys), (queries, self.hidden)]
        return [(self.hidden, queries), (self.hidden, keys), (self.hidden, keys), (queries, self.hidden)]

    @property
    def _attention_vectors(self) -> int:
        """Biases, and the norms of queries and keys."""
        out = (self.heads + 2 * self.kv_heads) * self.head_dim
        return out * self.qkv_bias + self.hidden * self.o_bias + 2 * self.head_dim * self.qk_norm

    @property
    def _mlp(self) -> list[Linear]:
        if self.plain:
            return [(self.hidden, self.intermediate), (self.intermediate, self.hidden)]
        return _gated(self.hidden, self.intermediate)

    @property
    def _mixture(self) -> int:
        """Weights of one layer's experts, of the router, of the shared expert and its gate."""
        experts = self.experts * (_weights(_gated(self.hidden, self.expert_intermediate)) + self.hidden)
        shared = _weights(_gated(self.hidden, self.shared_intermediate)) + self.hidden if self.shared_intermediate else 0
        return experts + shared


def _gated(hidden: int, width: int) -> list[Linear]:
    """Gate, up and down."""
    return [(hidden, width), (hidden, width), (width, hidden)]


def _weights(linears: list[Linear]) -> int:
    return sum(inside * outside for inside, outside in linears)


def _ends(linears: list[Linear]) -> int:
    return sum(inside + outside for inside, outside in linears)
