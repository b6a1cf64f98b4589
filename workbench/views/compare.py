"""``wb.compare(run, other)``: runs beside each other. What was gained, what it cost, what was set otherwise, what was answered.

Everything is read from the runs' events. One column is one run; its colour is the same in the table, the figure and the answers.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from workbench.events import Event, standing
from workbench.metrics import PhaseSeconds, metrics, records_of
from workbench.palette import PAPER
from workbench.records import PHASES, Answers, HeldOut, Knob, Step, mean, percentile
from workbench.views.answers import AnswerRow, answer_rows, answers_html, answers_text
from workbench.views.compare_table import Head, Section, table_html, table_text
from workbench.views.history import History
from workbench.views.settings import Setting, differing, plain, settings_of
from workbench.views.text import NOTHING, duration, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAST = 10  # steps: one batch is noisy


@dataclass(frozen=True)
class Told:
    """A run to compare: its name, its state in a word, and its events."""

    name: str
    state: str
    events: Sequence[Event]


@dataclass(frozen=True)
class Curve:
    """A run over its steps; point ``i`` stands for the steps around ``step[i]``.

    ``held_out``: its scores, in order. ``turned``: the points at which knobs were turned.
    """

    step: tuple[float, ...]
    reward: tuple[float | None, ...]
    kl: tuple[float | None, ...]
    held_out: tuple[HeldOut, ...]
    turned: tuple[int, ...] = ()


@dataclass(frozen=True)
class RunRow:
    """One run in numbers; None is what its events can't say. Times are seconds within a step."""

    name: str  # numbered where two runs have the same one
    state: str
    model: str
    algo: str
    steps: int
    seconds: float  # inside steps
    held_out_before: float | None
    held_out_after: float | None
    held_out_gain: float | None
    held_out_gain_stderr: float | None
    reward: float | None  # mean over the last ``LAST`` steps
    kl: float | None  # nats per token, over the same steps
    step_seconds: PhaseSeconds | None  # of whole steps
    phase_seconds: dict[str, PhaseSeconds]
    rollout_tokens_per_second: float | None
    train_tokens_per_second: float | None
    peak_memory_gib: float | None
    knobs: tuple[Knob, ...]
    curve: Curve = field(repr=False)


@dataclass(frozen=True)
class RunComparison:
    """Runs beside each other: ``table`` in numbers, ``settings`` that differ, ``answers`` to the same held-out prompts, ``figure()``."""

    table: tuple[RunRow, ...]
    settings: tuple[Setting, ...]
    answers: tuple[AnswerRow, ...]

    def figure(self) -> "Figure":
        """Reward, KL, time per phase, speed and memory, as a matplotlib figure to change or to save."""
        from workbench.views.compare_figure import draw

        return draw(self.table)

    @cached_property
    def png(self) -> bytes:
        """The figure as a PNG; empty where no run has made a step."""
        from workbench.views.compare_figure import png

        return png(self.figure()) if any(row.steps for row in self.table) else b""

    @property
    def html(self) -> str:
        """The table, the figure and the answers, in the colours of the page around them."""
        names = [row.name for row in self.table]
        return (
            f'<div style="max-width:960px;font-size:13px">{table_html(self._heads, self._sections)}{self._same_html}'
            f"{_image(self.png)}{answers_html(names, self.answers)}</div>"
        )

    @property
    def text(self) -> str:
        """The same for a terminal."""
        parts = [table_text(self._heads, self._sections), self._same, answers_text([row.name for row in self.table], self.answers)]
        return "\n\n".join(part for part in parts if part)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        image = {"image/png": b64encode(self.png).decode()} if self.png else {}
        return {"text/plain": self.text, "text/html": self.html, **image}

    @property
    def _same(self) -> str:
        return "All settings are the same." if len(self.table) > 1 and not self.settings else ""

    @property
    def _same_html(self) -> str:
        return f'<div style="opacity:0.72;font-size:12px;margin-top:6px">{self._same}</div>' if self._same else ""

    @property
    def _heads(self) -> list[Head]:
        return [Head(row.name, _subtitle(row)) for row in self.table]

    @property
    def _sections(self) -> list[Section]:
        found = [_outcome(self.table), _times(self.table), _cost(self.table), _knobs(self.table)]
        different = tuple((setting.name, tuple((plain(value),) for value in setting.values)) for setting in self.settings)
        return [section for section in (*found, Section("Settings that differ", different)) if section.rows]


def compare_runs(runs: Sequence[Told]) -> RunComparison:
    """The runs in the order given. Steps that a restored run made again count once."""
    names = _numbered([run.name for run in runs])
    told = [standing(run.events) for run in runs]
    rows = tuple(_row(name, run.state, events) for name, run, events in zip(names, runs, told, strict=True))
    return RunComparison(rows, differing([settings_of(events) for events in told]), answer_rows([records_of(e, Answers) for e in told]))


def _row(name: str, state: str, events: Sequence[Event]) -> RunRow:
    numbers = metrics(events)
    history = History(events)
    steps = list({step.step: step for step in records_of(events, Step)}.values())
    gain = numbers.held_out_reward
    both = gain.before is not None and gain.after is not None
    seconds = [step.seconds for step in steps]
    return RunRow(
        name=name,
        state=state,
        model=history.started.model if history.started else "",
        algo=str(history.started.algo.get("name", "")) if history.started else "",
        steps=numbers.steps,
        seconds=numbers.seconds,
        held_out_before=gain.before,
        held_out_after=gain.after,
        held_out_gain=gain.after - gain.before if both else None,  # type: ignore[operator]
        held_out_gain_stderr=gain.stderr if both else None,
        reward=mean([step.reward_mean for step in steps[-LAST:]]) if steps else None,
        kl=mean([step.kl for step in steps[-LAST:]]) if steps else None,
        step_seconds=PhaseSeconds(*(percentile(seconds, percent) for percent in (50, 95, 99))) if seconds else None,
        phase_seconds=numbers.phase_seconds,
        rollout_tokens_per_second=numbers.tokens_per_second.rollout,
        train_tokens_per_second=numbers.tokens_per_second.train,
        peak_memory_gib=numbers.peak_memory_gib,
        knobs=tuple(records_of(events, Knob)),
        curve=_curve(history),
    )


def _curve(history: History) -> Curve:
    buckets = history.series.buckets
    return Curve(
        step=tuple((bucket.first + bucket.last) / 2 for bucket in buckets),
        reward=tuple(bucket["reward_mean"] for bucket in buckets),
        kl=tuple(bucket["kl"] for bucket in buckets),
        held_out=tuple(point for _, point in sorted(history.held_out.items())),
        turned=tuple(at for at, bucket in enumerate(buckets) if any(bucket.first <= turn.first <= bucket.last for turn in history.turns)),
    )


def _numbered(names: Sequence[str]) -> list[str]:
    """The names, those that stand there twice with a number behind."""
    seen: dict[str, int] = {}
    numbered = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        numbered.append(f"{name} ({seen[name]})" if names.count(name) > 1 else name)
    return numbered


# ---------------------------------------------------------------- the table


def _outcome(rows: Sequence[RunRow]) -> Section:
    def before(row: RunRow) -> str:
        return _score(row, 0, row.held_out_before)

    def after(row: RunRow) -> str:
        return _score(row, -1, row.held_out_after)

    def gain(row: RunRow) -> str:
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


def _score(row: RunRow, at: int, value: float | None) -> str:
    return f"{value:.3f} ± {row.curve.held_out[at].stderr:.3f}" if value is not None else NOTHING


def _times(rows: Sequence[RunRow]) -> Section:
    found = [phase for phase in PHASES if any(phase in row.phase_seconds for row in rows)]
    lines = [(phase, tuple(_percentiles(row.phase_seconds.get(phase)) for row in rows)) for phase in found]
    if any(row.step_seconds for row in rows):
        lines.append(("whole step", tuple(_percentiles(row.step_seconds) for row in rows)))
    return Section("Time in a step", tuple(lines), ("p50", "p95", "p99"))


def _percentiles(seconds: PhaseSeconds | None) -> tuple[str, ...]:
    return tuple(map(duration, (seconds.p50, seconds.p95, seconds.p99))) if seconds else (NOTHING, "", "")


def _cost(rows: Sequence[RunRow]) -> Section:
    return _section(
        "Speed and memory",
        rows,
        {
            "rollout, tokens/s": lambda row: number(row.rollout_tokens_per_second),
            "training, tokens/s": lambda row: number(row.train_tokens_per_second),
            "peak memory": lambda row: number(row.peak_memory_gib, "GiB"),
        },
    )


def _knobs(rows: Sequence[RunRow]) -> Section:
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


def _section(title: str, rows: Sequence[RunRow], lines: dict[str, Callable[[RunRow], str]]) -> Section:
    return Section(title, tuple((label, tuple((text(row),) for row in rows)) for label, text in lines.items()))


def _subtitle(row: RunRow) -> str:
    model = row.model.rsplit("/", 1)[-1] if row.model.startswith("/") else row.model
    return " · ".join(part for part in (row.algo, model) if part)


def _image(image: bytes) -> str:
    if not image:
        return ""
    style = f"width:100%;background:{PAPER};border-radius:6px;margin:10px 0"
    words = "Reward, KL, time per phase, speed and memory of the runs"
    return f'<img alt="{words}" style="{style}" src="data:image/png;base64,{b64encode(image).decode()}">'
