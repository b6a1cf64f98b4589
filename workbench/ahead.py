"""The next step's experience, sampled and scored by a thread while this step is learnt from."""

import threading
import time
from dataclasses import replace

from workbench.errors import Stopped
from workbench.loop import sample
from workbench.stages import Crew, Sampled
from workbench.telling import StepBook


class Ahead:
    """One step's sampling under way. ``rate``: what it will be learnt with. ``book`` draws its prompts and times its phases."""

    def __init__(self, crew: Crew, rate: float, book: StepBook) -> None:
        self.crew, self.rate, self.book = crew, rate, book
        self._dropped = threading.Event()
        self._sampled: Sampled | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()  # not a join: one that is interrupted takes the thread for ended
        threading.Thread(target=self._work, name=f"workbench-step-{book.number}", daemon=True).start()

    def _work(self) -> None:
        began = time.monotonic()
        crew = replace(self.crew, should_stop=lambda: self._dropped.is_set() or self.crew.should_stop())
        try:
            sampled = sample(self.book.number, self.book.draw, crew, self.book.phase)
            self._sampled = replace(sampled, crew=self.crew, ahead_seconds=time.monotonic() - began - self.book.rested)
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def wait(self) -> None:
        """Return once it is sampled, or has failed: the engines are at rest."""
        self._ended.wait()

    def take(self) -> Sampled:
        """The step's experience, waited for. Raises what went wrong."""
        self.wait()
        if self._error is not None:
            raise self._error
        if self._sampled is None:
            raise Stopped("rollout")
        return self._sampled

    def drop(self) -> None:
        """End it; its prompts were not used."""
        self._dropped.set()
        self.wait()
