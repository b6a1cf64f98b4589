"""The static twin of the curves: what stands in a notebook that ran headless, on GitHub, in a terminal."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

from workbench.events import Event
from workbench.palette import PAPER, tint
from workbench.records import Seen
from workbench.views.badge import in_html, in_text
from workbench.views.chart import Chart, chart
from workbench.views.figure import png
from workbench.views.frame import Fact, Frame, Sample, frame
from workbench.views.history import History
from workbench.views.marks import Mark, when
from workbench.views.text import columns, number, shorten, spark, visible

# Only inline styles: JupyterLab takes <style> out of an untrusted notebook. Colours are translucent or inherited, so that
# the page reads well in a light and in a dark theme.
_MUTED = "opacity:0.72"
CHANGES = 12  # lines at most


@dataclass(frozen=True)
class Report:
    """The state and the curves of a run at one moment, as HTML, PNG and text."""

    frame: Frame
    chart: Chart
    badge: str = ""  # of a run that is not live

    @cached_property
    def png(self) -> bytes:
        """The curves as a PNG; empty before the first step."""
        return png(self.chart) if self.chart.first else b""

    @cached_property
    def curves(self) -> str:
        """The figure as HTML; beneath it the further curves, folded away, where there are any."""
        chart = self.chart
        words = ", ".join(panel.title for panel in chart.panels)
        folded = figure(png(chart, chart.more), ", ".join(panel.title for panel in chart.more)) if chart.more else ""
        fold = f'<details style="font-size:12px"><summary>{escape(chart.fold)}</summary>{folded}</details>' if folded else ""
        return figure(self.png, words) + fold

    @property
    def html(self) -> str:
        """State, numbers, findings, curves and samples."""
        parts = (
            _head(self.frame, self.badge),
            _findings(self.frame),
            self.curves,
            _changes(self.chart),
            _samples(self.frame),
            _error(self.frame),
        )
        return f'<div style="max-width:960px">{"".join(parts)}</div>'

    @property
    def text(self) -> str:
        """The same for a terminal; the courses of the lines as blocks, low to high."""
        lines = [" · ".join(part for part in (self.frame.title, self.frame.subtitle, self.frame.state, self.frame.count) if part)]
        lines += [part for part in (self.frame.clock, self.frame.status) if part]
        lines += columns([(fact.label, fact.value, fact.note) for fact in self.frame.facts], "<<<")
        lines += [line for seen in self.frame.findings for line in ("", *in_words(seen))]
        lines += _courses(self.chart)
        lines += [f"  {line}" for line in changes(self.chart.marks)] + [""] * bool(self.chart.marks)
        lines += [f"  {sample.prompt} {sample.completion}  ({sample.reward})" for sample in map(_shorter, self.frame.samples)]
        return in_text("\n".join([*lines, self.frame.error] if self.frame.error else lines), self.badge)

    def __repr__(self) -> str:
        return self.text

    def bundle(self) -> dict[str, str]:
        """MIME type to content. JupyterLab shows the first of HTML and PNG that it knows, so the HTML holds the figure too."""
        image = {"image/png": b64encode(self.png).decode()} if self.png else {}
        return {"text/plain": self.text, "text/html": self.html, **image}

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.bundle()


def report(events: Iterable[Event]) -> Report:
    """The static twin of ``run.watch()`` for a run that wrote ``events``."""
    history = History(events)
    return Report(frame(history), chart(history))


def figure(image: bytes, words: str) -> str:
    """``image`` on paper of its own, as an HTML element; nothing of nothing. ``words``: what it shows over the steps."""
    if not image:
        return ""
    source = b64encode(image).decode()
    style = f"width:100%;background:{PAPER};border-radius:6px;margin:8px 0"
    return f'<img alt="{escape(words)} over the steps" style="{style}" src="data:image/png;base64,{source}">'


def fact_cells(facts: Iterable[Fact]) -> str:
    """The numbers that matter, side by side; a line each where a code host takes the styles out."""
    cells = "".join(
        f'<div style="flex:1 1 150px"><span style="display:block;font-size:11px;{_MUTED}">{escape(fact.label)}</span> '
        f'<b style="display:block;font-size:18px;font-weight:600;line-height:26px">{escape(fact.value)}</b> '
        f'<span style="display:block;font-size:11px;{_MUTED}">{escape(fact.note)}</span></div>'
        for fact in facts
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:12px;margin:10px 0">{cells}</div>'


def changes(marks: Sequence[Mark]) -> list[str]:
    """What changed while it ran, a line for each step; of many the last."""
    before = len(marks) - CHANGES
    lines = [f"{when(mark)}: {mark.text}" for mark in marks[-CHANGES:]]
    return [f"{before} earlier changes", *lines] if before > 0 else lines


def in_words(seen: Seen) -> tuple[str, str]:
    """A finding in two lines: what was seen since when, and what to do."""
    return visible(f"{seen.code} {seen.severity}, since step {seen.since}: {seen.title}: {seen.found}"), f"  fix: {visible(seen.fix)}"


def _findings(frame: Frame) -> str:
    style = f"background:{tint('bad', 0.3)};border-radius:6px;padding:6px 12px;font-size:12px;margin:4px 0"
    said = ("<br>".join(map(escape, in_words(seen))) for seen in frame.findings)
    return "".join(f'<div style="{style}">{words}</div>' for words in said)


def _changes(chart: Chart) -> str:
    if not chart.marks:
        return ""
    lines = "".join(f'<div style="flex:0 1 auto">{escape(line)}</div>' for line in changes(chart.marks))
    return (
        f'<div style="font-size:12px;margin-top:4px"><b>Changed while it ran</b>'
        f'<div style="display:flex;flex-wrap:wrap;gap:1px 20px;{_MUTED}">{lines}</div></div>'
    )


def _head(frame: Frame, badge: str) -> str:
    colour = tint("bad" if frame.state in ("failed", "interrupted") or frame.error else "good", 0.45)
    pill = f'<span style="background:{colour};border-radius:10px;padding:2px 9px;font-size:12px">{escape(frame.state)}</span>'
    title = f'<b style="font-size:14px">{escape(frame.title)}</b> <span style="{_MUTED}">{escape(frame.subtitle)}</span>'
    clock = ", ".join(part for part in (frame.count, frame.clock) if part)
    status = f'<div style="font-size:12px;{_MUTED}">{escape(frame.status)}</div>' if frame.status else ""
    return f'<div>{pill} {title} <span style="{_MUTED}">· {escape(clock)}</span>{in_html(badge)}</div>{status}{fact_cells(frame.facts)}'


def _samples(frame: Frame) -> str:
    if not frame.samples:
        return ""
    cell = "padding:3px 10px 3px 0;text-align:left;vertical-align:top"
    rows = "".join(
        f'<tr><td style="{cell}"><code>{escape(sample.prompt)}</code></td><td style="{cell}"><code>{escape(sample.completion)}</code></td>'
        f'<td style="{cell}"><code>{escape(sample.answer)}</code></td><td style="{cell}">{escape(sample.reward)}</td></tr>'
        for sample in frame.samples
    )
    names = "".join(f'<th style="{cell};font-weight:600">{name}</th>' for name in ("prompt", "completion", "answer", "reward"))
    return (
        f'<div style="font-size:12px;margin-top:8px"><b>Samples of step {frame.samples_step}</b>'
        f'<table style="font-size:12px;border-collapse:collapse;margin:4px 0"><tr>{names}</tr>{rows}</table></div>'
    )


def _error(frame: Frame) -> str:
    if not frame.error:
        return ""
    style = f"white-space:pre-wrap;background:{tint('bad', 0.3)};border-radius:6px;padding:8px 12px;font-size:12px"
    return f'<pre style="{style}">{escape(frame.error)}</pre>'


def _courses(chart: Chart) -> list[str]:
    """A row of blocks for each curve, between its first and last value; one name and unit per panel."""
    rows: list[tuple[str, str, str, str, str]] = []
    for panel in (*chart.panels, *chart.more):
        title = ", ".join(part for part in (panel.title, panel.unit) if part)
        for line in panel.lines:
            known = [value for value in line.values if value is not None]
            if known:
                rows.append((title, line.name, number(known[0]), spark(line.values), number(known[-1])))
                title = ""
    return ["", *columns(rows, "<<><<"), ""] if rows else []


def _shorter(sample: Sample) -> Sample:
    return Sample(shorten(sample.prompt, 48), shorten(sample.completion, 60), sample.answer, sample.reward)
