"""Schedules and grids as text of at most 100 columns: a table of bytes, and who gathers what from whom."""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from workbench.mapping.devices import spans
from workbench.reshard.grids import Generation, Training
from workbench.reshard.parameters import Block, Cut, Parameter
from workbench.reshard.schedule import Schedule, schedule

MOST_ROWS = 64
STRIP, LONGEST_SOURCES = 48, 26  # columns of a rank's strip where its cells are wider than one, and of the ranks beside it
STAYS, GATHERED, ELSEWHERE = "█", "░", "·"
UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def amount(count: int | Fraction) -> str:
    """Bytes in decimal units, at most three decimals: 512 B, 13.125 GB."""
    value, unit = float(count), 0
    while value >= 999.9995 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3f}".rstrip("0").rstrip(".") + f" {UNITS[unit]}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of as many cells each, in columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def table(plan: Schedule) -> str:
    """A row for each rank, and below it what moves in all."""
    head = ("rank", "before", "stays", "received", "sent", "peak", "redundant", "from ranks")
    rows = [
        (str(load.rank), *map(amount, (load.held, load.stays, load.received, load.sent, load.peak(), load.redundant)), ranks(sources))
        for load, sources in zip(plan.loads, plan.sources, strict=True)
    ]
    return "\n".join([*columns([head, *rows]), f"{amount(plan.bytes)} between ranks, in {len(plan.copies)} copies"])


def ranks(numbers: Iterable[int]) -> str:
    """Ranks in a short line: "0-2,5", or how many where that is long."""
    found = tuple(map(str, sorted(numbers)))
    text = spans(found) if found else "-"
    return text if len(text) <= LONGEST_SOURCES else f"{len(found)} of {found[0]} to {found[-1]}"


def drawing(grid: Generation) -> str:
    """A strip for each rank: the model from its first stage to its last, in each stage shard by shard. One replica where all are many."""
    alone = grid.ranks > MOST_ROWS
    shown = Generation(Training(grid.training.p, grid.training.t, 1), grid.p_g, grid.t_g, grid.consecutive) if alone else grid
    if shown.ranks > MOST_ROWS:
        return f"(drawn are replicas of up to {MOST_ROWS} ranks; this one has {shown.ranks})"
    plan = unit_schedule(shown)
    width = max(1, STRIP // shown.training.replica)
    key = f"{STAYS} has and keeps  {GATHERED} gathers  {ELSEWHERE} lies elsewhere"
    rows = [f"{rank:>4}  {_strip(shown, plan, rank, width)}  {ranks(sources)}" for rank, sources in enumerate(plan.sources)]
    length = shown.training.replica * width
    head = [key, f"rank  {'the model'[:length]:<{length}}  gathers from"]
    tail = [f"and so in each of {grid.training.d} replicas, {shown.ranks} ranks further on"] if alone else []
    return "\n".join([*head, *rows, *tail])


def unit_schedule(grid: Generation) -> Schedule:
    """The schedule of a model with one vector a stage and one byte a shard."""
    p, t = grid.training.p, grid.training.t
    vectors = [Parameter(f"stage {stage}", (t,), 1, Cut(0, (Block(t),)), stage) for stage in range(p)]
    return schedule(vectors, grid.training, grid)


def _strip(grid: Generation, plan: Schedule, rank: int, width: int) -> str:
    cells = [ELSEWHERE] * grid.training.replica
    for mark, copies in ((STAYS, plan.stays), (GATHERED, plan.copies)):
        for copy in copies:
            if copy.target_rank == rank:
                first = int(copy.parameter.split()[1]) * grid.training.t
                for cell in range(*copy.part[0]):
                    cells[first + cell] = mark
    return "".join(cell * width for cell in cells)
