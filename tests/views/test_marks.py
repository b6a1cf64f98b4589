"""Marks in the curves: what counts as one, and flags that cover nothing."""

from itertools import combinations

import pytest

from workbench.records import Knob, Restored
from workbench.views.marks import FREE, LONGEST, PLOT, WIDTH, Flag, Mark, Turn, add, flags, marks, strength, when


def turned(*knobs: Knob) -> list[Turn]:
    turns: list[Turn] = []
    for knob in knobs:
        turns = add(turns, knob, 40)
    return turns


def at(step: int, text: str = "kl 0 → 0.1") -> Mark:
    return Mark(step, step, (text,))


def test_a_slider_that_is_moved_several_times_before_a_step_is_turned_once() -> None:
    assert turned(Knob(4, "kl", 0.1, 0.2), Knob(4, "clip", 0.2, 0.3), Knob(4, "kl", 0.2, 0.5)) == [
        Turn("clip", 4, 4, 0.2, 0.3),
        Turn("kl", 4, 4, 0.1, 0.5),
    ]
    assert turned(Knob(4, "kl", 0.1, 0.2), Knob(4, "kl", 0.2, 0.1)) == []


def test_a_knob_that_is_turned_at_every_step_is_one_turn() -> None:
    schedule = [Knob(step, "kl", step, step + 1) for step in range(3, 9)]
    assert turned(*schedule) == [Turn("kl", 3, 8, 3, 9)]
    assert turned(Knob(3, "kl", 1, 2), Knob(5, "kl", 2, 3)) == [Turn("kl", 3, 3, 1, 2), Turn("kl", 5, 5, 2, 3)]


def test_turned_back_after_it_was_used_are_two_turns() -> None:
    assert turned(Knob(3, "kl", 1, 2), Knob(4, "kl", 2, 1)) == [Turn("kl", 3, 3, 1, 2), Turn("kl", 4, 4, 2, 1)]


def test_only_the_latest_turns_are_kept() -> None:
    turns: list[Turn] = []
    for step in range(1, 20, 2):
        turns = add(turns, Knob(step, "kl", step, step + 1), 3)
    assert [turn.first for turn in turns] == [15, 17, 19]


def test_what_acts_at_one_step_is_one_mark_and_what_is_still_to_come_none() -> None:
    turns = turned(Knob(5, "temperature", 1.0, 0.7), Knob(5, "clip", 0.2, [0.2, 0.28]), Knob(9, "kl", 0.0, 1e-3))
    assert marks(turns, [Restored(6, "step-000006", {})], done=8) == (
        Mark(5, 5, ("temperature 1 → 0.7", "clip 0.2 → 0.2, 0.28")),
        Mark(6.5, 6.5, ("restored",)),
    )
    assert marks(turns, [], done=9)[-1].text == "kl 0 → 1e-3"


def test_a_computed_value_is_short_and_a_count_is_whole() -> None:
    assert Turn("temperature", 1, 1, 0.7, 0.7 * 1.1).text == "temperature 0.7 → 0.77"
    assert Turn("max_tokens", 1, 1, 4096, 16384).text == "max_tokens 4096 → 16384"


def test_where_a_mark_is_in_words() -> None:
    assert [when(mark) for mark in (at(5), Mark(5, 8, ()), Mark(6.5, 6.5, ()))] == ["step 5", "steps 5–8", "after step 6"]


def test_flags_begin_at_their_lines_and_climb_where_they_would_cover_each_other() -> None:
    # On an axis of 44 steps a step is a character wide. The first two are 19 wide: they need 20.5 between them.
    text = "temperature 1 → 0.7"
    assert flags([at(2, text), at(23, text)], PLOT) == (Flag(2, 0, text), Flag(23, 0, text))
    assert flags([at(2, text), at(22, text)], PLOT) == (Flag(2, 1, text), Flag(22, 0, text))


def test_a_flag_without_room_to_the_right_is_pushed_to_the_left() -> None:
    (flag,) = flags([at(44, "x" * 30)], PLOT)
    assert flag.shift == pytest.approx((44 + 30 - WIDTH) / PLOT, abs=0.001)


def test_flags_that_do_not_fit_are_folded_nearest_first() -> None:
    names = ("temperature 1 → 0.7", "learning_rate 1e-3 → 5e-4", "clip 0.2 → 0.2, 0.28", "group_size 16 → 32")
    found = [at(step, text) for step, text in zip((4, 17, 18, 19), names, strict=True)]
    assert [(flag.step, flag.text) for flag in flags(found, PLOT)] == [(4, names[0]), (17, "3 changes")]


def test_the_words_of_a_schedule_say_how_long_and_long_words_are_cut() -> None:
    (flag,) = flags([Mark(2, 9, ("kl 0.1 → 0.02",))], 60)
    assert flag.text == "kl 0.1 → 0.02, steps 2–9"
    (flag,) = flags([at(2, "x" * 90)], 60)
    assert len(flag.text) == LONGEST


def test_nothing_changed_has_no_flags() -> None:
    assert flags([], 60) == ()


@pytest.mark.parametrize("count", [2, 5, 13, 30, 40])
def test_no_words_cover_words_or_the_line_of_another(count: int) -> None:
    texts = ("temperature 1 → 0.7", "kl 0 → 0.1", "learning_rate 1e-3 → 5e-4")
    found = flags([at(1 + 97 * place // count, texts[place % 3]) for place in range(count)], 100)
    boxes = [(flag.step / 100 * PLOT, flag.step / 100 * PLOT - flag.shift * PLOT, len(flag.text), flag.row) for flag in found]
    assert all(begin >= FREE[row] - 0.1 and begin + wide <= WIDTH + 0.1 for _, begin, wide, row in boxes)
    for (line, begin, wide, row), (other_line, other_begin, other_wide, other_row) in combinations(boxes, 2):
        if row == other_row:
            assert begin + wide < other_begin or other_begin + other_wide < begin
        if row < other_row:
            assert not begin < other_line < begin + wide
        if row > other_row:
            assert not other_begin < line < other_begin + other_wide
    assert sum(int(flag.text.split()[0]) if flag.text.endswith("changes") else 1 for flag in found) == count


def test_many_lines_are_no_louder_than_a_few() -> None:
    assert strength([at(1)] * 3) == 1.0
    assert strength([at(1)] * 32) == 0.25
