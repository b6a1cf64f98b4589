"""Findings on the run itself, wherever people look: the summary, the report, the live view, and the list."""

from collections.abc import Callable
from dataclasses import replace

from workbench.events import EventLog
from workbench.metrics import findings
from workbench.records import Restored, Seen
from workbench.views.frame import Fact, frame
from workbench.views.history import History
from workbench.views.report import report
from workbench.views.summary import summary

Play = Callable[..., EventLog]
KL = Seen("WB701", "KL blows up", "error", 12, 10, "KL 1.50 <b>\x1b[31m", "run.knobs.kl = 0.04")
LENGTH = Seen("WB722", "length is rewarded", "warning", 30, 1, "100 to 220 tokens", "read run.batch")


def told(play: Play, *seen: Seen) -> EventLog:
    log = play(40, finish=True)
    for one in seen:
        log.emit(one)
    return log


def test_the_last_word_on_each_counts(play: Play) -> None:
    over = replace(KL, step=20, ended=True)
    assert findings(told(play, KL, LENGTH, over).events) == [over, LENGTH]
    log = told(play, LENGTH)
    log.emit(Restored(29, "step-29", {}))
    assert findings(log.events) == []


def test_the_summary_says_what_and_since_when_and_what_to_do(play: Play) -> None:
    lines = summary(told(play, replace(LENGTH, code="WB723", ended=True, step=35), KL).events).text.splitlines()
    at = lines.index("Findings")
    assert [line.split(maxsplit=4) for line in lines[at + 1 : at + 4]] == [
        ["WB701", "error", "since", "step", "10  KL blows up: KL 1.50 <b>\\x1b[31m"],
        ["fix", "run.knobs.kl", "=", "0.04"],
        ["WB723", "steps", "1–35", "length", "is rewarded: over"],
    ]
    html = summary(told(play, KL).events).html
    assert "KL 1.50 &lt;b&gt;" in html
    assert "\x1b" not in html
    assert "Findings" not in summary(told(play).events).text


def test_the_report_has_what_is_open(play: Play) -> None:
    found = report(told(play, LENGTH, KL, replace(LENGTH, step=35, ended=True)).events)
    assert "WB701 error, since step 10: KL blows up: KL 1.50 <b>\\x1b[31m\n  fix: run.knobs.kl = 0.04" in found.text
    assert "WB701 error, since step 10: KL blows up: KL 1.50 &lt;b&gt;" in found.html
    assert "WB722" not in found.text + found.html


def test_the_live_view_has_a_fact_of_it(play: Play) -> None:
    log = told(play, KL, LENGTH)
    (fact,) = (fact for fact in frame(History(log.events)).facts if fact.label == "Findings")
    assert fact == Fact("Findings", "2", "KL blows up (WB701), length is rewarded (WB722): run.summary() says what to do")
    log.emit(replace(KL, step=40, ended=True))
    log.emit(replace(LENGTH, step=40, ended=True))
    assert all(fact.label != "Findings" for fact in frame(History(log.events)).facts)
