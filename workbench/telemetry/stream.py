"""What is found in a stream of events, a call at a time, restores included."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence

from workbench.events import Event, standing
from workbench.records import Seen


class Stream(ABC):
    """After a restore it looks anew at all that stands, so that it knows what it would have known."""

    def __init__(self) -> None:
        self._read = -1  # the number of the last event that was looked at; some before it may be gone
        self._begin()

    def news(self, events: Sequence[Event]) -> list[Seen]:
        """What began or ended with the steps since the last call; where it had to look anew, with the last step alone."""
        fresh = events[bisect_right(events, self._read, key=lambda event: event.seq) :]
        anew = self._read < 0 or any(event.kind == "restored" for event in fresh)
        self._read = fresh[-1].seq if fresh else self._read
        if not anew:
            return self._follow(fresh)
        self._begin()
        found = self._follow(standing(events))
        last = max((event.data["step"] for event in fresh if event.kind == "step"), default=0)
        return [seen for seen in found if seen.step == last]

    @abstractmethod
    def _begin(self) -> None:
        """Know nothing."""

    @abstractmethod
    def _follow(self, events: Sequence[Event]) -> list[Seen]:
        """What begins or ends with ``events``."""
