"""What `workbench check` says."""

import json
from dataclasses import asdict, replace

import pytest

from tests.mapping.checks.helpers import ask
from workbench.mapping.checks import mended
from workbench.mapping.on_machine import OnMachine
from workbench.survey.check import Asked, Outcome, report, run_check


def test_the_report_for_programs():
    question = ask("dgx-a100", actor="0-3 fsdp", rollout="0-3 tp2", reward="http://host:8000")
    found = json.loads(json.dumps(asdict(report(question))))
    assert list(found) == ["ok", "resolved", "findings"]
    first = ["local:0", "local:1", "local:2", "local:3"]
    assert found["resolved"]["rollout"] == {
        "devices": first,
        "layout": "tp=2",
        "tp": 2,
        "dp": 2,
        "share": None,
        "mode": "merged",
        "residency": "hybrid",
        "url": None,
    }
    assert found["resolved"]["reference"]["share"] == "actor"
    assert (found["resolved"]["reward"]["url"], found["resolved"]["reward"]["devices"]) == ("http://host:8000", [])
    unused = found["findings"][0]
    assert unused.keys() == {"code", "severity", "role", "asked", "found", "fix"}
    assert unused["fix"].keys() == {"text", "patch"}
    assert unused["fix"]["patch"]["rollout"] == {"devices": [*range(8)], "tp": 2}


def test_strict_counts_warnings():
    question = ask("dgx-a100", actor="0-3", rollout="4-5")
    assert report(question).ok
    assert not report(question, strict=True).ok
    assert report(ask("dgx-a100", actor="0"), strict=True).ok  # an info is none


def test_mending_takes_the_gravest_first():
    better, done = mended(ask("dgx-a100", actor="0-3", rollout="3-8 tp4", algo="ppo", model="shape:llama-7b"))
    assert [one.severity for one in done] == sorted((one.severity for one in done), key=["error", "warning", "info"].index)
    assert "WB101" in [one.code for one in done]
    assert report(ask("dgx-a100", **{str(role): place for role, place in better.places.items()}, algo="ppo")).ok


def test_fixing_a_file(tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text("actor: 0-3  # ours\nrollout: 4-5\n")
    asked = Asked(str(path), "preset:dgx-a100", strict=True, fix=True)
    outcome = run_check(asked)
    assert (outcome.report.ok, [one.code for one in outcome.patched]) == (True, ["WB104"])
    assert path.read_text() == "actor: 0-3  # ours\nrollout: 4-7\n"
    assert "+rollout: 4-7" in outcome.diff
    again = run_check(asked)
    assert (again.diff, again.patched) == ("", ())


def test_in_words(tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text("actor: 0-4\n")
    text = str(run_check(Asked(str(path), "preset:l40s-4")))
    assert "no local:4" in text
    assert "WB101" in text
    assert "1 error; sizes and memory were not checked: no model given" in text


@pytest.mark.parametrize(
    ("text", "asked", "why"),
    [
        ("actor: 0-1 tp2\n", {"full": True}, "transformers splits a frozen model: gradients of what stays whole would be partial"),
        (
            "actor: 0\nrollout: 1\n",
            {"full": True},
            "whole weights reach engines in the trainer's own processes, and this engine has devices of its own",
        ),
    ],
)
def test_what_this_version_can_not_run_yet(tmp_path, text, asked, why):
    path = tmp_path / "map.yaml"
    path.write_text(text)
    outcome = run_check(Asked(str(path), "preset:rtx3090-2-bridge", **asked))
    assert outcome.report.ok
    assert str(outcome).endswith(f"this version can't run it yet: {why}")


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("actor: 0-3 fsdp\nrollout: 4-7 tp2\n", ""),
        ("actor: 0-1\nrollout: 2-5\nreference: 6\nreward: 7\n", ""),
        ("actor: 0-3 tp2\nrollout: 0-3 tp2\n", "merged"),  # takes turns: auto would rewrite the engine's copy
    ],
)
def test_what_it_runs_now(tmp_path, text, mode):
    """Several GPUs, shards, split models, roles apart."""
    path = tmp_path / "map.yaml"
    path.write_text(text)
    said = str(run_check(Asked(str(path), "preset:dgx-a100")))
    assert "can't run" not in said
    assert ("takes mode adapter where the map leaves it open; write mode: merged" in said) == bool(mode)


def test_what_the_verdict_does_not_cover(tmp_path):
    """No model: no sizes. Memory that nobody told: a finding."""
    path = tmp_path / "map.yaml"
    path.write_text("actor: 0-1\n")
    assert str(run_check(Asked(str(path), "preset:rtx3090-2-bridge"))).count("sizes and memory were not checked") == 1
    path.write_text("actor: cpu\n")
    assert "can't run" not in str(run_check(Asked(str(path), "cpu:4", model="tiny")))
    path.write_text("actor: 0-1\ncritic: share:actor\n")
    matrix = tmp_path / "matrix.txt"
    matrix.write_text("\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n")
    pasted = Asked(str(path), str(matrix), model="shape:qwen2.5-7b")
    assert [one.code for one in run_check(pasted).report.findings if one.severity == "warning"] == ["WB502"]
    told = str(run_check(replace(pasted, memory_gib=24.0)))
    assert "WB502" not in told
    assert "local:0-1: 15.4 of 24.0 GiB" in told  # shares one base with the engine, 7,615,616,512 x 2 bytes, and two adapters


def test_what_each_gpu_holds_is_told(tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text("actor: 0-3 fsdp\nrollout: 4-7 tp2\n")
    text = str(run_check(Asked(str(path), "preset:dgx-a100", model="shape:llama-7b")))
    assert "local:4-7: 6.3 of 80.0 GiB (rollout weights 6.3)" in text  # 6,738,415,616 x 2 bytes / 2
    assert "local:0-3: 3.3 of 80.0 GiB " in text


def test_nothing_of_a_verdict_drives_the_terminal():
    """A model's name is that of its folder."""
    shape = replace(ask(None, actor="0", model="shape:llama-70b").shape, name="\x1b[2J70b")
    question = replace(ask("l40s-4", actor="0"), shape=shape)
    text = str(OnMachine.of(question)) + str(Outcome(question, report(question)))
    assert "\x1b" not in text
    assert "\\x1b[2J70b" in text
