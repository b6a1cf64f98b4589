"""Rewards made of rewards: numbers computed by hand, errors that name the part, memories that survive."""

import asyncio
import json
import math
import pickle

import pytest

from workbench.errors import ConfigError, RewardError, RewardServiceError
from workbench.rewards import Clipped, Ensemble, LengthPenalty, Scorer, Smoothed, Weighted, score_all, tiny_reward_model

ROWS = [("p", "ab", 1.0), ("p", "abcd", 2.0), ("p", "", 6.0)]


def length(prompt, completion, answer):
    return len(completion)


def given(prompt, completion, answer):
    return answer


async def given_later(prompt, completion, answer):
    await asyncio.sleep(0.001)
    return answer


class Rows:
    """Minus the answer, all rows at once; has everything that a reward may have."""

    def __init__(self, chunk=None):
        self.chunk, self.device, self.seen = chunk, None, 0

    def __call__(self, prompt, completion, answer):
        raise AssertionError

    def prepare(self, device):
        self.device = device

    def score_rows(self, rows):
        assert self.device
        self.seen += len(rows)
        self.last = len(rows)
        return [-answer for _, _, answer in rows]

    def numbers(self):
        return {"rows": self.last}

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def scored(reward, rows=ROWS):
    """Scores and numbers."""
    with Scorer(reward) as scorer:
        return scorer.score(rows), scorer.numbers()


def test_weighted_by_hand():
    scores, numbers = scored(Weighted({"length": (length, 0.5), "given": (given_later, 2.0), "rows": (Rows(), 1)}))
    # 0.5 * length + 2 * answer - answer
    assert scores == [0.5 * 2 + 1.0, 0.5 * 4 + 2.0, 6.0]
    assert numbers == {"length": 2.0, "given": 3.0, "rows": -3.0, "rows/rows": 3.0}


@pytest.mark.parametrize(
    ("named", "expected", "apart"),
    [
        ({}, [1.5, 3.0, 3.0], (0.5 + 1 + 3) / 3),
        ({"reduce": "min"}, [1.0, 2.0, 0.0], (0.5 + 1 + 3) / 3),
        ({"disagreement": "range"}, [1.5, 3.0, 3.0], (1 + 2 + 6) / 3),
    ],
)
def test_ensemble_by_hand(named, expected, apart):
    scores, numbers = scored(Ensemble([length, given], **named))  # (2, 1), (4, 2), (0, 6)
    assert scores == expected
    assert numbers == {"0": 2.0, "1": 3.0, "disagreement": pytest.approx(apart)}


def test_clipped_by_hand():
    assert scored(Clipped(given, low=1.5, high=4.0)) == ([1.5, 2.0, 4.0], {"reward": 3.0, "clipped": pytest.approx(2 / 3)})
    assert score_all(Clipped(given, high=4.0), ROWS) == [1.0, 2.0, 4.0]


def test_length_penalty_in_characters():
    scores, numbers = scored(LengthPenalty(given, 0.1, free=1, limit=0.2))
    assert scores == pytest.approx([1.0 - 0.1, 2.0 - 0.2, 6.0])
    assert numbers == pytest.approx({"reward": 3.0, "length": 2.0, "penalty": 0.1})


def test_length_penalty_in_tokens(tmp_path):
    folder = tiny_reward_model(tmp_path)  # one token per character, <eos> is one
    reward = LengthPenalty(given, 1.0, tokenizer=folder)
    assert score_all(reward, [("p", "ab<eos>", 5.0)]) == [2.0]
    assert score_all(pickle.loads(pickle.dumps(reward)), [("p", "ab<eos>", 5.0)]) == [2.0]


def test_smoothed_by_hand():
    reward = Smoothed(given, decay=0.75)
    scores, numbers = scored(reward, [("p", "", 1.0), ("p", "", 3.0)])  # mean 2, variance 1
    assert scores == [-1.0, 1.0]
    assert numbers == {"reward": 2.0, "running_mean": 2.0, "running_std": 1.0}
    scores, _ = scored(reward, [("p", "", 6.0)])
    # variance 0.75 * 1 + 0.25 * (0 + (6 - 2)²) = 4.75; mean 0.75 * 2 + 0.25 * 6 = 3
    assert (reward.mean, reward.var) == (3.0, 4.75)
    assert scores == pytest.approx([3.0 / math.sqrt(4.75)])


def test_smoothed_of_one_and_the_same_is_zero():
    assert score_all(Smoothed(lambda p, c, a: 0.25), ROWS) == [0.0, 0.0, 0.0]


def test_the_memory_of_smoothed_goes_through_json():
    first, second = Smoothed(Rows()), Smoothed(Rows())
    score_all(first, ROWS)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.parts["reward"].seen == 3
    assert score_all(first, ROWS[:2]) == score_all(second, ROWS[:2])


# ---------------------------------------------------------------- what parts have


def test_combinations_nest_and_hand_everything_through():
    inner = Rows(chunk=2)
    reward = Weighted({"model": (Clipped(inner, low=-4.0), 1.0), "all": (Ensemble([given, given_later]), 1.0)})
    with Scorer(reward, device="cuda") as scorer:
        assert scorer.score(ROWS) == [0.0, 0.0, 2.0]
        numbers = scorer.numbers()
    assert inner.device == "cuda"
    assert numbers["model/reward/rows"] == pytest.approx((2 * 2 + 1 * 1) / 3), "the mean over the rows of its two chunks"
    assert numbers["all/disagreement"] == 0.0
    assert reward.state_dict() == {"model": {"reward": {"seen": 3}}}
    reward.load_state_dict({"model": {"reward": {"seen": 40}}})
    assert inner.seen == 40


def test_a_memory_only_where_a_part_has_one():
    assert not hasattr(Weighted({"a": (given, 1.0)}), "state_dict")
    assert hasattr(Weighted({"a": (Rows(), 1.0)}), "state_dict")
    assert hasattr(Smoothed(given), "state_dict")
    with pytest.raises(ConfigError, match=r"it is of the parts \['b'\], and those with a memory are \['a'\]"):
        Weighted({"a": (Rows(), 1.0)}).load_state_dict({"b": {}})


def test_async_parts_run_at_the_same_time():
    inside, most = [], []

    def part(name):
        async def fn(prompt, completion, answer):
            inside.append(name)
            await asyncio.sleep(0.02)
            most.append(len(set(inside)))
            inside.remove(name)
            return 0.0

        return fn

    score_all(Ensemble([part("a"), part("b"), part("c")]), ROWS)
    assert max(most) == 3


@pytest.mark.parametrize("kind", [Weighted, Smoothed, Ensemble, Clipped, LengthPenalty])
def test_they_cross_to_other_processes(kind):
    made = {
        Weighted: lambda: Weighted({"a": (given, 1.0), "b": (Rows(), 1.0)}),
        Smoothed: lambda: Smoothed(given),
        Ensemble: lambda: Ensemble([given, length]),
        Clipped: lambda: Clipped(given, low=0),
        LengthPenalty: lambda: LengthPenalty(given, 0.1),
    }[kind]()
    assert score_all(pickle.loads(pickle.dumps(made)), ROWS) == score_all(made, ROWS)


def test_called_for_one_completion():
    assert asyncio.run(Weighted({"a": (given, 2.0)})("p", "c", 3.0)) == 6.0


# ---------------------------------------------------------------- errors


def breaks(prompt, completion, answer):
    return 1 / (answer - 2.0)


def nan_rows(rows):
    return [float("nan")] * len(rows)


def test_a_part_that_fails_is_named_with_its_prompt():
    reward = Weighted({"fine": (given, 1.0), "deep": (Ensemble([given, breaks]), 1.0)})
    with pytest.raises(RewardError, match=r"reward Weighted, part 'deep/1', for prompt 8, 'p': .*it raised ZeroDivisionError"):
        score_all(reward, ROWS, prompt_indices=[7, 8, 9])
    rows = Rows()
    rows.score_rows = nan_rows
    with pytest.raises(RewardError, match=r"reward Clipped, part 'reward', for row 0.*it returned nan"):
        score_all(Clipped(rows, low=0), ROWS)


def test_a_service_that_is_gone_is_named_with_its_part():
    def gone(*_):
        raise RewardServiceError("http://x", "it is gone", "start it")

    with pytest.raises(RewardServiceError, match=r"part 'style': http://x: it is gone"):
        score_all(Weighted({"style": (gone, 1.0)}), ROWS)


def test_a_part_that_can_not_be_made_ready_is_named():
    class Broken(Rows):
        def prepare(self, device):
            raise ConfigError("model 'x'", "it is not there", "look")

    with pytest.raises(ConfigError, match=r"part 'reward': model 'x'"):
        score_all(Clipped(Broken(), low=0), ROWS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Weighted({}), r"Weighted\(\): it has no parts"),
        (lambda: Weighted({"a": given}), r"part .a.(?s:.*)write \{'a': \(reward, 1\.0\)\}"),
        (lambda: Weighted({"a": (given, "1")}), r"weight of 'a'='1'"),
        (lambda: Weighted({"a": (given, math.inf)}), r"weight of 'a'=inf"),
        (lambda: Weighted({"a/b": (given, 1)}), r"part 'a/b'"),
        (lambda: Weighted({"a": (lambda p: 1, 1)}), "does not fit"),
        (lambda: Ensemble([given]), "fewer than two"),
        (lambda: Ensemble([given, given], disagreement="var"), "std, range"),
        (lambda: Ensemble([given, given], reduce="max"), "mean, min"),
        (lambda: Smoothed(given, decay=1.0), r"decay=1\.0"),
        (lambda: Clipped(given), "nothing is clipped"),
        (lambda: Clipped(given, low=1, high=1), "nothing lies between"),
        (lambda: LengthPenalty(given, -0.1), "above 0"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
