"""The documents: links between them lead somewhere, and what findings point at exists."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

import workbench as wb
from workbench.mapping.advice import anchors
from workbench.runtime.nodes import PROBE_SECONDS
from workbench.runtime.settings import PURPOSES

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def anchors_of(page: Path) -> set[str]:
    """Ids that a link may name: those written down, and those that a reader such as GitHub gives to headings."""
    text = page.read_text(encoding="utf-8")
    written = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    headings = re.findall(r"^#+ +(.+?) *$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return written | {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links_of(page: Path) -> Iterator[str]:
    """Targets of the links of a page to files of this repository, and within itself."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    return (target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page):
    for target in links_of(page):
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        assert aim.exists(), f"{page.name}: {target}"
        assert not anchor or aim.suffix != ".md" or anchor in anchors_of(aim), f"{page.name}: {target}"


def test_each_myth_that_a_finding_names_is_told():
    assert anchors() - anchors_of(ROOT / "docs/myths.md") == set()


def test_the_contents_of_the_myths_are_complete():
    page = ROOT / "docs/myths.md"
    written = re.findall(r'<a id="([^"]+)"', page.read_text(encoding="utf-8"))
    listed = [target.removeprefix("#") for target in links_of(page) if target.startswith("#")]
    assert listed[: len(written)] == written
    assert len(set(written)) == len(written)


def test_each_myth_has_its_evidence_and_what_to_do():
    entries = (ROOT / "docs/myths.md").read_text(encoding="utf-8").split('<a id="')[1:]
    for entry in entries:
        for part in ("*Claim.*", "*True.*", "*Evidence.*", "*Instead.*"):
            assert part in entry, entry[:80]


def test_the_parts_of_an_anchor(tmp_path):
    page = tmp_path / "a.md"
    page.write_text('# The whole, on `one` page\n<a id="x"></a>\n```\n# no heading\n```\n[a](b.md) `[c](d.md)` [e](https://f)\n')
    assert anchors_of(page) == {"the-whole-on-one-page", "x"}
    assert list(links_of(page)) == ["b.md"]


# ---------------------------------------------------------------- clusters


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of what is set apart as code."""
    return re.findall(r"```(\w*)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


CLUSTERS = ROOT / "docs/clusters.md"


OPTIONS = """
import json
from ray.scripts.scripts import get_auth_token, start
from ray.scripts.symmetric_run import symmetric_run
commands = {"ray start": start, "ray symmetric-run": symmetric_run, "ray get-auth-token": get_auth_token}
print(json.dumps({name: [option for param in command.params for option in param.opts] for name, command in commands.items()}))
"""


def test_the_options_of_ray_on_the_page_of_clusters_exist():
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", OPTIONS], capture_output=True, text=True, check=True).stdout
    text, known = CLUSTERS.read_text(encoding="utf-8"), json.loads(answer)
    for command, options in known.items():
        lines = re.findall(rf"{command} (.*?)(?: -- | \\|`|\s#|$)", text, re.MULTILINE)
        asked = {option for line in lines for option in re.findall(r"--[\w-]+", line)}
        assert asked, command
        assert asked <= set(options), command
    assert set(re.findall(r"`(--[\w-]+-port)`", text)) <= set(known["ray start"])


def test_the_job_for_kubernetes_is_yaml_with_a_map():
    (job,) = (yaml.safe_load(text) for language, text in blocks(CLUSTERS) if language == "yaml")
    workers = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    devices = wb.DeviceMap.parse(re.search(r'-p map "(.*)"', job["spec"]["entrypoint"])[1])
    assert devices.placement["rollout"] == [f"node3:{n}" for n in range(8)]
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"] == 2


def test_the_settings_of_ray_on_the_page_are_what_they_are_in_the_code():
    text = CLUSTERS.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (.+?) \| (\d+) s \|", text, re.MULTILINE))
    defaults = wb.Ray()
    assert int(rows["a node does not say what it has"]) == PROBE_SECONDS
    assert int(rows["workers do not start"]) == defaults.start_timeout
    rest = [int(seconds) for what, seconds in rows.items() if what.startswith(("ranks", "a collective"))]
    assert rest == [defaults.timeout("control"), defaults.timeout("gradients")]
    assert all(purpose in text for purpose in PURPOSES)


def test_maps_on_the_page_of_clusters_and_the_script_for_slurm():
    text = CLUSTERS.read_text(encoding="utf-8")
    for found in re.findall(r'-p map "(.*?)"', text):
        assert wb.DeviceMap.parse(found).placement["actor"]
    (script,) = (text for language, text in blocks(CLUSTERS) if language == "bash")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("kind", [wb.PPO, wb.Critic])
def test_the_page_on_ppo_has_every_field_with_its_default(kind):
    page = (ROOT / "docs/ppo.md").read_text(encoding="utf-8")
    section = page.partition(f"## `wb.{kind.__name__}`")[2].partition("## ")[0]
    told = {}
    for names, defaults in re.findall(r"^\| (`.+?`) \| (.+?) \|", section, re.MULTILINE):
        told |= dict(zip(re.findall(r"`(\w+)`", names), defaults.replace("`", "").split(", "), strict=True))
    assert told == {field.name: f'"{field.default}"' if isinstance(field.default, str) else str(field.default) for field in fields(kind)}
