"""What ``workbench reshard`` says: the published volumes for a training grid and its generation groups, and the groups themselves."""

import re
from dataclasses import dataclass
from decimal import Decimal

from workbench.errors import ConfigError
from workbench.mapping.shapes import shape
from workbench.reshard.drawing import amount, columns, drawing
from workbench.reshard.grids import Generation, Groups, Training
from workbench.reshard.volumes import Volume, full_gather, hybrid, vanilla

Number = int | float
UNITS = {"": 1, "b": 1} | {
    f"{letter}{kind}": base**power for power, letter in enumerate("kmgtpe", 1) for kind, base in (("b", 1000), ("ib", 1024))
}
MOST_BYTES = 10**18


@dataclass(frozen=True)
class Bytes:
    """Per GPU; a whole number unless a formula gives a fraction."""

    moved: Number
    peak: Number
    redundant: Number

    @classmethod
    def of(cls, volume: Volume) -> "Bytes":
        """The same as plain numbers."""
        return cls(*(int(part) if part.denominator == 1 else float(part) for part in (volume.moved, volume.peak, volume.redundant)))


@dataclass(frozen=True)
class ReshardReport:
    """The three ways to reshard, in bytes per GPU, and the groups of the first, ranks from 0."""

    hybrid: Bytes
    full_gather: Bytes
    vanilla: Bytes
    micro_dp: Groups
    generate_tp: Groups


@dataclass(frozen=True)
class Reshard:
    """A reshard of ``model_bytes`` of weights into ``grid``. Printed: a table and a drawing for people."""

    grid: Generation
    model_bytes: int

    @property
    def report(self) -> ReshardReport:
        """For programs."""
        grid, weights = self.grid, self.model_bytes
        return ReshardReport(
            hybrid=Bytes.of(hybrid(grid, weights)),
            full_gather=Bytes.of(full_gather(grid, weights)),
            vanilla=Bytes.of(vanilla(grid, weights)),
            micro_dp=grid.micro_data_groups,
            generate_tp=grid.tensor_groups,
        )

    def __str__(self) -> str:
        grid, weights = self.grid, self.model_bytes
        title = f"{amount(weights)} of weights on {grid.ranks} GPUs: training {grid.training} (p-t-d), generation {grid} (p_g-t_g-d_g-d)"
        rows = [
            (name, *map(amount, (volume.moved, volume.peak, volume.redundant)))
            for name, volume in (
                ("hybrid: inside each micro-DP group", hybrid(grid, weights)),
                ("vanilla: inside each training replica", vanilla(grid, weights)),
                ("full gather: over all GPUs", full_gather(grid, weights)),
            )
        ]
        whole = columns([("bytes per GPU", "moved", "peak", "redundant"), *rows])
        groups = [f"micro-DP groups       {listed(grid.micro_data_groups)}", f"generation TP groups  {listed(grid.tensor_groups)}"]
        return "\n".join([title, "", *whole, "", *groups, "", drawing(grid)])


def listed(groups: Groups, width: int = 76) -> str:
    """Groups in one line, as far as ``width`` columns go, and how many more there are."""
    text = ""
    for at, group in enumerate(groups):
        more = f"{' ' if at else ''}[{','.join(map(str, group))}]"
        if len(text) + len(more) > width - 10:
            return f"{text} and {len(groups) - at} more" if at else f"{len(groups)} of {len(group)} ranks"
        text += more
    return text


def plan(train: str, generate: str, size: str | None, model: str | None) -> Reshard:
    """The command's options as they are written. Raises ConfigError with the one at fault."""
    p, t, d = _sizes("--train", train, ("P", "T", "D"), "1,8,2")
    p_g, t_g = _sizes("--generate", generate, ("PG", "TG"), "1,2")
    return Reshard(Generation(Training(p, t, d), p_g, t_g), _weights(size, model))


def _weights(size: str | None, model: str | None) -> int:
    """Bytes of all weights: as written, or of a model in bfloat16."""
    if size is not None and model is None:
        return read_bytes(size)
    if model is not None and size is None:
        return shape(model).parameters * 2
    found = "neither --bytes nor --model was given" if size is None else "--bytes and --model were both given"
    raise ConfigError("workbench reshard", found, "give one of them: --bytes 14e9, or --model shape:qwen2.5-7b")


def read_bytes(text: str) -> int:
    """Bytes out of "14e9", "14GB" or "13.0GiB", to the nearest whole one. Raises ConfigError."""
    asked, fix = f"--bytes {text[:40]}", "write 14e9, 14GB or 13.0GiB"
    found = re.fullmatch(r"(\d+\.?\d*(?:e\+?\d{1,2})?|\.\d+)\s*([a-z]*)", text.strip().lower(), re.ASCII)
    if found is None or found[2] not in UNITS:
        raise ConfigError(asked, "that is no number of bytes", fix)
    value = Decimal(found[1]) * UNITS[found[2]]
    if not 1 <= value <= MOST_BYTES:
        raise ConfigError(asked, "a model has 1 byte or more, and at most 10^18", fix)
    return int(value.to_integral_value())


def _sizes(option: str, text: str, names: tuple[str, ...], example: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != len(names) or not all(re.fullmatch(r"\d{1,9}", part, re.ASCII) for part in parts):
        raise ConfigError(
            f"{option} {text[:40]}", f"that is not {','.join(names)}, {len(names)} whole numbers", f"write {option} {example}"
        )
    return [int(part) for part in parts]
