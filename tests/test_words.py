"""Does the text stay short: sentences, pages, and all that is written by hand? Do links lead
somewhere?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SENTENCE, PAGE, TOTAL = 30, 1_200, 42_000
"""Most words of a sentence, of a page, and of all pages."""


def by_hand(page: str) -> str:
    """A page without the tables and comments of tools/figures.py."""
    return re.sub(r"<!--table .*?<!--/table-->|<!--.*?-->", "", page, flags=re.DOTALL)


PAGES = {
    str(page.relative_to(ROOT)): by_hand(page.read_text(encoding="utf-8"))
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
}
BY_HAND = sorted(PAGES)
_LINK = re.compile(r"!?\[([^]]*)\]\(([^)\s]*)\)")


def words(text: str) -> int:
    """Words have a letter or a digit: the bars of a table are none."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def prose(page: str) -> Iterator[str]:
    """The paragraphs and list items of a page, a line each, without code and tables. What stands
    in backticks is one word, of a link its text counts."""
    block: list[str] = []
    fenced = False
    for line in [*page.splitlines(), ""]:
        fenced ^= line.startswith("```")
        item = re.match(r"\s*([-*]|\d+\.) ", line)
        other = not line.strip() or line.startswith(("```", "    ", "|", "#"))
        if block and (item or other or fenced):
            text = _LINK.sub(r"\1", " ".join(block))
            yield re.sub(r"`[^`]*`", "Code", text)
            block = []
        if not (other or fenced):
            block.append(line.strip())


def sentences(page: str) -> Iterator[str]:
    for paragraph in prose(page):
        yield from re.split(r"(?<=[.!?:])[)\"*_]* +(?=[(\"*_]*[A-Z0-9])", paragraph)


def anchors(page: str) -> set[str]:
    """The headings of a page, as links name them."""
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_page_is_read_at_one_sitting(name: str) -> None:
    assert words(PAGES[name]) <= PAGE


@pytest.mark.parametrize("name", BY_HAND)
def test_a_sentence_is_read_once(name: str) -> None:
    assert not [each for each in sentences(PAGES[name]) if words(each) > SENTENCE]


def test_all_that_is_written_by_hand_is_short() -> None:
    assert sum(words(PAGES[name]) for name in BY_HAND) <= TOTAL


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
