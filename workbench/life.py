"""A run's life: train, start, pause, resume, stop, wait. Threads are here and nowhere else.

One thread at a time trains: the caller's (``train``) or the run's own (``start``). Whatever touches the models holds one
lock, so a ``generate`` from a notebook cell falls between two steps.
"""

import threading
import time
import weakref
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Self

from workbench import console, views
from workbench.checkpoint import Past
from workbench.errors import ConfigError, StateError, Stopped, StorageError, WorkbenchError, check_kind
from workbench.lasting import lasting
from workbench.look import Look
from workbench.plan import RunPlan
from workbench.records import State, Step
from workbench.rewards import check_outside
from workbench.training import Training


class Life(Look):
    """The living side of ``Run``: its state, its thread, and the calls that change them."""

    def __init__(self, plan: RunPlan, past: Past | None = None) -> None:
        self.plan = plan
        self._stop, self._go, self._resting = threading.Event(), threading.Event(), threading.Event()
        self._lock, self._claim = threading.RLock(), threading.Lock()
        self._go.set()
        self._training = Training(plan, self._stop.is_set, past)
        self._training.waiting.on_wait, self._waits = self._on_wait, False
        self._thread: threading.Thread | None = None
        self._loop: weakref.ref[Generator[Step]] | None = None  # the caller's; held weakly, so that leaving the loop ends it
        self._iterating = False
        self.state = "new"
        if past is not None:
            self._set("paused")
        self.error: BaseException | None = None

    def train(self, steps: int | None = None) -> Iterator[Step]:
        """Train ``steps`` more steps in the caller's thread: ``for step in run.train(50): ...``.

        None: those that are left of the last call, after a pause, a stop, or a restore. Leaving the loop is a pause: another ``train`` or
        ``start`` goes on where it was left. Held-out prompts are scored before the first step and after the last. Raises what failed; an
        interrupt pauses.
        """
        self._check_free("train")
        loop = self._train(self._to_make("train", steps))
        self._loop = weakref.ref(loop)
        return loop

    def _train(self, steps: int) -> Generator[Step]:
        with self._claim:
            self._check_free("train")  # again: between ``train`` and its first step another may have begun
            self._make_ready()
        with console.progress(self._training.log) as bars, closing(self._drive(steps)) as made:
            for step in made:
                bars.make_way()
                yield step

    def start(self, steps: int | None = None) -> Self:
        """Train ``steps`` more steps in a thread of the run's own; returns at once. ``wait`` for it, or ``watch`` it.

        None: those that are left of the last call.
        """
        with self._claim:
            self._check_free("start")
            steps = self._to_make("start", steps)
            self._make_ready()
            self._set("starting")
            self._thread = threading.Thread(target=self._work, args=(steps,), name=f"workbench-{self.plan.name}", daemon=True)
            self._thread.start()
        return self

    def _make_ready(self) -> None:
        """What every beginning needs; the claim is held."""
        self._stop.clear()
        self._resting.clear()
        self._go.set()
        self._iterating, self.error = True, None

    def _work(self, steps: int) -> None:
        try:
            for _ in self._drive(steps):
                pass
        except BaseException as error:
            self.error = error
            console.at_next_cell(f"run {self.plan.name!r} failed in its thread: {type(error).__name__}: {error}")

    def _drive(self, steps: int) -> Generator[Step]:
        """The one way through a run: open, evaluate, step by step, evaluate, save."""
        training, state, error = self._training, "paused", ""
        training.end = training.done + steps
        try:
            self._set("starting")
            with self._lock:
                lasting(training, self._open_up)
            self._set("running")
            finished = False
            while not finished:
                while training.done < training.end:
                    self._rest()
                    with self._lock:
                        step = lasting(training, self._next)
                    yield step
                with self._lock:
                    finished = lasting(training, self._end)
            state = "finished"
        except Stopped:
            state = "stopped"
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as failure:
            state, error = "failed", f"{type(failure).__name__}: {failure}"
            raise
        finally:
            self._come_to_rest(state, error)

    def _open_up(self) -> None:
        """Models and engines, and, before the first step, the first score."""
        self._training.open()
        self._training.sample_load()
        if self._training.done == 0:
            self._training.evaluate()

    def _next(self) -> Step:
        """One step. Workers that were made anew at step 0 have the first score to give again."""
        self._open_up()
        return self._training.step()

    def _end(self) -> bool:
        """Whether this is the end, with the last score; new workers may have steps to make again first."""
        over = self._training.done >= self._training.end
        if over:
            self._training.evaluate()
        return over

    def _come_to_rest(self, state: str, error: str) -> None:
        """Save, and say how it ended. Raises StorageError where that can't be written, unless something else has failed before."""
        problem: WorkbenchError | None = None
        try:
            self._save()
        except WorkbenchError as failure:
            problem = failure
        try:
            if problem is not None and state != "failed":
                self._set("failed", f"{type(problem).__name__}: {problem}")
                raise problem
            self._set(state, error)
        finally:
            self._iterating = False
            self._stop.clear()
            self._resting.set()

    def _rest(self) -> None:
        """Between two steps: wait while paused. Raises Stopped when it's time to go."""
        if not self._go.is_set():
            self._set("paused")
            self._save()
            while not self._go.wait(0.05):
                self._resting.set()  # every time: a resume that a pause follows at once may never be seen here
                if self._stop.is_set():
                    raise Stopped("pause")
            self._resting.clear()
            self._set("running")
        if self._stop.is_set():
            raise Stopped("step")

    def _on_wait(self, text: str) -> None:
        """A reward service is down, or (no ``text``) is up again: the step in progress rests as long."""
        if text and (self._waits or self.state in ("starting", "running")):  # and not a cell's evaluate() on a run at rest
            self._waits = True
            self._set("paused", text)
            self._resting.set()
        elif not text and self._waits:
            self._waits = False
            self._set("running")
            self._resting.clear()

    # ------------------------------------------------------------ control

    def pause(self, *, wait: bool = True) -> None:
        """Rest after the step in progress; returns when the run rests, or at once without ``wait``. Nothing to do where nothing runs."""
        if wait:
            check_outside("run.pause")
        self._go.clear()
        if not self._is_alive:
            self._go.set()
            return
        if wait and threading.current_thread() is not self._thread:
            self._resting.wait()
            views.refresh(self._training.log)

    def resume(self) -> None:
        """Go on after ``pause``; where the run waits for a reward service, ask it again now.

        Raises StateError where no thread rests: after a loop was left, ``train`` or ``start`` goes on.
        """
        if not self._is_alive:
            found = f"no thread of this run rests ({self.state}, {self._training.done} steps)"
            raise StateError("run.resume", found, "train(n) or start(n) to make n more steps")
        self._resting.clear()
        self._go.set()
        self._training.waiting.nudge.set()

    def stop(self) -> None:
        """End training now: the step in progress is dropped, within a second also in a long rollout. ``start`` may follow.

        While a model is built or loaded or the engine starts, that is waited for. A ``train`` loop that rests between two steps ends.
        """
        check_outside("run.stop")
        self._stop.set()
        while self._is_alive and self._thread is not threading.current_thread():
            time.sleep(0.01)  # no join: after an interrupt of one Python takes the thread for ended
        loop = self._loop() if self._loop is not None else None
        if loop is not None and not loop.gi_running and self._iterating:
            loop.close()
            self._set("stopped")
        if not self._is_busy():
            self._stop.clear()

    def wait(self, timeout: float | None = None, *, until_step: int | None = None) -> Self:
        """Wait until the thread is done, with a progress bar, and raise what failed in it. An interrupt pauses the run.

        ``timeout``: seconds at most. ``until_step``: only until that step is made.
        """
        if self.state == "new":
            raise StateError("run.wait", "nothing was started", "start(n) first")
        if self.state == "paused" and self._is_alive and timeout is None and self._resting.is_set() and not self._waits:
            raise StateError("run.wait", "the run is paused", "resume() it first")
        if self._thread is not None:
            try:
                last = float("inf") if until_step is None else until_step
                console.follow(self._training.log, lambda: self._is_alive and self._training.done < last, timeout)
            except KeyboardInterrupt:
                self.pause()
                raise
            views.refresh(self._training.log)
        if self.error is not None:
            raise self.error
        return self

    # ------------------------------------------------------------ inside

    def _set(self, state: str, error: str = "") -> None:
        if self.state not in (state, "closed"):
            self.state = state
            try:
                self._training.log.emit(State(state, error))
            except StorageError:
                if state != "failed":  # a full disk is what it failed of, and that is raised already
                    raise

    @property
    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _is_busy(self) -> bool:
        loop = self._loop() if self._loop is not None else None
        if self._iterating and not self._is_alive and (loop is None or loop.gi_frame is None):
            self._iterating = False  # an interrupt fell between the claim and the work
        return self._iterating or self._is_alive

    def _check_open(self, call: str) -> None:
        if self.state == "closed":
            raise StateError(f"run.{call}", "the run is closed", "make a new Run")

    def _check_free(self, call: str) -> None:
        """Raise StateError where the run is closed, or trains already."""
        self._check_open(call)
        if self._is_busy():
            fix = "wait(), stop(), or resume() it" if self._is_alive else "finish the loop that holds it, or stop()"
            raise StateError(f"run.{call}", f"this run trains already ({self.state})", fix)

    def _to_make(self, call: str, steps: int | None) -> int:
        """How many steps: as asked, or (None) what is left of the last call; 0 where only its evaluation is."""
        if steps is not None:
            check_kind(f"run.{call}: steps", steps, int, "a number of steps")
            if steps < 1:
                raise ConfigError(f"run.{call}({steps})", "a run has at least one step", "give the number of steps to train")
            return steps
        if self._training.is_complete:
            found = f"all steps that were asked for are made ({self._training.done})"
            raise ConfigError(f"run.{call}()", found, f"run.{call}(n) makes n more")
        return self._training.end - self._training.done

    def _save(self) -> None:
        """Write what a rest leaves. Raises StorageError where that can't be done."""
        try:
            with self._lock:  # a checkpoint() from a cell may be writing
                self._training.rest()
                self._training.save()
        except OSError as error:
            found = f"its folder can't be written: {error.strerror or error}"
            raise StorageError("save the run", found, "free space, then start()") from error
