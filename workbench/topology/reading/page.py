"""A pasted text as plain lines: what terminals, logs and editors put around the tools' output is taken off."""

import re
from dataclasses import dataclass
from functools import cached_property

# Escape sequences of terminals; also where the escape character itself was lost, or written out by `cat -v`.
_ESCAPES = re.compile(
    r"(?:\x1b|\^\[|\\x1b|\\033|\\u001b|\\e)(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*\x07?|[()][AB0])|\[\d{1,3}(?:;\d{1,3}){0,4}m"
)
_BLANKS = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_INVISIBLE = re.compile("[\ufeff\u200b-\u200f\u2060\x00\x08\x1b]")
_CLOSING = "|\u2502\"'`\\ "
_CLOSING_ENDS = tuple(_CLOSING.strip())
_WRITTEN_OUT = re.compile(r"GPU\d{1,4} ?\\[nt]|\\[nt] ?GPU\d")
_NEWLINES = re.compile(r"\r+\n?|[\x0b\x0c\x85\u2028\u2029]")


@dataclass(frozen=True)
class Page:
    """A text in lines. ``ended``: whether a blank follows the last word, so that the word was not cut."""

    text: str
    ended: bool

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines, without bars and quotes at their ends; the cells of a Markdown table as after tabs."""
        return tuple(_bare(line) for line in self.text.split("\n"))

    @cached_property
    def last(self) -> int:
        """The number of the last line that is not blank; -1 where all are."""
        return next((number for number in range(len(self.lines) - 1, -1, -1) if self.lines[number].strip()), -1)


def clean(text: str) -> Page:
    """``text`` without escape sequences and invisible characters, with plain blanks and line ends."""
    if ("\\n" in text and "\n" not in text.strip()) or _WRITTEN_OUT.search(text):  # a string of a log or of source code
        text = text.replace("\\r", "").replace("\\n", "\n").replace("\\t", "\t")
    text = _INVISIBLE.sub("", _ESCAPES.sub("", text))
    text = _NEWLINES.sub("\n", _BLANKS.sub(" ", text))
    return Page(text, not text or text[-1].isspace())


def _bare(line: str) -> str:
    """ "| GPU0 | X | NV12 |" with tabs for bars; and any line without what closes it."""
    if line.count("|") >= 3:
        return re.sub(r" *\| *", "\t", line.strip().strip("|"))
    closed = line.rstrip()
    return closed.rstrip(_CLOSING) if closed.endswith(_CLOSING_ENDS) else line
