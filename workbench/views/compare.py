"""``wb.compare(run, other)``: runs beside each other. What was gained, what it cost, what was set otherwise, what was answered.

Everything is read from the runs' events. One column is one run; its colour is the same in the table, the figure and the answers.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from workbench.events import Event, standing
from workbench.metrics import LAST, CriticNumbers, PhaseSeconds, mean_of_known, metrics, records_of
from workbench.palette import PAPER
from workbench.records import Answers, HeldOut, Knob, Step, mean, percentile
from workbench.views.answers import AnswerRow, answer_rows, answers_html, answers_text
from workbench.views.compare_sections import sections_of
from workbench.views.compare_table import Head, Section, table_html, table_text
from workbench.views.history import History
from workbench.views.settings import Setting, differing, plain, settings_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    value_loss: tuple[float | None, ...] = ()  # empty, as below, where no critic learnt
    explained_variance: tuple[float | None, ...] = ()


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
    critic: CriticNumbers | None  # None: no critic learnt
    reward_numbers: dict[str, float | None]  # what the reward tells of itself, over the same steps
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
        different = tuple((setting.name, tuple((plain(value),) for value in setting.values)) for setting in self.settings)
        return [*sections_of(self.table), *([Section("Settings that differ", different)] if different else [])]


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
        critic=numbers.critic,
        reward_numbers=_reward_numbers(steps[-LAST:]),
        step_seconds=PhaseSeconds(*(percentile(seconds, percent) for percent in (50, 95, 99))) if seconds else None,
        phase_seconds=numbers.phase_seconds,
        rollout_tokens_per_second=numbers.tokens_per_second.rollout,
        train_tokens_per_second=numbers.tokens_per_second.train,
        peak_memory_gib=numbers.peak_memory_gib,
        knobs=tuple(records_of(events, Knob)),
        curve=_curve(history),
    )


def _reward_numbers(steps: Sequence[Step]) -> dict[str, float | None]:
    names = dict.fromkeys(name for step in steps for name in step.reward_numbers)
    return {name: mean_of_known(step.reward_numbers.get(name) for step in steps) for name in names}


def _curve(history: History) -> Curve:
    buckets = history.series.buckets
    of_critic = {name: tuple(history.series.column(name)) for name in ("value_loss", "explained_variance")}
    return Curve(
        step=tuple((bucket.first + bucket.last) / 2 for bucket in buckets),
        reward=tuple(bucket["reward_mean"] for bucket in buckets),
        kl=tuple(bucket["kl"] for bucket in buckets),
        held_out=tuple(point for _, point in sorted(history.held_out.items())),
        turned=tuple(at for at, bucket in enumerate(buckets) if any(bucket.first <= turn.first <= bucket.last for turn in history.turns)),
        **{name: values for name, values in of_critic.items() if any(value is not None for value in values)},
    )


def _numbered(names: Sequence[str]) -> list[str]:
    """The names, those that stand there twice with a number behind."""
    seen: dict[str, int] = {}
    numbered = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        numbered.append(f"{name} ({seen[name]})" if names.count(name) > 1 else name)
    return numbered


def _subtitle(row: RunRow) -> str:
    model = row.model.rsplit("/", 1)[-1] if row.model.startswith("/") else row.model
    return " · ".join(part for part in (row.algo, model) if part)


def _image(image: bytes) -> str:
    if not image:
        return ""
    style = f"width:100%;background:{PAPER};border-radius:6px;margin:10px 0"
    words = "Reward, KL, time per phase, speed and memory of the runs"
    return f'<img alt="{words}" style="{style}" src="data:image/png;base64,{b64encode(image).decode()}">'
