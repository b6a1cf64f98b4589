"""Rewards that take many rows at once, are made ready first, and have numbers to tell."""

import asyncio
import time

import numpy as np
import pytest
import torch

from workbench.errors import ConfigError, RewardError, RewardServiceError, StateError, Stopped
from workbench.rewards import Scorer, check_reward, score_all
from workbench.rewards.rows import mean_numbers

ROWS = [(f"{i}+{i}=", str(2 * i), 2 * i) for i in range(7)]


class Lengths:
    """Scores a batch by the place of its rows; remembers how it was called."""

    chunk = None

    def __init__(self, give=None):
        self.calls, self.prepared, self.give = [], [], give

    def __call__(self, prompt, completion, answer):
        raise AssertionError("rows go to score_rows")

    def prepare(self, device):
        self.prepared.append(device)

    def score_rows(self, rows):
        self.calls.append(len(rows))
        assert self.prepared, "prepare comes before the first row"
        return [float(answer) for _, _, answer in rows] if self.give is None else self.give(rows)

    def numbers(self):
        return {"rows": self.calls[-1], "first": float(len(self.calls) == 1)}


class LengthsLater(Lengths):
    async def score_rows(self, rows):
        await asyncio.sleep(0.001)
        return Lengths.score_rows(self, rows)


@pytest.mark.parametrize("kind", [Lengths, LengthsLater])
@pytest.mark.parametrize(("chunk", "calls"), [(None, [7]), (3, [3, 3, 1]), (100, [7])])
def test_rows_go_in_chunks(kind, chunk, calls):
    reward = kind()
    reward.chunk = chunk
    assert score_all(reward, ROWS) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    assert reward.calls == calls


def test_nothing_to_score_is_no_call():
    reward = Lengths()
    assert score_all(reward, []) == []
    assert reward.calls == []


def test_prepare_is_called_once_with_the_device():
    reward = Lengths()
    with Scorer(reward, device="cuda") as scorer:
        assert reward.prepared == []
        scorer.prepare()
        scorer.score(ROWS)
        scorer.score(ROWS)
    assert reward.prepared == ["cuda"]


def test_prepare_that_fails_is_an_error_and_tried_again():
    reward = Lengths()

    def fail(device):
        reward.prepared.append(device)
        if len(reward.prepared) == 1:
            raise OSError("no such file")

    reward.prepare = fail
    with Scorer(reward) as scorer:
        with pytest.raises(RewardError, match=r"reward Lengths\.prepare\('cpu'\): it raised OSError: no such file"):
            scorer.score(ROWS)
        assert len(scorer.score(ROWS)) == 7


def test_numbers_are_means_over_the_rows_since_they_were_asked_for():
    with Scorer(Lengths()) as scorer:
        assert scorer.numbers() == {}
        scorer.score(ROWS[:1])
        scorer.score(ROWS[:3])
        # rows: (1 * 1 + 3 * 3) / 4; first: (1 * 1 + 3 * 0) / 4
        assert scorer.numbers() == {"rows": 2.5, "first": 0.25}
        assert scorer.numbers() == {}


def test_the_mean_of_numbers_that_only_some_parts_have():
    assert mean_numbers([(2, {"a": 1.0}), (6, {"a": 5.0, "b": 3.0})]) == {"a": 4.0, "b": 3.0}


@pytest.mark.parametrize("kind", [np.array, torch.tensor, tuple])
def test_scores_as_arrays(kind):
    reward = Lengths(lambda rows: kind([1.0] * len(rows)))
    assert score_all(reward, ROWS) == [1.0] * 7


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda rows: [1.0] * 6, r"reward Lengths for 7 rows: it returned 6 scores for 7 rows\n  fix: return one score per row, in order"),
        (lambda rows: 1.0, r"it returned 1\.0\n  fix: let score_rows return a list of 7 numbers"),
        (lambda rows: "1234567", r"it returned '1234567'\n  fix: let score_rows"),
        (lambda rows: np.ones((7, 1)), r"for row 0, '0\+0='.*it returned \[1\.0\]\n  fix: return one number"),
        (lambda rows: [1 / 0], r"for 7 rows: it raised ZeroDivisionError"),
    ],
)
def test_what_is_no_score_per_row(give, message):
    with pytest.raises(RewardError, match=message):
        score_all(Lengths(give), ROWS)


def test_a_value_that_is_no_number_names_its_prompt():
    reward = Lengths(lambda rows: [float("nan") if answer == 10 else 1.0 for _, _, answer in rows])
    reward.chunk = 2
    message = r"for prompt 105, '5\+5=': for the completion '10' \(answer 10\) it returned nan\n  fix: return a finite"
    with pytest.raises(RewardError, match=message):
        score_all(reward, ROWS, prompt_indices=range(100, 107))


def test_what_a_service_raises_stays_as_it_is():
    def gone(*_):
        raise RewardServiceError("http://x", "it is gone", "start it")

    for reward in (Lengths(gone), gone):
        with pytest.raises(RewardServiceError, match=r"http://x: it is gone"):
            score_all(reward, ROWS)


@pytest.mark.parametrize(("said", "message"), [({"a": float("nan")}, "finite"), (3, "numbers\\(\\) that are none"), ({"a": "b"}, "str")])
def test_numbers_that_are_none(said, message):
    reward = Lengths()
    reward.numbers = lambda: said
    with pytest.raises(RewardError, match=message):
        score_all(reward, ROWS)


def test_a_time_limit_for_rows_at_once():
    class Slow(Lengths):
        async def score_rows(self, rows):
            await asyncio.sleep(30)

    with pytest.raises(RewardError, match=r"for 7 rows: it gave no answer within 0\.1 s"):
        score_all(Slow(), ROWS, timeout_s=0.1)


def test_a_stop_between_chunks_and_within_one():
    class Blocking(Lengths):
        chunk = 1

        def score_rows(self, rows):
            time.sleep(0.1)
            return super().score_rows(rows)

    class Waiting(Lengths):
        async def score_rows(self, rows):
            await asyncio.sleep(30)

    for reward in (Blocking(), Waiting()):
        begin = time.monotonic()
        with Scorer(reward) as scorer, pytest.raises(Stopped):
            scorer.score(ROWS * 100, should_stop=lambda begin=begin: time.monotonic() > begin + 0.15)
        assert time.monotonic() - begin < 1.0
        assert scorer.numbers() == {}, "a batch that was dropped says nothing"
        assert len(reward.calls) <= 3


def test_members_are_checked_where_the_reward_is_given():
    def member(name, value):
        reward = Lengths()
        setattr(reward, name, value)
        return reward

    for name, value, message in [
        ("score_rows", lambda prompts, completions: [], r"reward Lengths\.score_rows: .*\n  fix: write def score_rows\(self, rows\)"),
        ("prepare", lambda: None, r"write def prepare\(self, device\)"),
        ("numbers", {"a": 1}, r"write def numbers\(self\)"),
        ("chunk", 0, r"reward Lengths\.chunk=0: .*\n  fix: give 1 or more"),
    ]:
        with pytest.raises(ConfigError, match=message):
            check_reward(member(name, value))


def test_preparing_while_scoring_is_refused():
    class Waiting(Lengths):
        async def score_rows(self, rows):
            await asyncio.to_thread(self.inside)
            return await asyncio.to_thread(Lengths.score_rows, self, rows)

    reward = Waiting()
    with Scorer(reward) as scorer:

        def inside():
            with pytest.raises(StateError, match="scoring already"):
                scorer.prepare()

        reward.inside = inside
        assert scorer.score(ROWS[:1]) == [0.0]
