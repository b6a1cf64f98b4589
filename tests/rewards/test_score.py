"""Scoring a step: values, errors that name the prompt, and a stop that does not wait."""

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import time
import warnings
import weakref

import pytest

from workbench.errors import ConfigError, RewardError, StateError, Stopped
from workbench.rewards import Scorer, score_all

ROWS = [("1+1=", "2", 2), ("2+2=", "5", 4), ("3+3=", "6", 6)]


def exact(prompt, completion, answer):
    return completion == str(answer)


async def exact_later(prompt, completion, answer):
    await asyncio.sleep(0.001)
    return float(completion == str(answer))


@pytest.mark.parametrize("fn", [exact, exact_later])
def test_scores_are_floats_in_order(fn):
    scores = score_all(fn, ROWS)
    assert scores == [1.0, 0.0, 1.0]
    assert {type(score) for score in scores} == {float}


@pytest.mark.parametrize("fn", [exact, exact_later])
def test_nothing_to_score(fn):
    assert score_all(fn, []) == []


def test_async_calls_run_at_the_same_time():
    async def slow(prompt, completion, answer):
        await asyncio.sleep(0.2)
        return answer

    begin = time.monotonic()
    assert score_all(slow, [("p", "c", i) for i in range(50)]) == [float(i) for i in range(50)]
    assert time.monotonic() - begin < 2.0, "50 calls one after the other take 10 s"


def test_a_function_may_return_an_awaitable_for_some_rows():
    def mixed(prompt, completion, answer):
        return exact_later(prompt, completion, answer) if answer == 4 else exact(prompt, completion, answer)

    assert score_all(mixed, ROWS) == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("fn", [exact, exact_later])
def test_inside_a_running_event_loop_as_in_jupyter(fn):
    async def cell():
        return score_all(fn, ROWS)

    assert asyncio.run(cell()) == [1.0, 0.0, 1.0]


def test_the_event_loop_is_one_from_step_to_step():
    """So a client opened on it (httpx, OpenAI) keeps working; also after a reward has failed."""
    loops = []

    async def remember(prompt, completion, answer):
        loops.append(asyncio.get_running_loop())
        return 1 / answer

    with Scorer(remember) as scorer:
        for answer in (1, 0, 1):
            for _ in range(20):
                try:
                    scorer.score([("p", "c", answer)])
                except RewardError:
                    assert answer == 0
    assert len(loops) == 60
    assert len(set(loops)) == 1


def test_context_variables_of_the_caller_hold():
    variable = contextvars.ContextVar("variable", default=0.0)
    variable.set(7.0)

    async def later(prompt, completion, answer):
        return variable.get()

    assert score_all(lambda p, c, a: variable.get(), ROWS[:1]) == score_all(later, ROWS[:1]) == [7.0]


# ---------------------------------------------------------------- errors


def raises(prompt, completion, answer):
    if answer == 4:
        raise KeyError("score")
    return 1.0


async def raises_later(prompt, completion, answer):
    await asyncio.sleep(0)
    return raises(prompt, completion, answer)


@pytest.mark.parametrize("fn", [raises, raises_later])
def test_a_reward_that_raises_names_the_prompt_and_chains(fn):
    message = rf"reward {fn.__name__} for row 1, '2\+2=': for the completion '5' \(answer 4\) it raised KeyError: 'score'\n  fix: "
    with pytest.raises(RewardError, match=message) as caught:
        score_all(fn, ROWS)
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_prompt_is_named_by_its_place_in_the_task():
    with pytest.raises(RewardError, match=r"for prompt 907, '2\+2='"):
        score_all(raises, ROWS, prompt_indices=[906, 907, 908])
    with pytest.raises(ConfigError, match=r"2 prompt_indices: there are 3 rows"):
        score_all(exact, ROWS, prompt_indices=[1, 2])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), r"it returned nan\n  fix: return a finite number"),
        (float("inf"), r"it returned inf\n  fix: return a finite number"),
        (None, r"it returned None\n  fix: return a number on every path; a `return` may be missing"),
        ("yes", r"it returned 'yes'\n  fix: return a number; this is of type str"),
        ([1.0], r"it returned \[1\.0\]\n  fix: return one number"),
    ],
)
def test_what_is_no_finite_number(value, message):
    async def later(prompt, completion, answer):
        return value

    for fn in (lambda p, c, a: value, later):
        with pytest.raises(RewardError, match=message):
            score_all(fn, ROWS)


def test_long_prompts_are_shortened():
    with pytest.raises(RewardError) as caught:
        score_all(lambda p, c, a: None, [("p" * 5000, "c" * 5000, "a" * 5000)])
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, StopIteration, TimeoutError])
def test_every_way_to_end_is_an_error_of_the_reward(ending):
    def fail(prompt, completion, answer):
        raise ending("enough")

    async def fail_later(prompt, completion, answer):
        await asyncio.sleep(0)
        raise ending("enough")

    with Scorer(fail) as scorer, Scorer(fail_later, timeout_s=5.0) as later:
        for each in (scorer, later):
            with pytest.raises(RewardError, match=r"raised \w+"):
                each.score(ROWS)
            each.fn = exact
            assert each.score(ROWS) == [1.0, 0.0, 1.0], "the scorer lives on"


def test_a_failure_cancels_the_other_calls_and_lets_them_clean_up():
    cleaned = []

    async def fn(prompt, completion, answer):
        try:
            await asyncio.sleep(0.01 if answer == 4 else 30)
        finally:
            cleaned.append(answer)
        raise ValueError("bad")

    begin = time.monotonic()
    with pytest.raises(RewardError, match=r"row 1.*ValueError: bad"):
        score_all(fn, ROWS)
    assert time.monotonic() - begin < 5.0
    assert sorted(cleaned) == [2, 4, 6]


def test_only_the_first_of_many_failures_is_told(caplog):
    async def fail(prompt, completion, answer):
        raise ValueError(answer)

    with pytest.raises(RewardError, match=r"row 0.*ValueError: 2"):
        score_all(fail, ROWS)
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_sync_failure_after_async_calls_began_leaves_no_warning():
    def mixed(prompt, completion, answer):
        return raises(prompt, completion, answer) if answer == 4 else exact_later(prompt, completion, answer)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RewardError, match="row 1"):
            score_all(mixed, ROWS)
        gc.collect()


def test_a_call_that_takes_too_long():
    async def slow(prompt, completion, answer):
        await asyncio.sleep(30 if answer == 6 else 0)
        return 1.0

    begin = time.monotonic()
    with pytest.raises(RewardError, match=r"row 2, '3\+3='.*gave no answer within 0\.1 s\n  fix: raise the limit"):
        score_all(slow, ROWS, timeout_s=0.1)
    assert time.monotonic() - begin < 5.0


def test_construction_checks():
    with pytest.raises(ConfigError, match=r"timeout_s=0: "):
        Scorer(exact, timeout_s=0)
    with pytest.raises(ConfigError, match=r"does not fit"):
        Scorer(lambda prompt: 1.0)


# ---------------------------------------------------------------- stopping


def stop_after(seconds):
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def blocked_sync(prompt, completion, answer):
    time.sleep(2.0)
    return 1.0


async def slow_async(prompt, completion, answer):
    await asyncio.sleep(60)


async def blocked_async(prompt, completion, answer):
    time.sleep(2.0)  # blocks the event loop: the mistake that is tested
    return 1.0


async def stubborn(prompt, completion, answer):
    for _ in range(200):
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    return 1.0


@pytest.mark.parametrize("fn", [blocked_sync, slow_async, blocked_async, stubborn])
def test_stop_within_a_second_and_go_on_afterwards(fn):
    with Scorer(fn) as scorer:
        begin = time.monotonic()
        with pytest.raises(Stopped):
            scorer.score(ROWS, should_stop=stop_after(0.1))
        assert time.monotonic() - begin < 1.0
        scorer.fn = exact
        assert scorer.score(ROWS, should_stop=lambda: False) == [1.0, 0.0, 1.0]
        assert time.monotonic() - begin < 1.0, "what was left behind is not waited for"


def test_stop_makes_no_further_call():
    calls = []

    def fn(prompt, completion, answer):
        calls.append(answer)
        time.sleep(0.15)
        return 1.0

    with Scorer(fn) as scorer:
        with pytest.raises(Stopped):
            scorer.score([("p", "c", i) for i in range(100)], should_stop=stop_after(0.2))
        made = len(calls)
        time.sleep(0.4)
    assert made <= 4
    assert len(calls) <= made + 1


def test_close_from_another_thread_stops():
    scorer = Scorer(slow_async)
    threading.Timer(0.1, scorer.close).start()
    begin = time.monotonic()
    with pytest.raises(Stopped):
        scorer.score(ROWS)
    assert time.monotonic() - begin < 3.0


def test_two_threads_on_one_scorer():
    with Scorer(slow_async) as scorer:

        def first():
            with pytest.raises(Stopped):
                scorer.score(ROWS, should_stop=stop_after(0.5))

        other = threading.Thread(target=first)
        other.start()
        time.sleep(0.1)
        with pytest.raises(StateError, match="scoring already"):
            scorer.score(ROWS)
        other.join()
        scorer.fn = exact
        assert scorer.score(ROWS) == [1.0, 0.0, 1.0]


def threads():
    return [t for t in threading.enumerate() if t.name == "workbench-rewards"]


def wait_for_no_threads():
    end = time.monotonic() + 5
    while threads() and time.monotonic() < end:
        time.sleep(0.01)
    return not threads()


def test_no_thread_is_left_behind():
    assert wait_for_no_threads()
    score_all(exact, ROWS)
    assert wait_for_no_threads(), "score_all closes its own"

    scorer = Scorer(exact)
    scorer.score(ROWS)
    assert threads()
    scorer.close()
    scorer.close()
    assert wait_for_no_threads()
    assert scorer.score(ROWS) == [1.0, 0.0, 1.0], "closed is not broken"

    gone = weakref.ref(scorer)
    del scorer
    gc.collect()
    assert gone() is None
    assert wait_for_no_threads(), "a scorer that was never closed"


def test_rewards_do_not_load_torch():
    code = "import sys, workbench.rewards; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
