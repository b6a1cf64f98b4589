"""What goes from whom to whom in a step, derived from the layouts. Plain data: printed as ``run.routes``, obeyed by the team."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from workbench.roles import Role
from workbench.rollout.config import TAKES_ADAPTER
from workbench.runtime.pools import Fan, Pool

DRIVER = "driver"


@dataclass(frozen=True)
class Route:
    """One kind of data on its way. ``bytes``: moved between processes in the last step; None before the first.

    ``how``: "stay" (source and target are one process), "scatter" (each copy of the target gets a slice, its ranks the same one),
    "broadcast" (every rank gets all), "gather" (each copy's first rank gives its slice), "reshard" (each rank of the target gets what it
    lacks from those that have it), "ask" (over HTTP; not counted).
    """

    phase: str
    source: str  # a role, or "driver"
    target: str
    what: str
    how: Literal["stay", "scatter", "broadcast", "gather", "reshard", "ask"]
    fan: Fan
    bytes: int | None = None

    def __str__(self) -> str:
        way = f"{self.source} -> {self.target}"
        spread = {"scatter": f"to {self.fan.copies}", "gather": f"from {self.fan.copies}"}.get(self.how, "")
        spread += f" x {self.fan.width} ranks" if spread and self.fan.width > 1 else ""
        size = "" if self.bytes is None else f"{self.bytes:,} bytes"
        return f"{self.phase:<13} {way:<20} {self.what:<26} {f'{self.how} {spread}'.strip():<22} {size}".rstrip()


class Routes(tuple[Route, ...]):
    """The routes of a run, printed as a table."""

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) or "no routes: every role works in this process"

    def with_bytes(self, moved: Mapping[tuple[str, str], int]) -> "Routes":
        """The same with what was moved. ``moved``: (phase, "there" or "back" or "sync") -> bytes, of the phases that there were."""
        return Routes(replace(route, bytes=moved.get((route.phase, _side(route)))) for route in self)

    def asking(self, url: str) -> "Routes":
        """The same, with the rewards of the service at ``url``."""
        asked = Route("reward", DRIVER, url, "completions", "ask", Fan(1)), Route("reward", url, DRIVER, "rewards", "ask", Fan(1))
        place = max((number + 1 for number, route in enumerate(self) if route.phase == "rollout"), default=0)
        return Routes((*self[:place], *asked, *self[place:]))


def _side(route: Route) -> str:
    return "there" if route.source == DRIVER else "back" if route.target == DRIVER else "sync"


def routes(pools: Sequence[Pool], *, inline: bool, mode: str = "adapter") -> Routes:
    """The routes between the roles of ``pools`` and the driver, in the order of a step.

    ``inline``: all of them are one process. ``mode``: how the engine gets the weights.
    """
    return Routes((*_with(pools, inline), *_sync(pools, mode)))


def _with(pools: Sequence[Pool], inline: bool) -> Iterator[Route]:
    home = {role: pool for pool in pools for role in pool.roles}
    for phase, role, there, back in (
        ("rollout", Role.ROLLOUT, "prompts", "completions"),
        ("reward", Role.REWARD, "completions", "rewards"),
        ("reference", Role.REFERENCE, "rows", "log-probabilities"),
        ("values", Role.CRITIC, "rows", "values"),
        ("update_critic", Role.CRITIC, "rows, values and targets", "statistics"),
        ("update_actor", Role.ACTOR, "rows and advantages", "statistics"),
    ):
        if role not in home:
            continue
        fan = home[role].fan(role)
        yield Route(phase, DRIVER, role, there, "stay" if inline else "scatter", fan)
        yield Route(phase, role, DRIVER, back, "stay" if inline else "gather", fan)


def _sync(pools: Sequence[Pool], mode: str) -> Iterator[Route]:
    home = {role: pool for pool in pools for role in pool.roles}
    if Role.ACTOR not in home or Role.ROLLOUT not in home:
        return
    trained, engine = home[Role.ACTOR], home[Role.ROLLOUT]
    what = {"merged": "base with the adapter", "full": "weights"}.get(mode, "adapter")
    moves = mode not in TAKES_ADAPTER and trained.layout != "ddp" and trained.size > 1
    yield Route(
        "sync",
        Role.ACTOR,
        Role.ROLLOUT,
        what,
        "reshard" if moves else "stay" if trained is engine else "broadcast",
        engine.fan(Role.ROLLOUT),
    )
