"""What several runs answered to the same held-out prompts, before and after: side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from workbench.palette import tint
from workbench.records import Answers
from workbench.views.runs_palette import run_colour
from workbench.views.text import NOTHING, columns, html_text, number, shorten, visible

SHOWN = 6  # prompts
WHEN = ("before", "after")
_CELL = "padding:3px 14px 3px 6px;vertical-align:top;text-align:left;"
_LINE = "border-top:1px solid rgba(128,138,150,0.3);"


@dataclass(frozen=True)
class Said:
    """One answer, at the evaluation after ``step``, and what it was worth."""

    text: str
    reward: float
    step: int


@dataclass(frozen=True)
class AnswerRow:
    """What each run answered to one prompt at its first and at its last evaluation; None where it was not asked (again)."""

    prompt: str
    answer: str
    before: tuple[Said | None, ...]
    after: tuple[Said | None, ...]


def answer_rows(runs: Sequence[Sequence[Answers]]) -> tuple[AnswerRow, ...]:
    """A row for each prompt that all the runs that recorded answers have in common, in the order of the first."""
    asked = [set(run[0].prompts) for run in runs if run]
    if not asked:
        return ()
    first = next(run[0] for run in runs if run)
    shared = [place for place, prompt in enumerate(first.prompts) if all(prompt in prompts for prompts in asked)]
    return tuple(
        AnswerRow(
            prompt=first.prompts[place],
            answer=first.answers[place],
            before=tuple(_said(run[0], first.prompts[place]) if run else None for run in runs),
            after=tuple(_said(run[-1], first.prompts[place]) if len(run) > 1 else None for run in runs),
        )
        for place in shared
    )


def _said(answers: Answers, prompt: str) -> Said | None:
    if prompt not in answers.prompts:
        return None
    place = answers.prompts.index(prompt)
    return Said(answers.completions[place], answers.rewards[place], answers.step)


def answers_html(names: Sequence[str], rows: Sequence[AnswerRow]) -> str:
    """A block for each prompt: a line before training and one after, a column for each run. Blue is worth more."""
    if not rows:
        return ""
    head = "".join(_head_html(at, name) for at, name in enumerate(names))
    largest = max((abs(said.reward) for row in rows for said in (*row.before, *row.after) if said), default=0.0)
    body = "".join(_row_html(row, largest) for row in rows[:SHOWN])
    more = f'<div style="opacity:0.72;font-size:12px">{_left_out(rows)}</div>' if _left_out(rows) else ""
    return (
        '<div style="font-weight:600;margin:8px 0 2px">The same held-out prompts</div><div style="overflow-x:auto">'
        f'<table style="border-collapse:collapse;font-size:12px;margin:0"><tr><th style="{_CELL}"></th><th></th>{head}</tr>{body}</table>'
        f"</div>{more}"
    )


def _head_html(at: int, name: str) -> str:
    mark = f'<span style="color:{run_colour(at)}">■</span>'
    return f'<th style="{_CELL}font-weight:400;white-space:nowrap">{mark} {escape(shorten(name, 34))}</th>'


def _row_html(row: AnswerRow, largest: float) -> str:
    right = f'<div style="opacity:0.72;font-size:11px">answer {html_text(row.answer, 60)}</div>' if row.answer else ""
    asked = f'<code style="white-space:pre-wrap;background:none"><b>{html_text(row.prompt, 120)}</b></code>{right}'
    prompt = f'<td rowspan="2" style="{_CELL}{_LINE}padding-left:0;min-width:120px">{asked}</td>'
    lines = []
    for at, (when, said) in enumerate(zip(WHEN, (row.before, row.after), strict=True)):
        line = _LINE if at == 0 else ""
        cells = "".join(_said_html(one, largest, line) for one in said)
        lines.append(f'<tr>{prompt if at == 0 else ""}<td style="{_CELL}{line}opacity:0.72">{when}</td>{cells}</tr>')
    return "".join(lines)


def _said_html(said: Said | None, largest: float, line: str) -> str:
    if said is None:
        return f'<td style="{_CELL}{line}opacity:0.6">{NOTHING}</td>'
    shade = f"background:{tint('good' if said.reward > 0 else 'bad', abs(said.reward) / largest)};" if said.reward else ""
    worth = f'<span style="opacity:0.72;margin-left:8px">{number(said.reward)}</span>'
    text = f'<code style="background:none">{html_text(said.text, 120)}</code>'
    return f'<td style="{_CELL}{line}{shade}" title="step {said.step}">{text}{worth}</td>'


def answers_text(names: Sequence[str], rows: Sequence[AnswerRow]) -> str:
    """The same for a terminal."""
    if not rows:
        return ""
    lines: list[tuple[str, ...]] = [("", "", *(shorten(name, 34) for name in names))]
    for row in rows[:SHOWN]:
        for when, said in zip(WHEN, (row.before, row.after), strict=True):
            prompt = f"  {shorten(visible(row.prompt), 40)}" if when == WHEN[0] else ""
            lines.append((prompt, when, *(_said_text(one) for one in said)))
    found = ["The same held-out prompts", *columns(lines, "<" * (len(names) + 2))]
    return "\n".join([*found, _left_out(rows)] if _left_out(rows) else found)


def _said_text(said: Said | None) -> str:
    return f"{shorten(visible(said.text), 40) or '(empty)'}  ({number(said.reward)})" if said else NOTHING


def _left_out(rows: Sequence[AnswerRow]) -> str:
    return f"{len(rows) - SHOWN} more prompts in .answers" if len(rows) > SHOWN else ""
