"""Everything beside the curves, in words: what the run does now, the numbers that matter, its latest samples."""

from dataclasses import dataclass
from pathlib import Path

from workbench.records import Seen, Step, mean, percentile
from workbench.views.history import LIVE, History
from workbench.views.text import NOTHING, duration, number, shorten, size, visible

SAMPLES = 4
STARVED = 0.05  # of a step spent waiting for prompts: worth a word
_WAITS = {"model": "loading the model", "engine": "starting the engine", "held_out": "scoring held-out prompts", "warm_start": "warm start"}
_STATUS = {
    "new": "not started yet",
    "paused": "between two steps; run.resume() goes on",
    "interrupted": "its process ended without a word; Run.restore(path) goes on from the last checkpoint",
    "closed": "the memory is given back; the run folder stays",
}


@dataclass(frozen=True)
class Fact:
    """One number, what it is, and a line beneath that says more."""

    label: str
    value: str
    note: str


@dataclass(frozen=True)
class Sample:
    """One completion for people to read; whitespace and control characters are visible."""

    prompt: str
    completion: str
    answer: str
    reward: str


@dataclass(frozen=True)
class Frame:
    """The state of a run in words. Sentences are complete: the front ends only place them."""

    state: str
    title: str
    subtitle: str
    count: str  # "step 23 of 60"
    clock: str  # "1 min 12 s, about 2 min left"
    status: str  # what it does now
    waited: float | None  # seconds of the wait in ``status``; the front end counts on
    fraction: float | None  # of the bar; None: unknown, the bar moves
    facts: tuple[Fact, ...]
    error: str
    samples_step: int
    samples: tuple[Sample, ...]
    findings: tuple[Seen, ...]  # that are not over


def frame(history: History) -> Frame:
    """The state after the events so far."""
    wait = history.wait
    started = history.started
    algo = str(started.algo.get("name", "")) if started else ""
    model = started.model if started else ""
    return Frame(
        state=history.shown,
        title=started.name if started else "run",
        subtitle=" · ".join(part for part in (algo, Path(model).name if model.startswith("/") else model) if part),
        count=_count(history),
        clock=_clock(history),
        status=_status(history),
        waited=wait.seconds if wait else None,
        fraction=_fraction(history),
        facts=facts(history),
        error=history.failed_in,
        samples_step=history.samples.step if history.samples else 0,
        samples=_samples(history),
        findings=tuple(history.open.values()),
    )


def _count(history: History) -> str:
    if not history.total:
        return f"step {history.step}"
    return f"step {history.step} of {max(history.total, history.step)}"


def _clock(history: History) -> str:
    if not history.recent:
        return ""
    spent = duration(history.seconds)
    left = history.total - history.step
    if left <= 0 or history.state.state not in (*LIVE, "paused"):
        return spent
    usual = [step.seconds for step in history.recent if step.step > 1]  # the first holds the engine's warm-up
    return f"{spent}, about {duration(left * percentile(usual, 50))} left" if usual else spent


def _status(history: History) -> str:
    if history.failed_in:
        return history.failed_in.strip().splitlines()[0]
    if wait := history.wait:
        progress = wait.progress
        amount = f", {number(progress.done)} of {number(progress.total)}" if progress.total > 1 else ""
        title = _WAITS.get(progress.what, progress.what)
        note = f": {progress.note}" if progress.note and progress.note != title else ""
        return f"{title}{amount}{note}"
    state = history.shown
    if state == "running":
        done = [f"{phase} {duration(seconds)}" for phase, seconds in history.phases]
        parts = ", ".join([*done, *(f"{phase} …" for phase in dict.fromkeys(history.begun))])
        return f"step {history.step + 1}: {parts}" if parts else f"step {history.step + 1}"
    past = _restored(history)
    if state == "paused" and past and history.restores[-1].step == history.step:
        return f"{past}; run.start() goes on"
    proof = f"{history.syncs} syncs, every checksum matched" if state in ("finished", "stopped") and history.syncs else ""
    return " · ".join(part for part in (proof or _STATUS.get(state, history.notice), past) if part)


def _restored(history: History) -> str:
    """Of a run that was restored: after which steps."""
    if not history.restores:
        return ""
    after = [str(past.step) if past.checkpoint else "0" for past in history.restores]
    return f"restored after step {after[0]}" if len(after) == 1 else f"restored after steps {', '.join(after[:-1])} and {after[-1]}"


def _fraction(history: History) -> float | None:
    wait = history.wait
    if wait is None:
        return min(1.0, history.step / history.total) if history.total else 0.0
    progress = wait.progress
    return progress.done / progress.total if progress.total > 1 and progress.done > 0 else None


def facts(history: History) -> tuple[Fact, ...]:
    """The four numbers that matter: what was gained, how fast, and whether the engine samples from the weights just trained.

    Behind them what is so only in some runs: findings, several rounds of sampling a step, and data that come too slowly.
    """
    always = (_held_out_fact(history), _speed_fact(history), _difference_fact(history), _weights_fact(history))
    steps = list(history.recent)
    return (*always, *_findings_fact(list(history.open.values())), *_rounds_fact(steps), *_data_fact(steps))


def _held_out_fact(history: History) -> Fact:
    points = [history.held_out[step] for step in sorted(history.held_out)]
    label = "Held-out reward"
    if not points:
        return Fact(label, NOTHING, "not scored yet")
    first, last = points[0], points[-1]
    if len(points) == 1:
        return Fact(label, f"{first.reward_mean:.2f}", f"± {first.stderr:.2f} after step {first.step}")
    gain = last.reward_mean - first.reward_mean
    return Fact(
        label, f"{first.reward_mean:.2f} → {last.reward_mean:.2f}", f"{gain:+.2f} ± {(first.stderr**2 + last.stderr**2) ** 0.5:.2f}"
    )


def _speed_fact(history: History) -> Fact:
    steps = list(history.recent)
    rollout = _rate(sum(s.tokens_completion for s in steps), _spent(steps, "rollout"))
    trained = [step for step in steps if step.tokens_trained]
    train = _rate(sum(step.tokens_trained for step in trained), _spent(trained, "update_actor"))
    return Fact("Rollout, tokens/s now", number(rollout), f"training {number(train)}")


def _difference_fact(history: History) -> Fact:
    if not history.recent:
        return Fact("Engine against trainer", NOTHING, "log-probability difference")
    average = mean([step.logprob_diff_mean for step in history.recent])
    return Fact("Engine against trainer", number(history.diff_max), f"largest |Δ log p|, mean {number(average)}")


def _weights_fact(history: History) -> Fact:
    sync = history.sync
    if sync is None:
        return Fact("Weights in the engine", NOTHING, "no sync yet")
    return Fact(
        "Weights in the engine",
        f"version {sync.version}",
        f"{sync.checksum[:10]}, {size(sync.written or sync.bytes)} in {duration(sync.seconds)}",
    )


def _findings_fact(findings: list[Seen]) -> tuple[Fact, ...]:
    titles = ", ".join(f"{seen.title} ({seen.code})" for seen in findings)
    return (Fact("Findings", str(len(findings)), f"{titles}: run.summary() says what to do"),) if findings else ()


def _rounds_fact(steps: list[Step]) -> tuple[Fact, ...]:
    rounds = mean([step.rounds for step in steps])
    return (Fact("Rounds of sampling", number(rounds), "a step, on average"),) if rounds > 1 else ()


def _data_fact(steps: list[Step]) -> tuple[Fact, ...]:
    waited, seconds = sum(step.data_wait_seconds for step in steps), sum(step.seconds for step in steps)
    if waited <= STARVED * seconds:
        return ()
    return (Fact("Waiting for prompts", f"{waited / seconds:.0%}", "of the time in steps"),)


def _spent(steps: list[Step], phase: str) -> float:
    return sum(step.phase_seconds.get(phase, 0.0) for step in steps)


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if seconds > 0 else None


def _samples(history: History) -> tuple[Sample, ...]:
    found = history.samples
    if found is None:
        return ()
    rows = list(zip(found.prompts, found.completions, found.answers, found.rewards, strict=False))[:SAMPLES]
    return tuple(Sample(_line(prompt), _line(completion), _line(answer), number(reward)) for prompt, completion, answer, reward in rows)


def _line(text: object) -> str:
    return shorten(visible(str(text)), 300)
