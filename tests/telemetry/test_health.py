"""Every sign: when it is seen, with which numbers, and when it is over. And that healthy runs are silent."""

import math
import random
from collections.abc import Iterator
from dataclasses import fields, replace

import pytest

from tests.telemetry.streams import a_step, healthy, records, seen, watched
from workbench.findings import CODES, STEP_CODES
from workbench.records import Knob, Restored, RunStarted, Seen, Step
from workbench.telemetry import RULES, Limits, Watcher

SETTINGS = {"sampling": {"temperature": 1.0, "max_tokens": 256}}
STARTED = RunStarted("run", "base", {"name": "GRPO", "kl": 0.01, "group_size": 8, "clip": 0.2}, SETTINGS, {}, {"torch": "2.10"}, 0)


def told(**columns: str) -> list[Seen]:
    """The same with a watcher that knows the run's settings."""
    watcher = Watcher()
    watcher.note(STARTED)
    return watched(records(columns), watcher)


def told_by(algo: dict[str, object], **columns: str) -> list[Seen]:
    """The same with another algorithm."""
    watcher = Watcher()
    watcher.note(replace(STARTED, algo=algo))
    return watched(records(columns), watcher)


def brief(said: list[Seen]) -> list[tuple[str, int, int, bool]]:
    return [(one.code, one.step, one.since, one.ended) for one in said]


# ---------------------------------------------------------------- noise


@pytest.mark.parametrize("seeds", [range(begin, begin + 50) for begin in (0, 50, 100, 150)], ids=lambda seeds: f"from {seeds[0]}")
def test_healthy_runs_are_silent(seeds: range) -> None:
    assert {seed: brief(said) for seed in seeds if (said := watched(healthy(seed)))} == {}


OPTIONAL = float | None
NUMBERS = {field.name: field.type for field in fields(Step) if field.type in (float, OPTIONAL)}
WILD = (0.0, 1.0, -1.0, 1e-300, 1e308, -1e308, math.inf, -math.inf, math.nan)


def wild(seed: int) -> Iterator[Step]:
    """Steps with numbers that none should have, some of them always, some now and then."""
    dice = random.Random(seed)
    always = {name: dice.choice(WILD) for name in dice.sample(list(NUMBERS), 4)}
    often = dice.choice([0.02, 0.1, 0.3])
    for number in range(1, 60):
        odd = {name: dice.choice((*WILD, None) if kind == OPTIONAL else WILD) for name, kind in NUMBERS.items() if dice.random() < often}
        yield a_step(number, **{**always, **odd})


def test_no_number_stops_a_run() -> None:
    for seed in range(150):
        assert all(one.code in STEP_CODES for one in watched(wild(seed)))


# ---------------------------------------------------------------- what a watcher remembers


def test_a_finding_is_said_when_it_begins_and_when_it_is_over() -> None:
    began, over = seen(kl="0.02 for 25, 1.5 for 10, 0.02 for 10")
    # Three of the last five steps are above 1 from step 28 on, and below it from 38 on; five calm steps end it.
    assert brief([began, over]) == [("WB701", 28, 26, False), ("WB701", 42, 26, True)]
    assert (began.title, began.severity) == (CODES["WB701"].title, "error")
    assert over == replace(began, step=42, ended=True)


def test_a_short_calm_is_no_end() -> None:
    assert brief(seen(kl="1.5 for 10, 0.02 for 4, 1.5 for 10")) == [("WB701", 5, 1, False)]


def test_findings_of_a_long_run_are_those_of_its_memory() -> None:
    watcher = Watcher(Limits(memory=50))
    watched((a_step(number) for number in range(1, 500)), watcher)
    assert len(watcher._steps) == 50
    assert [step.step for step in watcher._begin] == list(range(1, 11))


def test_after_another_temperature_nothing_is_compared_with_before() -> None:
    def stream(temperature: float) -> list[Seen]:
        watcher = Watcher()
        watcher.note(STARTED)
        said = watched(records({"entropy": "0.5 for 20"}), watcher)
        watcher.note(Knob(21, "temperature", 1.0, temperature))
        return said + watched((a_step(number, entropy=0.04) for number in range(21, 60)), watcher)

    assert stream(0.3) == []
    assert brief(stream(0.9)) == [("WB702", 23, 21, False)]


def test_a_knob_acts_from_its_step_on_and_may_be_turned_back_before() -> None:
    watcher = Watcher()
    watcher.note(STARTED)
    watched(records({"entropy": "0.5 for 20"}), watcher)
    watcher.note(Knob(22, "temperature", 1.0, 0.3))  # while step 21 still runs
    watcher.note(Knob(22, "temperature", 0.3, 1.0))
    assert brief(watched((a_step(number, entropy=0.04) for number in range(21, 60)), watcher)) == [("WB702", 23, 21, False)]


def test_every_rule_has_its_code_and_every_code_its_rule() -> None:
    assert [code for code in STEP_CODES if any(code in (rule.__doc__ or "") for rule in RULES)] == list(STEP_CODES)
    assert len(RULES) == len(STEP_CODES)


# ---------------------------------------------------------------- the policy


def test_kl_says_how_far_and_which_knobs() -> None:
    (one,) = told(kl="0.02 for 25, 1.5 for 5")
    assert "KL to the base 1.50 nats per token, above 1" in one.found
    assert one.fix.startswith("run.knobs.learning_rate = 0.0005, or run.knobs.kl = 0.04; Run.restore(path)")
    (one,) = seen(kl="0.02 for 25, 1.5 for 5")  # an algorithm without a penalty has no such knob
    assert "run.knobs.kl" not in one.fix


def test_kl_that_leaps_is_seen_far_below_the_level() -> None:
    (one,) = seen(kl="0.02 for 25, 0.2 for 3")
    assert brief([one]) == [("WB701", 28, 26, False)]
    assert "0.20 nats per token, 0.02 in the 20 steps before" in one.found
    assert seen(kl="0.02 for 25, 0.11 for 5") == []  # 5.5 times as far, but by less than 0.1
    assert seen(kl="0.05 for 25, 0.19 for 5") == []  # by 0.14, but 3.8 times
    assert seen(kl="0.02 for 20, 0.2 for 3") == []  # with less than twenty steps before the last five
    noisy = ", ".join(["0.01 for 1, 0.15 for 1"] * 12) + ", 0.4 for 5"  # 5 deviations of these are 0.52
    assert seen(kl=noisy) == []


def test_one_odd_estimate_is_nothing() -> None:
    assert seen(kl="0.3 for 20, 4 for 1, 0.3 for 20, 4 for 2, 0.3 for 20") == []


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_kl_that_is_no_number_is_said_at_once(value: float) -> None:
    assert brief(watched(iter([a_step(1), a_step(2, kl=value)]))) == [("WB701", 2, 2, False)]


def test_entropy_has_to_fall_both_far_and_low() -> None:
    (one,) = told(entropy="0.5 for 10, 0.02 for 5")
    assert brief([one]) == [("WB702", 15, 11, False)]
    assert "entropy 0.020 nats per token, 0.50 in the first steps" in one.found
    assert one.fix == (
        "run.knobs.learning_rate = 0.0005, or run.knobs.temperature = 1.2, or a higher upper clip (run.knobs.clip = (0.2, 0.28))"
    )
    (one,) = told_by({"clip": [0.2, 0.3]}, entropy="0.5 for 10, 0.02 for 5")
    assert one.fix.endswith("(run.knobs.clip = (0.2, 0.42))")
    (one,) = told_by({"clip": "a schedule of one's own", "kl": None}, entropy="0.5 for 10, 0.02 for 5")
    assert one.fix.endswith("run.knobs.temperature = 1.2")
    assert seen(entropy="2.0 for 10, 0.1 for 30") == []  # to 5 %, yet a choice is left
    assert seen(entropy="0.04 for 40") == []  # low, from the beginning
    assert brief(seen(entropy="0.5 for 10, 0.02 for 10, 0.5 for 12")) == [("WB702", 15, 11, False), ("WB702", 27, 11, True)]


def test_steps_that_teach_nothing() -> None:
    skipped = {"groups_without_variance": "8 for 5, 32 for 8, 8 for 5", "skipped": "0 for 5, 1 for 8, 0 for 5"}
    hard = told(**skipped, reward_mean="0 for 20")
    assert brief(hard) == [("WB703", 13, 6, False), ("WB703", 18, 6, True)]
    assert "8 steps in a row were skipped" in hard[0].found
    assert "mean reward 0.00, at the beginning 0.00" in hard[0].found
    assert hard[0].fix.startswith("a task with easier prompts, or rewards that give part marks, or run.knobs.group_size = 16")
    easy = told(**skipped, reward_mean="0.2 for 5, 1 for 15")
    assert easy[0].fix.startswith("a task with harder prompts")
    assert told(**skipped, value_loss="0.1 for 20") == []  # a critic learns from them


def test_groups_that_are_nearly_all_flat() -> None:
    (one,) = told(groups_without_variance="8 for 5, 30 for 12")
    assert brief([one]) == [("WB703", 17, 6, False)]
    assert "for 12 steps 94 % of the groups had equal rewards" in one.found
    assert told(groups_without_variance="8 for 5, 28 for 40") == []  # seven eighths
    assert told_by({"name": "ReinforcePlusPlus", "group_size": 1}, groups_without_variance="32 for 40") == []


def test_completions_that_are_cut_more_and_more() -> None:
    said = told(truncated_fraction="0.05 for 10, 0.3 for 10, 0.05 for 20")
    assert brief(said) == [("WB704", 20, 11, False), ("WB704", 28, 11, True)]
    assert "30 % of the completions are cut at max_tokens = 256, 5 % in the first steps" in said[0].found
    assert "run.knobs.max_tokens = 512" in said[0].fix
    assert told(truncated_fraction="0.02 for 10, 0.18 for 30") == []  # a tail
    assert told(truncated_fraction="0.3 for 10, 0.4 for 30") == []  # not much more
    assert told(truncated_fraction=", ".join(["0 for 1, 1 for 1"] * 5 + ["0 for 1, 1 for 2"] * 10)) == []  # 0.5 to 0.67, of noise


# ---------------------------------------------------------------- the critic


def test_value_loss_against_its_own_median() -> None:
    began, over = seen(value_loss="0.05 for 20, 1.5 for 4, 0.05 for 10")
    assert brief([began, over]) == [("WB711", 22, 21, False), ("WB711", 30, 21, True)]
    assert "value loss 1.5 in the median of 3 steps, 0.05 in all before" in began.found
    assert "more than a critic has that knows only the mean (0.125)" in began.found
    assert brief(seen(value_loss="0 for 20, 1.5 for 2")) == [("WB711", 22, 21, False)]
    assert seen(value_loss="0.05 for 14, 1.5 for 3") == []  # 14 steps are no past
    assert seen(value_loss="0.05 for 20, 0.45 for 30") == []  # nine times
    assert seen(value_loss="1e-9 for 20, 1e-6 for 30") == []  # a thousand times what is nothing
    assert brief(watched(iter([a_step(1, value_loss=math.nan)]))) == [("WB711", 1, 1, False)]


def test_a_critic_that_learns_again_is_no_finding() -> None:
    assert brief(seen(explained_variance="-0.2 for 40")) == [("WB712", 40, 1, False)]
    assert brief(seen(explained_variance="-0.2 for 45, 0.3 for 20")) == [("WB712", 40, 1, False), ("WB712", 54, 1, True)]
    assert seen(explained_variance="-0.2 for 39") == []
    assert seen(explained_variance="0 for 60") == []


# ---------------------------------------------------------------- the reward


def test_rewards_that_jump_after_a_restore() -> None:
    said = seen(reward_mean="0.8 for 20, 0.2 for 40", restored="20")
    assert brief(said)[0] == ("WB721", 28, 21, False)
    assert "from step 21 on the mean reward is 0.20 instead of 0.80" in said[0].found
    assert "after the run was restored, while the policy moved by 0.000 nats per token" in said[0].found
    assert said[0].fix.startswith("score the samples of a step before it again and compare")
    assert brief(said)[1:] == [("WB721", 49, 21, True)]  # told for three times eight steps, and five of calm
    assert seen(reward_mean="0.8 for 20, 0.6 for 40", restored="20") == []  # 5 errors are 0.44 with 32 prompts


def test_the_same_jump_where_the_policy_moved_is_none() -> None:
    assert seen(reward_mean="0.8 for 20, 0.2 for 40", kl="0.02 for 20, 0.09 for 40", restored="20") == []


def test_a_slope_is_no_jump() -> None:
    assert seen(reward_mean="0 to 1 for 30", reward_std="0.05 for 30", restored="15") == []


def test_another_version_of_the_reward_is_named() -> None:
    watcher = Watcher()
    before = [a_step(number, reward_mean=0.8, reward_numbers={"judge/version": 3, "style": number}) for number in range(1, 21)]
    after = [a_step(number, reward_mean=0.2, reward_numbers={"judge/version": 4, "style": number}) for number in range(21, 29)]
    (one,) = watched(iter(before + after), watcher)
    assert "after the reward's judge/version went from 3 to 4" in one.found


def test_another_model_behind_a_service_is_named() -> None:
    steps = [
        a_step(number, reward_mean=0.8 if number < 21 else 0.2, reward_numbers={"rm/model_changed": number == 21})
        for number in range(1, 29)
    ]
    (one,) = watched(iter(steps))
    assert (one.code, one.since) == ("WB721", 21)
    assert "after another model answered for the reward (rm/model_changed)" in one.found


def test_a_jump_that_nothing_explains_takes_more_and_a_knob_explains_it() -> None:
    quiet = {"reward_std": "0.1 for 40"}
    (one, _) = seen(reward_mean="0.8 for 20, 0.5 for 30", **quiet)
    assert "and nothing says why" in one.found
    assert "service or data were changed" in one.fix
    small = {"reward_mean": "0.8 for 20, 0.68 for 30", **quiet}  # 6.7 errors of 0.018
    assert seen(**small) == []
    assert [one.code for one in seen(**small, restored="20")] == ["WB721", "WB721"]
    watcher = Watcher()
    watcher.note(Knob(21, "prompts", 32, 64))
    assert watched(records({"reward_mean": "0.8 for 20, 0.5 for 30", **quiet}), watcher) == []


def test_a_restore_with_other_packages_names_them() -> None:
    watcher = Watcher()
    watcher.note(STARTED)
    watched(records({"reward_mean": "0.8 for 20"}), watcher)
    watcher.note(Restored(20, "step-20", {"torch": "2.11"}))
    (one,) = watched((a_step(number, reward_mean=0.2) for number in range(21, 29)), watcher)
    assert "after the run was restored (with torch 2.11 instead of 2.10)" in one.found


PAID = {"reward_mean": "0.3 to 0.7 for 30"}


def test_a_reward_that_pays_for_length() -> None:
    (one,) = told(**PAID, completion_tokens_mean="100 to 220 for 30")
    assert brief([one]) == [("WB722", 30, 1, False)]
    # The first ten of thirty steps on a line lie about its place 4.5/29, the last about 24.5/29.
    assert "within 30 steps the mean reward rose from 0.36 to 0.64 together with the length, 119 to 201 tokens" in one.found
    assert "DrGRPO" in one.fix
    assert "run.knobs.kl = 0.04" in one.fix
    assert told(**PAID, completion_tokens_mean="100 to 160 for 30") == []  # 1.4 times
    assert told(reward_mean="0.5 for 30", completion_tokens_mean="100 to 220 for 30") == []  # nothing is paid
    assert told(reward_mean="0.7 to 0.3 for 30", completion_tokens_mean="100 to 220 for 30") == []
    assert told(reward_mean="0.3 to 0.7 for 29", completion_tokens_mean="100 to 220 for 29") == []


def test_it_is_over_when_length_stays() -> None:
    said = told(reward_mean="0.3 to 0.7 for 30, 0.7 for 30", completion_tokens_mean="100 to 220 for 30, 220 for 30")
    assert [(one.code, one.ended) for one in said] == [("WB722", False), ("WB722", True)]


def test_a_reward_that_pays_for_repetition() -> None:
    (one,) = told(**PAID, repetition="0.02 to 0.3 for 30")
    assert brief([one]) == [("WB723", 30, 1, False)]
    assert "6 to 26 % of the 4-grams were there before" in one.found
    assert "workbench.batch.repetition" in one.fix
    assert told(**PAID, repetition="0.02 to 0.16 for 30") == []  # by less than a tenth
