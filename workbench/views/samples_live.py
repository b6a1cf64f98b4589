"""``run.watch("samples")``: what was asked and answered in a step, what it was worth, and what was learnt from it.

The browser has one step's samples, a few rows, never all of them: it follows the newest until a person asks for another step.
"""

import threading
import weakref
from collections.abc import Iterable
from html import escape
from typing import Any

import traitlets

from workbench.events import Event, EventLog, standing
from workbench.records import Samples
from workbench.views.badge import in_html, in_text
from workbench.views.described import heading
from workbench.views.live import Live, Shown, source
from workbench.views.now import Now
from workbench.views.text import columns, html_text, number, shorten, visible

LONGEST = 2000  # characters of a text that is sent
_CELL = "padding:3px 12px 3px 0;text-align:left;vertical-align:top;"


class SamplesView(Live):
    """The live view of the samples in one stream. ``watch_samples`` makes it. ``badge``: "replayed", "simulated" or nothing."""

    _esm = source("heading.js", "asking.js", "samples.js")
    _css = source("heading.css", "samples.css")
    now = traitlets.Dict().tag(sync=True)
    page = traitlets.Dict().tag(sync=True)

    def __init__(self, log: EventLog, badge: str = "") -> None:
        self._log, self._badge = weakref.ref(log), badge
        self._now = Now()
        self._newest: Samples | None = None
        self._first = 0  # the first step with samples; 0: none yet
        self._asked_for: Samples | None = None  # of the step that a person asked for; None: the newest is followed
        self._answers = 0
        self._lock = threading.Lock()
        super().__init__(log)
        self.on_msg(self._asked)

    @property
    def state(self) -> str:
        """The run's state after the events so far; "new" before the first."""
        return self._now.state

    def take(self, event: Event) -> bool:
        """Take in one event; quick, and draws nothing."""
        with self._lock:
            if isinstance(record := event.record if event.kind == "samples" else None, Samples):
                self._newest, self._first = record, self._first or record.step
                return True
            return self._now.feed(event)

    def send(self) -> None:
        """The words, and the samples where others are shown now."""
        with self._lock:
            head, page = heading(self._now, self._badge), self._described()
        with self.hold_sync():
            self.page = page
            self.now = head

    def _described(self) -> dict[str, Any]:
        shown, newest = self._asked_for or self._newest, self._newest
        if shown is None or newest is None:
            return {"step": 0, "first": 0, "last": 0, "follows": True, "rows": [], "answer": self._answers}
        steps = {"step": shown.step, "first": self._first, "last": newest.step, "follows": self._asked_for is None}
        return {**steps, "rows": rows(shown), "answer": self._answers}

    def _asked(self, _: object, content: Any, __: object) -> None:
        """A person asked for the samples of a step, or of the last one before it that has some; None: the newest again."""
        step = content.get("step", "") if isinstance(content, dict) else ""
        log = self._log()
        if log is None or not (step is None or isinstance(step, int)):
            return
        found = None if step is None else at_step(log.events, step)
        with self._lock:
            self._answers += 1
            self._asked_for = found
        self.update()

    @property
    def samples(self) -> Samples | None:
        """The newest; None before the first."""
        return self._newest

    def __repr__(self) -> str:
        return in_text(text(self._newest, self._now.sentence), self._badge)

    def twin(self) -> dict[str, str]:
        """The newest samples as a table."""
        return {"text/plain": repr(self), "text/html": html(self._newest, self._now.sentence, self._badge)}


def at_step(events: Iterable[Event], step: int) -> Samples | None:
    """The samples of ``step``, or of the last step before it that has some, or of the first that has."""
    found = [record for event in standing(events) if event.kind == "samples" and isinstance(record := event.record, Samples)]
    before = [samples for samples in found if samples.step <= step]
    return before[-1] if before else found[0] if found else None


def rows(samples: Samples) -> list[dict[str, Any]]:
    """For a browser: texts with nothing invisible in them, and numbers as they are read."""
    largest = max((abs(value) for value in samples.advantages), default=0.0) or 1.0
    columns = (samples.prompts, samples.completions, samples.answers, samples.rewards, samples.advantages)
    return [
        {
            "prompt": _lines(prompt),
            "completion": _lines(completion),
            "answer": _lines(answer),
            "reward": number(reward),
            "advantage": signed(advantage),
            "share": round(advantage / largest, 3),
        }
        for prompt, completion, answer, reward, advantage in zip(*columns, strict=False)
    ]


def signed(advantage: float) -> str:
    """An advantage with its sign."""
    return f"+{number(advantage)}" if advantage > 0 else number(advantage).replace("-", "−")


def _lines(text: str) -> str:
    """``text`` with its line ends, and with marks for all else that can't be seen."""
    return "\n".join(visible(line) for line in shorten(str(text), LONGEST).split("\n"))


def text(samples: Samples | None, title: str) -> str:
    """The samples for a terminal."""
    if samples is None:
        return f"{title}\nno samples yet"
    cells = [
        (shorten(visible(row["prompt"]), 44), shorten(visible(row["completion"]), 60), row["reward"], row["advantage"])
        for row in rows(samples)
    ]
    return "\n".join(
        [f"{title} · samples of step {samples.step}", *columns([("prompt", "completion", "reward", "advantage"), *cells], "<<>>")]
    )


def html(samples: Samples | None, title: str, badge: str = "") -> str:
    """The samples as a table with inline styles only, in the colours of the page around it."""
    if samples is None:
        return f"<pre>{escape(in_text(text(samples, title), badge))}</pre>"
    names = "".join(f'<th style="{_CELL}font-weight:600">{name}</th>' for name in ("prompt", "completion", "answer", "reward", "advantage"))
    columns = zip(samples.prompts, samples.completions, samples.answers, samples.rewards, samples.advantages, strict=False)
    body = "".join(
        f'<tr>{"".join(f"""<td style="{_CELL}"><code>{html_text(str(cell), 400)}</code></td>""" for cell in texts)}'
        f'<td style="{_CELL}">{number(reward)}</td><td style="{_CELL}">{signed(advantage)}</td></tr>'
        for *texts, reward, advantage in columns
    )
    head = f'<b>{escape(title)}</b> <span style="opacity:0.72">· samples of step {samples.step}</span>{in_html(badge)}'
    style = "font-size:12px;border-collapse:collapse;margin:4px 0"
    return f'<div style="font-size:12px">{head}<table style="{style}"><tr>{names}</tr>{body}</table></div>'


_views: Shown[SamplesView] = Shown()


def watch_samples(log: EventLog, badge: str = "") -> SamplesView:
    """The view of the samples in ``log``. Asked again it is the same one: shown twice, run once."""
    return _views.of(log) or _views.keep(log, SamplesView(log, badge))


def refresh(log: EventLog) -> None:
    """Bring the static twin in the outputs of ``log``'s view up to date, where there is one."""
    _views.refresh(log)
