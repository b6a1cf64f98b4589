"""``run.batch``: one step's experience as a table, grouped by prompt."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from workbench.batch import Batch, Completion, Prompt
from workbench.errors import ConfigError
from workbench.palette import tint
from workbench.records import mean
from workbench.views.text import columns, html_text, number, shorten, visible

if TYPE_CHECKING:
    from torch import Tensor

_CELL = "padding:2px 12px 2px 8px;vertical-align:top;"
_NAMES = ("reward", "advantage", "tokens", "end", "completion")


@dataclass(frozen=True)
class BatchTensors:
    """A batch padded on the right: N completions, L tokens in the longest row, B prompts, G completions each."""

    ids: "Tensor"  # (N, L) prompt and response; 0 where there is neither
    response: "Tensor"  # (N, L) bool, the tokens that were sampled
    logp: "Tensor"  # (N, L) the engine's log-probability of each sampled token, else 0
    rewards: "Tensor"  # (B, G)
    advantages: "Tensor"  # (B, G)


@dataclass(frozen=True)
class BatchTable:
    """Prompts, completions, rewards and advantages of ``batch``; the first ``groups`` groups are shown.

    Blue is above zero, orange below, stronger the larger; texts are cut at ``characters``, whole on hover.
    """

    batch: Batch
    groups: int = 4
    characters: int = 160

    def __post_init__(self) -> None:
        if self.groups < 1 or self.characters < 8:
            asked = f"a batch table of {self.groups} groups, {self.characters} characters"
            raise ConfigError(asked, "it needs at least 1 group and 8 characters", "leave them at 4 and 160")

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The batch's prompts, one a group."""
        return self.batch.prompts

    def tensors(self) -> BatchTensors:
        """The batch as tensors."""
        import torch

        batch, groups = self.batch, (len(self.batch.prompts), self.batch.group_size)
        rows = [(batch.prompt_of(row).ids, completion) for row, completion in enumerate(batch.completions)]
        longest = max(len(prompt) + len(completion.ids) for prompt, completion in rows)
        ids, logp = torch.zeros(len(rows), longest, dtype=torch.long), torch.zeros(len(rows), longest)
        response = torch.zeros(len(rows), longest, dtype=torch.bool)
        for row, (prompt, completion) in enumerate(rows):
            end = len(prompt) + len(completion.ids)
            ids[row, :end] = torch.tensor((*prompt, *completion.ids))
            logp[row, len(prompt) : end] = torch.tensor(completion.logp)
            response[row, len(prompt) : end] = True
        return BatchTensors(ids, response, logp, torch.tensor(batch.rewards).view(groups), torch.tensor(batch.advantages).view(groups))

    def show(self, groups: int, characters: int = 160) -> "BatchTable":
        """The same table with more groups, or longer texts: ``run.batch.show(groups=24)``."""
        return BatchTable(self.batch, groups, characters)

    @property
    def html(self) -> str:
        """The table, in the colours of the page around it."""
        head = "".join(
            f'<th style="{_CELL}text-align:{_side(at)};font-weight:400;opacity:0.72">{name}</th>' for at, name in enumerate(_NAMES)
        )
        body = "".join(self._group_html(group) for group in self._shown)
        more = f'<div style="opacity:0.72;margin-top:4px">{escape(self._left_out)}</div>' if self._left_out else ""
        return (
            f'<div style="font-size:13px"><div style="margin-bottom:4px">{escape(self._heading)}</div>'
            f'<table style="border-collapse:collapse;font-size:12px"><tr>{head}</tr>{body}</table>{more}</div>'
        )

    @property
    def text(self) -> str:
        """The same for a terminal."""
        lines = [self._heading]
        for group in self._shown:
            prompt = self.batch.prompts[group]
            lines += ["", f"{shorten(visible(prompt.question), self.characters)}   {self._words(group)}"]
            rows = [
                (*self._numbers(row), shorten(visible(self.batch.completions[row].text), self.characters) or "(empty)")
                for row in self._rows(group)
            ]
            lines += [f"  {line}" for line in columns([_NAMES, *rows], ">>><<")]
        return "\n".join([*lines, "", self._left_out] if self._left_out else lines)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html}

    @property
    def _shown(self) -> range:
        return range(min(self.groups, len(self.batch.prompts)))

    @property
    def _heading(self) -> str:
        batch = self.batch
        parts = [f"{len(batch.prompts)} prompts, {len(batch.completions)} completions"]
        if batch.rewards:
            flat = sum(not self._varies(group) for group in range(len(batch.prompts)))
            parts.append(f"mean reward {number(mean(batch.rewards))}")
            parts += [f"{flat} of {len(batch.prompts)} groups without variance"] if flat else []
        return " · ".join(parts)

    @property
    def _left_out(self) -> str:
        hidden = len(self.batch.prompts) - len(self._shown)
        return f"{hidden} more groups; run.batch.show(groups={len(self.batch.prompts)}) shows all" if hidden else ""

    def _rows(self, group: int) -> range:
        return range(group * self.batch.group_size, (group + 1) * self.batch.group_size)

    def _rewards(self, group: int) -> Sequence[float]:
        return [self.batch.rewards[row] for row in self._rows(group)] if self.batch.rewards else []

    def _varies(self, group: int) -> bool:
        return len(set(self._rewards(group))) > 1

    def _words(self, group: int) -> str:
        """The answer of a group, its mean reward, and whether it teaches anything."""
        answer = self.batch.prompts[group].answer
        parts = [f"answer {shorten(visible(str(answer)), 60)}"] if answer is not None else []
        if self.batch.rewards:
            parts.append(f"mean reward {number(mean(self._rewards(group)))}")
            parts += [] if self._varies(group) else ["no variance"]
        return " · ".join(parts)

    def _numbers(self, row: int) -> tuple[str, str, str, str]:
        completion: Completion = self.batch.completions[row]
        reward = number(self.batch.rewards[row]) if self.batch.rewards else number(None)
        advantage = _signed(self.batch.advantages[row]) if self.batch.advantages else number(None)
        return reward, advantage, str(len(completion.ids)), completion.finish

    def _group_html(self, group: int) -> str:
        flat = bool(self.batch.rewards) and not self._varies(group)
        rows = "".join(self._row_html(row) for row in self._rows(group))
        prompt = html_text(self.batch.prompts[group].question, self.characters)
        mark = ' title="every completion has the same reward: no gradient from this group"' if flat else ""
        style = f"{_CELL}text-align:left;border-top:1px solid rgba(128,138,150,0.3);padding-top:6px"
        return (
            f'<tr><td colspan="{len(_NAMES)}" style="{style}"{mark}><code><b>{prompt}</b></code> '
            f'<span style="opacity:0.72;margin-left:8px">{escape(self._words(group))}</span></td></tr>{rows}'
        )

    def _row_html(self, row: int) -> str:
        shades = (_shade(self.batch.rewards, row), _shade(self.batch.advantages, row), "", "")
        cells = "".join(
            f'<td style="{_CELL}text-align:{_side(at)};{shade}">{escape(text)}</td>'
            for at, (text, shade) in enumerate(zip(self._numbers(row), shades, strict=True))
        )
        completion = html_text(self.batch.completions[row].text, self.characters)
        return f'<tr>{cells}<td style="{_CELL}text-align:left"><code>{completion}</code></td></tr>'


def batch_table(batch: Batch) -> BatchTable:
    """The table that ``run.batch`` shows."""
    return BatchTable(batch)


def _signed(value: float) -> str:
    return f"{value:+.2f}" if value else "0"


def _side(column: int) -> str:
    return "right" if column < 3 else "left"


def _shade(values: Sequence[float], row: int) -> str:
    """A tint by sign, as strong as the value is large beside the largest of the batch; nothing for zero."""
    if not values or not values[row]:
        return ""
    strength = abs(values[row]) / max(abs(value) for value in values)
    return f"background:{tint('good' if values[row] > 0 else 'bad', strength)}"
