"""The second layer of the proof: the engine's log-probabilities of the tokens it sampled against the trainer's.

The comparison costs nothing (both numbers exist in every step) and catches what the exact layer can't see: wrong kernels, a
stale prefix cache, another temperature.
"""

from dataclasses import dataclass

from workbench.errors import SyncError


@dataclass(frozen=True)
class Canary:
    """How far engine and trainer may be apart on the sampled tokens, in nats. docs/log.md has what was measured."""

    max_diff: float
    mean_diff: float

    @classmethod
    def for_dtype(cls, dtype: str) -> "Canary":
        """Bounds for the precision that both compute in: above what sound runs show, twice that of the most sensitive model seen."""
        return cls(1e-3, 1e-4) if dtype == "float32" else cls(4.0, 0.1)

    def holds(self, max_diff: float, mean_diff: float) -> bool:
        """Whether the differences are within bounds (NaN is not)."""
        return max_diff <= self.max_diff and mean_diff <= self.mean_diff

    def failed(self, max_diff: float, mean_diff: float, cause: str = "") -> SyncError:
        """The error of a canary that died. ``cause`` is what a closer look found, where one was possible."""
        seen = f"{max_diff:.2g} at most and {mean_diff:.2g} on average (allowed: {self.max_diff:g} and {self.mean_diff:g})"
        return SyncError(
            "sample from the weights just trained (canary: engine against trainer on the sampled tokens)",
            f"log-probabilities differ by {seen}" + (f"; cause: {cause}" if cause else ""),
            "the weights in the engine are the right ones, so suspect a stale prefix cache, another temperature or top-p, "
            "wrong kernels, another tokenizer or chat template",
        )
