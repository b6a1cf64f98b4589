"""What `workbench check` says."""

import json
from dataclasses import asdict

from tests.mapping.checks.helpers import ask
from workbench.survey.check import mended, report, run_check


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
    asked = {"model": None, "algo": None, "batch": None, "lora": True, "strict": True}
    outcome = run_check(str(path), "preset:dgx-a100", **asked, fix=True)
    assert (outcome.report.ok, [one.code for one in outcome.patched]) == (True, ["WB104"])
    assert path.read_text() == "actor: 0-3  # ours\nrollout: {devices: [4, 5, 6, 7]}\n"
    assert "+rollout: {devices: [4, 5, 6, 7]}" in outcome.diff
    again = run_check(str(path), "preset:dgx-a100", **asked, fix=True)
    assert (again.diff, again.patched) == ("", ())


def test_in_words(tmp_path):
    path = tmp_path / "map.yaml"
    path.write_text("actor: 0-4\n")
    text = str(run_check(str(path), "preset:l40s-4", model=None, algo=None, batch=None, lora=True, strict=False, fix=False))
    assert "no local:4" in text
    assert "WB101" in text
    assert text.endswith("no --model: sizes and memory were not checked")
