"""Do links lead somewhere, and is every page on the map?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def by_hand(page: str) -> str:
    """A page without the tables and comments of tools/figures.py."""
    return re.sub(r"<!--table .*?<!--/table-->|<!--.*?-->", "", page, flags=re.DOTALL)


PAGES = {
    str(page.relative_to(ROOT)): by_hand(page.read_text(encoding="utf-8"))
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
}
_LINK = re.compile(r"!?\[([^]]*)\]\(([^)\s]*)\)")


def anchors(page: str) -> set[str]:
    """The headings of a page, as links name them."""
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_links_lead_somewhere(name: str) -> None:
    for _, target in _LINK.findall(PAGES[name]):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file.read_text(encoding="utf-8")), target


def test_pages_that_code_names_are_there() -> None:
    rooms = ("hwmodel", "policies", "sweeps")
    for file in (each for room in rooms for each in (ROOT / room).rglob("*.py")):
        for name in re.findall(r"\bdocs/[\w-]+\.md\b", file.read_text(encoding="utf-8")):
            assert name in PAGES, (file, name)


def test_every_page_is_on_the_map() -> None:
    index = PAGES["docs/index.md"]
    for name in PAGES:
        if name.startswith("docs/") and name != "docs/index.md":
            assert f"({Path(name).name})" in index, name
