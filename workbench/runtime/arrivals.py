"""What came to all ranks at a sync, as one record."""

import math
from collections.abc import Sequence

from workbench.records import Sync
from workbench.rollout.config import TAKES_ADAPTER
from workbench.runtime.plans import Arrival


def arrived(step: int, version: int, mode: str, arrivals: Sequence[Arrival]) -> Sync:
    """``arrivals``: of all ranks of the engines, of ``version`` after ``step``."""
    first, whole = arrivals[0], mode not in TAKES_ADAPTER
    lost = [arrival.rounding for arrival in arrivals if arrival.rounding is not None and math.isfinite(arrival.rounding)]
    return Sync(
        step=step,
        version=version,
        mode=mode,
        bytes=sum(arrival.bytes for arrival in arrivals) if whole else first.bytes,
        seconds=max(arrival.seconds for arrival in arrivals),
        proof_seconds=max(arrival.proof_seconds for arrival in arrivals),
        checksum=first.checksum,
        written=first.written,
        scheduled=sum(arrival.scheduled for arrival in arrivals),
        rounding=max(lost, default=None),
    )
