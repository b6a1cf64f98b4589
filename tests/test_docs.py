"""The documents: links between them lead somewhere, and what findings point at exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.mapping.advice import anchors

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
