"""Which findings of a run are open: signs go in step by step, what begins or ends comes out."""

from collections.abc import Sequence
from dataclasses import replace

from workbench.findings import CODES
from workbench.records import Seen
from workbench.telemetry.window import Sign


class Ledger:
    """A finding begins with its first sign, and is over after ``calm`` steps without one."""

    def __init__(self, calm: int) -> None:
        self.open: dict[str, Seen] = {}  # code -> as it began
        self._calm, self._quiet = calm, dict[str, int]()  # code -> steps without its sign

    def enter(self, step: int, signs: Sequence[Sign]) -> list[Seen]:
        """What ends and what begins with the signs of ``step``."""
        return [*self._ended(step, {sign.code for sign in signs}), *self._begun(step, signs)]

    def _begun(self, step: int, signs: Sequence[Sign]) -> list[Seen]:
        new = [sign for sign in signs if sign.code not in self.open]
        for sign in new:
            code = CODES[sign.code]
            self.open[sign.code] = Seen(sign.code, code.title, code.severity, step, sign.since, sign.found, sign.fix)
        return [self.open[sign.code] for sign in new]

    def _ended(self, step: int, shown: set[str]) -> list[Seen]:
        for code in self.open:
            self._quiet[code] = 0 if code in shown else self._quiet.get(code, 0) + 1
        over = [code for code in self.open if self._quiet[code] >= self._calm]
        for code in over:
            del self._quiet[code]
        return [replace(self.open.pop(code), step=step, ended=True) for code in over]
