"""``run.generate(prompt)``: what the trained model says, beside the base it came from."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.batch import Completion
from workbench.palette import tint
from workbench.views.text import html_text, visible

Answer = str | Completion | Sequence[str | Completion]


@dataclass(frozen=True)
class Comparison:
    """Answers to one prompt: ``trained[i]`` beside ``base[i]``, where there still is a base; several when several were sampled."""

    prompt: str
    trained: tuple[str, ...]
    base: tuple[str, ...]

    @property
    def html(self) -> str:
        """Two columns, in the colours of the page around them; whitespace is visible, long texts whole on hover."""
        shown = [
            ("trained", self.trained, tint("good", 1)),
            ("base", self.base, "rgba(128,138,150,0.4)"),
        ]
        columns = "".join(
            f'<td style="width:50%;vertical-align:top;text-align:left;padding:8px 12px;border-left:3px solid {edge}">'
            f'<div style="font-size:11px;opacity:0.72;margin-bottom:3px">{name}</div>{_answers_html(answers)}</td>'
            for name, answers, edge in shown
            if answers
        )
        prompt = html_text(self.prompt, 600, breaks=True)
        return (
            f'<div style="font-size:13px;max-width:960px"><code style="white-space:pre-wrap"><b>{prompt}</b></code>'
            f'<table style="width:100%;table-layout:fixed;border-collapse:collapse;margin-top:6px"><tr>{columns}</tr></table></div>'
        )

    @property
    def text(self) -> str:
        """The same for a terminal; a line break is shown as one."""
        rows = [("prompt", (self.prompt,)), ("trained", self.trained), ("base", self.base)]
        return "\n".join(f"{name if at == 0 else '':8} {_indented(answer)}" for name, answers in rows for at, answer in enumerate(answers))

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html}


def comparison(prompt: str, trained: Answer, base: Answer | None) -> Comparison:
    """Put the answers of the trained model beside those of its base; one text or completion each, or as many as were sampled.

    ``base``: None where there is none any more.
    """
    return Comparison(prompt, _texts(trained), () if base is None else _texts(base))


def _texts(answers: Answer) -> tuple[str, ...]:
    if isinstance(answers, str | Completion):
        answers = (answers,)
    return tuple(answer.text if isinstance(answer, Completion) else answer for answer in answers)


def _answers_html(answers: Sequence[str]) -> str:
    style = "white-space:pre-wrap;overflow-wrap:anywhere;margin-bottom:6px"
    return "".join(f'<div style="{style}"><code>{html_text(answer, 1200, breaks=True)}</code></div>' for answer in answers)


def _indented(text: str) -> str:
    return f"\n{'':9}".join(visible(line) for line in text.split("\n")) or "(empty)"
