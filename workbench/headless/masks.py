"""What is nobody else's business in the text of a notebook: tokens, and whose home folder it was made in."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HIDDEN = "***"
SHORTEST = 8  # characters of a secret: a shorter one would be found in words by chance
_SECRET_NAME = re.compile(r"TOKEN|API_?KEY|ACCESS_?KEY|SECRET|PASSW", re.IGNORECASE)

_NAMES = "api_?key|access_?key|secret|passwo?r?d|pwd"
_GIVEN = r"""["']?\]?\s*[=:]\s*[bfru]{0,2}["']"""  # key = "...", {"key": "..."}, environ["KEY"] = b"..."

# What is found, and the pattern; where it has groups the first and the last stay, and what lies between is hidden.
_TOKENS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a Hugging Face token", re.compile(r"\bhf_[A-Za-z0-9]{20,}\b")),
    ("a GitHub token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,})\b")),
    ("an API key", re.compile(r"\bsk-[A-Za-z0-9_-]{20,}")),
    ("an AWS key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a bearer token", re.compile(r"(\bBearer )[A-Za-z0-9._~+/=-]{8,}()")),
    ("a password in an address", re.compile(r"(\b\w+://[^\s/:@]*:)[^\s/@]+(@)")),
    ("a Slack token", re.compile(r"\bxox[abeprs]-[A-Za-z0-9-]{10,}")),
    ("a GitLab token", re.compile(r"\bglpat-[\w-]{20,}")),
    ("a Google key", re.compile(r"\bAIza[\w-]{35}")),
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)),
    ("a password in a header", re.compile(r"(\bAuthorization\W+Basic )[A-Za-z0-9+/=]{8,}()", re.I)),
    ("a key of Weights & Biases", re.compile(r"""(\bwandb\.login\([^)\n]*?["'])[0-9a-f]{40}(["'])""")),
    # a token is often one of a text, "<|endoftext|>"; a password has any letters
    ("a secret that is given by name", re.compile(rf"""(\b(?:\w*_)?token{_GIVEN})[\w.~+/=-]{{8,}}(["'])""", re.I)),
    ("a secret that is given by name", re.compile(rf"""(\b\w*(?:{_NAMES})\w*{_GIVEN})[^"'\n]{{8,}}(["'])""", re.I)),
    ("a secret that is given by name", re.compile(r"""(\b[A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD)["']\s*,\s*["'])[^"'\n]{8,}(["'])""")),
    ("a secret that is given by name", re.compile(r"(\b[A-Z_]*(?:TOKEN|API_?KEY|SECRET|PASSWORD)=)[\w.~+/-]{8,}()")),
    ("a token in an address", re.compile(r"([?&](?:access_)?token=)[\w.~+/-]{8,}()")),
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_HOMES = re.compile(r"""(?<![\w.])(?:/(?:home|Users)/[^/\s"'<>:,)]+|/root(?=/)|[A-Za-z]:\\{1,2}Users\\{1,2}[^\\\s"'<>:,)]+)""")


@dataclass
class Masks:
    """Hides secrets in texts, and remembers of what kinds they were. ``secrets``: texts that are hidden wherever they stand."""

    secrets: Mapping[str, str] = field(default_factory=dict)  # the text -> what it is
    home: str = ""
    tokens: list[str] = field(default_factory=list)  # what was hidden since the last ``taken``
    homes: int = 0

    @classmethod
    def of_this_machine(cls, environ: Mapping[str, str] | None = None) -> "Masks":
        """Masks that know the secrets in this process's environment, by the names of the variables, and this user's home folder."""
        found = os.environ if environ is None else environ
        named = {value: f"the value of {name}" for name, value in found.items() if _SECRET_NAME.search(name) and len(value) >= SHORTEST}
        home = str(Path.home())
        return cls(dict(sorted(named.items(), key=lambda pair: -len(pair[0]))), home if len(Path(home).parts) > 2 else "")

    def hide(self, text: str) -> str:
        """``text`` with its secrets as "***", and home folders as "~". Where a terminal's colours cut through words, those go with them."""
        plain = _COLOURS.sub("", text)
        hidden = self._hide(plain)
        return text if hidden == plain else hidden

    def _hide(self, text: str) -> str:
        for secret, what in self.secrets.items():
            text = self._replaced(text, re.compile(re.escape(secret)), what)
        for what, pattern in _TOKENS:
            text = self._replaced(text, pattern, what)
        homes = re.compile(rf"{re.escape(self.home)}(?![\w-])|{_HOMES.pattern}") if self.home else _HOMES
        text, count = homes.subn("~", text)
        self.homes += count
        return text

    def taken(self) -> tuple[list[str], int]:
        """The kinds of secrets, and how many home folders were hidden since this was last asked."""
        found = list(dict.fromkeys(self.tokens)), self.homes
        self.tokens, self.homes = [], 0
        return found

    def _replaced(self, text: str, pattern: re.Pattern[str], what: str) -> str:
        kept = (lambda match: f"{match[1]}{HIDDEN}{match[2]}") if pattern.groups else (lambda _: HIDDEN)
        found, count = pattern.subn(kept, text)
        if found != text:  # what was hidden before is found again and stays as it is
            self.tokens += [what] * count
        return found
