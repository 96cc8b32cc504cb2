"""Does a report work in a browser: nothing cut or overlapping, tables that sort, data to download?

Needs Chromium; its network is off.
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import bankwise
from sweeps.cli.reporting import report
from tests.rotation import rotated
from tests.sweeps.made import made
from tests.sweeps.plan.test_crossing import run as search
from tests.sweeps.plan.test_what_if import planted
from tests.sweeps.report.browser import CHROMIUM, Browser
from tests.sweeps.report.test_golden import whole
from tests.sweeps.study.test_study_report import study

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

CUT = """
[...document.querySelectorAll(".vega svg text, figcaption, label, p, h1, h2, h3, dd, dt")]
  .filter(item => item.checkVisibility({ checkOpacity: true }))
  .map(item => [item.textContent, item.getBoundingClientRect()])
  .filter(([text, box]) => text.trim() && (box.left < -0.5 || box.right > innerWidth + 0.5))
  .map(([text]) => text)
"""
"""Texts outside the page."""
OVERLAPPING = """
[...document.querySelectorAll("figure")].flatMap(figure => {
  const items = [...figure.querySelectorAll(".vega svg text, figcaption, figure > p")]
    .filter(item => item.textContent.trim() && item.checkVisibility({ checkOpacity: true }));
  const boxes = items.map(item => item.getBoundingClientRect());
  const found = [];
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b, k) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 3)
      found.push(figure.querySelector("figcaption").textContent + ": " + items[i].textContent
                 + " / " + items[i + 1 + k].textContent);
  }));
  return found;
})
"""
EMPTY = """
[...document.querySelectorAll("figure")].filter(figure => {
  const drawn = figure.querySelectorAll(
    ".vega .mark-rect path, .vega .mark-line path, .vega .mark-symbol path, .vega .mark-area path"
  );
  return ![...drawn].some(item => {
    const box = item.getBoundingClientRect();
    return item.checkVisibility() && Math.max(box.width, box.height) > 0;
  });
}).map(figure => figure.querySelector("figcaption").textContent)
"""
"""Charts in which nothing is drawn."""
UNFOLDED = """
document.querySelectorAll("details:not(.values, .vega details)").forEach(item => {
  item.open = true;
});
specs.then(() => Promise.all(charts.map(chart => draw(chart)))).then(() => charts.length)
"""
"""Opens everything, and waits until all is drawn."""
FIRST = """
(["h1", ".lead", ".beside .vega svg", ".beside tbody tr"]).map(name => {
  const item = document.querySelector(name);
  return item ? item.getBoundingClientRect().bottom : null;
})
"""
"""Where the first of each ends: the title, the verdict, the waterfall, the table's first row."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    ours, theirs = whole(folder / "a"), made(folder / "b", odma=156)
    report([ours])
    report([study(folder / "study")])
    report([ours, theirs], folder / "runs.html")
    bankwise.compare(ours, theirs).save(folder / "compare.html")
    report([planted(folder / "what-if")])
    with pytest.MonkeyPatch.context() as patch:
        search(folder / "break-even", patch)
    report([folder / "break-even"])
    return {
        "report": ours / "report.html",
        "runs": folder / "runs.html",
        "study": folder / "study/report.html",
        "comparison": folder / "compare.html",
        "what-if": folder / "what-if/report.html",
        "break-even": folder / "break-even/report.html",
    }


HIDDEN = (
    "[...document.querySelectorAll('.beside > .wide')].filter("
    "i => i.scrollHeight > i.clientHeight + 1).length"
)
"""Tables of which a narrow page shows a part and scrolls the rest."""
NAMES = ["report", "runs", "study", "comparison", "what-if", "break-even"]


SCREENS = [(1400, False), (390, True), (1400, True), (390, False)]
"""Widths, and whether colours are dark."""


@pytest.mark.parametrize(("name", "screen"), rotated(NAMES, SCREENS))
def test_nothing_is_cut_overlaps_or_fails(
    name: str, screen: tuple[int, bool], browser: Browser, pages: dict[str, Path]
) -> None:
    width, dark = screen
    browser.errors.clear()
    browser.open(pages[name], width, dark)
    assert browser.value(UNFOLDED) > 0
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(CUT) == []
    assert width > 390 or browser.value(HIDDEN) == 0
    assert browser.value(OVERLAPPING) == []
    assert browser.value(EMPTY) == []
    assert browser.errors == []
    ink, paper = (
        sum(map(int, re.findall("[0-9]+", text)))
        for text in browser.value(
            "(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))"
        )
    )
    assert (ink > paper) is dark


@pytest.mark.parametrize("width", [1400, 390])
def test_the_first_screen_holds_the_verdict_its_causes_and_the_table(
    width: int, browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["report"], width)
    browser.value("draw(charts[0]).then(() => true)")
    places = browser.value(FIRST)
    assert places == sorted(places) if width == 390 else None not in places
    assert max(places) < 800
    cut = "[...document.querySelectorAll('.wide')].map(i => i.scrollWidth - i.clientWidth)"
    assert max(browser.value(cut)) <= 1


def test_a_policy_can_be_switched_off(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["report"], 1400)
    browser.value("specs.then(() => true)")
    names = "[...document.querySelectorAll('.shown label')].map(i => i.textContent)"
    assert browser.value(names) == ["paged", "odma", "controls"]
    drawn = "draw(charts[2]).then(() => charts[2].host.textContent)"
    assert "odma" in browser.value(drawn) and "(analytic)" in browser.value(drawn)
    for name in ("odma", "controls"):
        browser.value(f"document.querySelector('.shown input[value={name}]').click()")
    time.sleep(0.3)
    text = browser.value("charts[2].host.textContent")
    assert "paged" in text and "odma" not in text and "(analytic)" not in text


def test_what_the_pointer_shows_is_a_table_too(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["report"], 1400)
    browser.value("draw(charts[2]).then(() => charts[2].host.scrollIntoView())")
    over = "charts[2].host.querySelector('.mark-rect path').getBoundingClientRect()"
    box = browser.value(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({over})")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    shown = "document.querySelector('#vg-tooltip-element')?.textContent ?? ''"
    for _ in range(100):
        if text := browser.value(shown):
            break
        time.sleep(0.05)
    assert "odma" in text and "132.6" in text
    browser.value("charts[2].figure.querySelector('.values').open = true")
    rows = "[...charts[2].figure.querySelectorAll('.values tr')].map(r => r.textContent)"
    browser.value("new Promise(r => setTimeout(r, 100))")
    assert browser.value(rows)[1].startswith("odma132.6")


def test_the_checks_see_what_is_cut_and_what_overlaps(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    spoilt = tmp_path / "spoilt.html"
    style = "figcaption { position: relative; top: 2rem; left: 12rem } svg text { scale: 3 }"
    spoilt.write_text(pages["report"].read_text().replace("</style>", f"{style} </style>"))
    browser.open(spoilt, 390)
    browser.value(UNFOLDED)
    assert browser.value(CUT) != [] and browser.value(OVERLAPPING) != []


def test_nothing_is_loaded(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["report"], 1400)
    browser.value(UNFOLDED)
    assert browser.value("performance.getEntriesByType('resource').length") == 0


def test_a_table_sorts_by_number_both_ways(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["report"], 1400)
    column = (
        '[...document.querySelector("table.sorts tbody").rows].map(r => r.cells[1].textContent)'
    )
    click = 'document.querySelectorAll("table.sorts th button")[1].click()'
    before = browser.value(column)
    assert before == ["102.0 ± 2.5", "132.6 ± 3.2"]
    browser.value(f"{click}; {click}")
    assert browser.value(column) == before[::-1]
    assert browser.value('document.querySelector("th[aria-sort]").ariaSort') == "descending"


def test_a_charts_data_is_downloaded(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    browser.open(pages["report"], 1400)
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.value('specs.then(() => document.querySelector("a.csv").click())')
    file = tmp_path / "made-card-odma-over-paged-what-each-cause-makes-of-it.csv"
    for _ in range(200):
        if file.exists() and file.stat().st_size:
            break
        time.sleep(0.05)
    rows = list(csv.reader(file.read_text().splitlines()))
    assert rows[0] == ["name", "change, %", "interval from, %", "to, %"]
    assert rows[1][:2] == ["holes", "40"] and len(rows) == 4


def test_print_unfolds_everything_in_light_colours(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["report"], 1400, dark=True)
    closed = 'document.querySelectorAll("details:not([open], .values, .vega details)").length'
    browser.value('dispatchEvent(new Event("beforeprint"))')
    assert browser.value(closed) == 0
    browser.value('dispatchEvent(new Event("afterprint"))')
    assert browser.value(closed) > 0
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.value("getComputedStyle(document.body).maxWidth") == "none"
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
