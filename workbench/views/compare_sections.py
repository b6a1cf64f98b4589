"""The rows of a comparison, in sections. One that no run has anything to say in has no rows, and is left out."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workbench.metrics import LAST, PhaseSeconds
from workbench.records import PHASES, HeldOut
from workbench.views.compare_table import Section
from workbench.views.settings import plain
from workbench.views.text import NOTHING, duration, number, shorten, visible

if TYPE_CHECKING:
    from workbench.views.compare import RunRow

NAME = 32  # characters of a part of the reward


def sections_of(rows: "Sequence[RunRow]") -> list[Section]:
    """What the events say of the runs, those sections that have rows."""
    found = (_outcome(rows), _parts(rows), _critic(rows), _times(rows), _cost(rows), _knobs(rows))
    return [section for section in found if section.rows]


def _outcome(rows: "Sequence[RunRow]") -> Section:
    def before(row: "RunRow") -> str:
        return _score(row, 0, row.held_out_before)

    def after(row: "RunRow") -> str:
        return _score(row, -1, row.held_out_after)

    def gain(row: "RunRow") -> str:
        return f"{row.held_out_gain:+.3f} ± {row.held_out_gain_stderr:.3f}" if row.held_out_gain is not None else NOTHING

    return _section(
        "Outcome",
        rows,
        {
            "state": lambda row: row.state,
            "steps": lambda row: f"{row.steps} in {duration(row.seconds)}" if row.steps else "0",
            "held-out reward before": before,
            "held-out reward after": after,
            "gain": gain,
            "held-out answers": lambda row: _how(row.curve.held_out),
            f"reward, last {LAST} steps": lambda row: number(row.reward),
            f"KL to reference, last {LAST} steps": lambda row: number(row.kl),
        },
    )


def _how(scores: Sequence[HeldOut]) -> str:
    if not scores:
        return NOTHING
    return f"at temperature {scores[-1].temperature:g}" if scores[-1].temperature else "greedily"


def _score(row: "RunRow", at: int, value: float | None) -> str:
    return f"{value:.3f} ± {row.curve.held_out[at].stderr:.3f}" if value is not None else NOTHING


def _parts(rows: "Sequence[RunRow]") -> Section:
    """What the rewards tell of themselves, where any does."""
    names = dict.fromkeys(name for row in rows for name in row.reward_numbers)
    lines = [(visible(shorten(name, NAME)), tuple((number(row.reward_numbers.get(name)),) for row in rows)) for name in names]
    return Section(f"Parts of the reward, last {LAST} steps", tuple(lines))


def _critic(rows: "Sequence[RunRow]") -> Section:
    """How well the values fit, where any run has a critic."""
    if not any(row.critic for row in rows):
        return Section("", ())
    return _section(
        f"Critic, last {LAST} steps",
        rows,
        {
            "value loss": lambda row: number(row.critic and row.critic.value_loss),
            "explained variance": lambda row: number(row.critic and row.critic.explained_variance),
        },
    )


def _times(rows: "Sequence[RunRow]") -> Section:
    found = [phase for phase in PHASES if any(phase in row.phase_seconds for row in rows)]
    lines = [(phase, tuple(_percentiles(row.phase_seconds.get(phase)) for row in rows)) for phase in found]
    if any(row.step_seconds for row in rows):
        lines.append(("whole step", tuple(_percentiles(row.step_seconds) for row in rows)))
    return Section("Time in a step", tuple(lines), ("p50", "p95", "p99"))


def _percentiles(seconds: PhaseSeconds | None) -> tuple[str, ...]:
    return tuple(map(duration, (seconds.p50, seconds.p95, seconds.p99))) if seconds else (NOTHING, "", "")


def _cost(rows: "Sequence[RunRow]") -> Section:
    return _section(
        "Speed and memory",
        rows,
        {
            "rollout, tokens/s": lambda row: number(row.rollout_tokens_per_second),
            "training, tokens/s": lambda row: number(row.train_tokens_per_second),
            "peak memory": lambda row: number(row.peak_memory_gib, "GiB"),
        },
    )


def _knobs(rows: "Sequence[RunRow]") -> Section:
    names = dict.fromkeys(knob.name for row in rows for knob in row.knobs)
    return _section(
        "Changed while it ran",
        rows,
        {
            name: lambda row, name=name: (
                "\n".join(  # type: ignore[misc]
                    f"step {knob.step}: {plain(knob.old)} → {plain(knob.new)}" for knob in row.knobs if knob.name == name
                )
                or NOTHING
            )
            for name in names
        },
    )


def _section(title: str, rows: "Sequence[RunRow]", lines: "dict[str, Callable[[RunRow], str]]") -> Section:
    return Section(title, tuple((label, tuple((text(row),) for row in rows)) for label, text in lines.items()))
