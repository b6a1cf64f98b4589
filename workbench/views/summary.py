"""``run.summary()``: what was gained, what it cost, and the proof that the engine sampled from the weights just trained."""

import math
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from workbench.events import Event, standing
from workbench.metrics import Metrics, findings, mean_of_known, metrics, with_critic
from workbench.records import HeldOut, Seen, Step, Sync, mean
from workbench.views.frame import STARVED
from workbench.views.marks import Mark, when
from workbench.views.report import CHANGES, Report, report
from workbench.views.tables import Table, as_html, as_text
from workbench.views.text import NOTHING, duration, number, shorten, size, visible

CUT = 0.5  # of all completions: worth a word
NAME = 32  # characters of a part of the reward


@dataclass(frozen=True)
class Summary:
    """A run in numbers and curves. ``metrics`` is what ``metrics.json`` holds; ``report`` draws the curves."""

    metrics: Metrics
    report: Report
    tables: tuple[Table, ...]

    @property
    def heading(self) -> str:
        """One line: which run, its state, how long."""
        frame = self.report.frame
        steps = f"{self.metrics.steps} steps in {duration(self.metrics.seconds)}"
        return " · ".join(part for part in (frame.title, frame.subtitle, frame.state, steps) if part)

    @property
    def html(self) -> str:
        """Tables side by side, the curves beneath."""
        error = self.report.frame.error
        failed = f'<pre style="white-space:pre-wrap;font-size:12px">{escape(error)}</pre>' if error else ""
        tables = "".join(as_html(table) for table in self.tables)
        heading = f'<div style="font-weight:600;font-size:14px;margin-bottom:8px">{escape(self.heading)}</div>'
        return (
            f'<div style="max-width:960px">{heading}{failed}'
            f'<div style="display:flex;flex-wrap:wrap;gap:16px 32px;font-size:13px">{tables}</div>{self.report.curves}</div>'
        )

    @property
    def text(self) -> str:
        """The same for a terminal."""
        parts = [self.heading, self.report.frame.error, *(as_text(table) for table in self.tables)]
        return "\n\n".join(part for part in parts if part)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        image = {"image/png": b64encode(self.report.png).decode()} if self.report.png else {}
        return {"text/plain": self.text, "text/html": self.html, **image}


def summary(events: Iterable[Event]) -> Summary:
    """The summary of the run that wrote ``events``, at whatever point it is. What a restore undid is left out."""
    events = standing(events)
    steps = {event.data["step"]: event.record for event in events if event.kind == "step"}
    made = [step for step in steps.values() if isinstance(step, Step)]
    held_out = {event.data["step"]: event.record for event in events if event.kind == "held_out"}
    syncs = [event.record for event in events if event.kind == "sync"]
    numbers, told = metrics(events), report(events)
    tables = (
        _findings(findings(events)),
        _reward([point for _, point in sorted(held_out.items()) if isinstance(point, HeldOut)], numbers),
        _parts(made),
        _learning(made),
        _critic(made),
        _phases(made, numbers),
        _proof([sync for sync in syncs if isinstance(sync, Sync)], numbers),
        _cost(numbers),
        _changes(told.chart.marks),
    )
    return Summary(numbers, told, tuple(table for table in tables if table.rows))


def _findings(seen: Sequence[Seen]) -> Table:
    """Open ones with what was seen and what to do; of those that are over that they were."""
    rows: list[tuple[str, str, str]] = []
    for one in sorted(seen, key=lambda one: one.ended):
        if one.ended:
            rows.append((one.code, f"steps {one.since}–{one.step}", f"{one.title}: over"))
        else:
            rows.append((f"{one.code} {one.severity}", f"since step {one.since}", visible(f"{one.title}: {one.found}")))
            rows.append(("", "fix", visible(one.fix)))
    return Table("Findings", ("", "", ""), tuple(rows), "<<<")


def _reward(points: Sequence[HeldOut], numbers: Metrics) -> Table:
    ends = (points[0], points[-1]) if len(points) > 1 else points
    rows = [
        (name, f"{point.reward_mean:.3f}", f"± {point.stderr:.3f}", f"step {point.step}, {point.prompts} prompts")
        for name, point in zip(("before", "after"), ends, strict=False)
    ]
    gain = numbers.held_out_reward
    if gain.before is not None and gain.after is not None:
        rows.append(("gain", f"{gain.after - gain.before:+.3f}", f"± {gain.stderr:.3f}", ""))
    how = f"at temperature {points[0].temperature:g}" if points and points[0].temperature else "greedy"
    return Table(f"Held-out reward, {how}", ("", "mean", "std error", ""), tuple(rows), "<>><")


def _parts(steps: Sequence[Step]) -> Table:
    """What the reward tells of itself: means over the first and the last tenth of the steps."""
    count = math.ceil(len(steps) / 10)
    names = dict.fromkeys(name for step in steps for name in step.reward_numbers)
    ends = (steps[:count], steps[-count:]) if len(steps) > 1 else (steps,)
    rows = [
        (visible(shorten(name, NAME)), *(number(mean_of_known(step.reward_numbers.get(name) for step in end)) for end in ends))
        for name in names
    ]
    heads = tuple(f"{which} {count} steps" if count > 1 else f"{which} step" for which in ("first", "last"))
    return Table("Parts of the reward", ("", *heads[: len(ends)]), tuple(rows), "<>>"[: len(ends) + 1])


def _learning(steps: Sequence[Step]) -> Table:
    """What there was to learn from; said where it was not all. To a critic every completion is something, whatever its group is."""
    groups, flat = sum(step.groups for step in steps), sum(step.groups_without_variance for step in steps)
    skipped = sum(step.skipped for step in steps)
    rows = [("groups without variance", f"{flat} of {groups}", "their completions scored alike")] if flat and not with_critic(steps) else []
    if skipped:
        rows.append(("steps skipped", f"{skipped} of {len(steps)}", "too hard, or too easy?"))
    cut = mean([step.truncated_fraction for step in steps])
    if cut > CUT:
        rows.append(("completions cut at max_tokens", f"{100 * cut:.0f} %", "an answer that isn't finished can't be right"))
    rounds = mean([step.rounds for step in steps])
    if rounds > 1:
        rows.append(("rounds of sampling", number(rounds), "a step, for groups with a variance"))
    return Table("What there was to learn from", ("", "", ""), tuple(rows), "<><")


def _critic(steps: Sequence[Step]) -> Table:
    """How the values came to fit the returns, and the weight of the KL where it moved."""
    learnt = with_critic(steps)
    rows = []
    if learnt:
        clipped = mean_of_known(step.value_clip_fraction for step in learnt)
        rows = [
            ("value loss", _course([step.value_loss for step in learnt]), "half the squared error of a value"),
            ("explained variance", _course([step.explained_variance for step in learnt]), "0: no better than the mean return"),
            ("values held by the clip", NOTHING if clipped is None else f"{100 * clipped:.1f} %", "of response tokens"),
        ]
    weights = [step.kl_weight for step in steps if step.kl_weight is not None]
    if learnt and len(set(weights)) > 1:
        turns = f"between {min(weights):.3g} and {max(weights):.3g}"
        rows.append(("weight of the KL", f"{weights[0]:.3g} → {weights[-1]:.3g}", turns))
    if alone := sum(not step.tokens_trained for step in learnt):
        rows.append(("steps for the critic alone", f"{alone} of {len(steps)}", "the actor waited"))
    return Table("What the critic learnt, first step to last", ("", "", ""), tuple(rows), "<><")


def _course(values: Sequence[float | None]) -> str:
    """The first and the last."""
    return " → ".join(map(number, (values[0], values[-1]) if len(values) > 1 else values))


def _phases(steps: Sequence[Step], numbers: Metrics) -> Table:
    spent = {phase: sum(step.phase_seconds.get(phase, 0.0) for step in steps) for phase in numbers.phase_seconds}
    rows = [
        (phase, duration(seconds.p50), duration(seconds.p95), _share(spent[phase], numbers.seconds))
        for phase, seconds in numbers.phase_seconds.items()
    ]
    waited = math.fsum(step.data_wait_seconds for step in steps)
    if waited > STARVED * numbers.seconds:
        rows.append(("in rollout: waiting for prompts", "", "", _share(waited, numbers.seconds)))
    rested = math.fsum(step.rested_seconds for step in steps)
    if rested > 0:
        when_ = ", ".join(str(step.step) for step in steps if step.rested_seconds > 0)
        rows.append((f"besides: waited for a reward service at step {when_}", "", "", duration(rested)))
    other = numbers.seconds - sum(spent.values())
    if rows and abs(other) > 0.005 * numbers.seconds:
        # On devices apart critic and actor work at the same time: then the phases are longer than the steps.
        rows.append(("between phases" if other > 0 else "at the same time", "", "", _share(other, numbers.seconds)))
    return Table("Time in a step", ("phase", "p50", "p95", "share"), tuple(rows), "<>>>")


def _changes(marks: Sequence[Mark]) -> Table:
    """Knobs that were turned, and restores; of many the last."""
    rows = [(when(mark), text) for mark in marks for text in mark.texts]
    title = "Changed while it ran" + (f": the last {CHANGES} of {len(rows)}" if len(rows) > CHANGES else "")
    return Table(title, ("", ""), tuple(rows[-CHANGES:]), "<<")


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole > 0 else number(None)


def _proof(syncs: Sequence[Sync], numbers: Metrics) -> Table:
    """A ``Sync`` is written once its checksum was found in the engine; a mismatch ends the run instead."""
    found = numbers.sync
    rows = []
    if syncs:
        rows = [
            ("syncs", number(len(syncs)), "every checksum matched"),
            ("last", f"version {syncs[-1].version}", syncs[-1].checksum[:16]),
            ("a sync moves", size(found.bytes), syncs[-1].mode),
            *_rewritten(syncs[-1]),
            ("push", duration(found.seconds), "mean"),
            ("proof", duration(mean([sync.proof_seconds for sync in syncs])), "mean"),
        ]
    if found.max_logprob_diff is not None:
        rows += [
            ("largest |Δ log p|", number(found.max_logprob_diff), "engine against trainer, any token"),
            ("mean |Δ log p|", number(found.mean_logprob_diff), "over sampled tokens"),
        ]
    return Table("Proof: the engine samples from the weights just trained", ("", "", ""), tuple(rows), "<><")


def _rewritten(sync: Sync) -> list[tuple[str, str, str]]:
    """What a sync of whole weights writes, and what rounding takes of the adapter."""
    rows = [("it writes", size(sync.written), "of each engine's own weights")] if sync.written else []
    if sync.rounding is not None:
        rows.append(("rounding", number(sync.rounding), "norm of what is lost, in norms of what the adapter adds"))
    return rows


def _cost(numbers: Metrics) -> Table:
    speed, peak = numbers.tokens_per_second, numbers.peak_memory_gib
    known = [
        ("rollout", speed.rollout, f"{number(speed.rollout)} tokens/s"),
        ("training", speed.train, f"{number(speed.train)} tokens/s"),
        ("peak memory", peak, f"{number(peak)} GiB"),
        ("engine", numbers.rollout_engine, numbers.rollout_engine or ""),
    ]
    return Table("Speed and memory", ("", ""), tuple((name, text) for name, value, text in known if value is not None), "<<")
