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

from sweeps.cli.reporting import compare, report
from tests.sweeps.made import made
from tests.sweeps.plan.test_break_even import run as search
from tests.sweeps.plan.test_what_if import planted
from tests.sweeps.report.browser import CHROMIUM, Browser
from tests.sweeps.study.test_study_report import study

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

CUT = """
[...document.querySelectorAll(".area span, .bars span, figcaption, .key, p, h1, h2, h3, dd, dt")]
  .filter(item => item.checkVisibility())
  .map(item => [item.textContent, item.getBoundingClientRect()])
  .filter(([text, box]) => text && (box.left < 0 || box.right > innerWidth + 0.5))
  .map(([text]) => text)
"""
"""Texts outside the page."""
OVERLAPPING = """
[...document.querySelectorAll("figure")].flatMap(figure => {
  const items = [...figure.querySelectorAll(
    ".area span, .bars span, figcaption, .keys, .ylabel, .xlabel, figure > p"
  )].filter(item => item.textContent && item.checkVisibility());
  const boxes = items.map(item => item.getBoundingClientRect());
  const found = [];
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b, k) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 1)
      found.push(figure.querySelector("figcaption").textContent + ": " + items[i].textContent
                 + " / " + items[i + 1 + k].textContent);
  }));
  return found;
})
"""
EMPTY = """
[...document.querySelectorAll("figure")].filter(figure => {
  const drawn = figure.querySelectorAll("rect[class], .area path");
  return ![...drawn].some(item => {
    const box = item.getBoundingClientRect();
    return item.checkVisibility() && Math.max(box.width, box.height) > 0;
  });
}).map(figure => figure.querySelector("figcaption").textContent)
"""
"""Charts in which nothing is drawn."""
FOLDED = 'document.querySelectorAll("details").forEach(item => { item.open = true; })'


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    ours, theirs = made(folder / "a"), made(folder / "b", odma=156)
    (ours / "logs").mkdir()
    (ours / "logs/point0-r1-memory.csv").write_text(
        "request,first_slot,slots,from_s,until_s\n7,100,100,0,4\n8,0,100,0,1\n9,0,90,1,4\n"
    )
    report([ours])
    report([study(folder / "study")])
    report([ours, theirs], folder / "runs.html")
    compare(ours, theirs, folder / "compare.html", None, False)
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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", ["report", "runs", "study", "comparison", "what-if", "break-even"])
def test_nothing_is_cut_overlaps_or_fails(
    name: str, width: int, dark: bool, browser: Browser, pages: dict[str, Path]
) -> None:
    browser.errors.clear()
    browser.open(pages[name], width, dark)
    browser.value(FOLDED)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(CUT) == []
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


def test_the_checks_see_what_is_cut_and_what_overlaps(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    spoilt = tmp_path / "spoilt.html"
    style = (
        ".keys { position: absolute; left: 0 } .x { left: 99% !important } .area { width: 120% }"
    )
    spoilt.write_text(pages["report"].read_text().replace("</style>", f"{style} </style>"))
    browser.open(spoilt, 390)
    assert browser.value(CUT) != [] and browser.value(OVERLAPPING) != []


def test_the_network_is_off(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["report"], 1400)
    assert browser.value("navigator.onLine") is False
    assert browser.value("performance.getEntriesByType('resource').length") == 0


def test_a_table_sorts_by_number_both_ways(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["report"], 1400)
    column = (
        '[...document.querySelector("table.sorts tbody").rows].map(r => r.cells[1].textContent)'
    )
    click = 'document.querySelectorAll("table.sorts th button")[1].click()'
    before = browser.value(column)
    assert before == ["102.0 ± 2.5"] * 2 + ["132.6 ± 3.2"] * 2
    browser.value(f"{click}; {click}")
    assert browser.value(column) == before[::-1]
    assert browser.value('document.querySelector("th[aria-sort]").ariaSort') == "descending"


def test_a_charts_data_is_downloaded(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    browser.open(pages["report"], 1400)
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.value('document.querySelector("a.csv").click()')
    file = tmp_path / "made-card-output-tokens-s.csv"
    for _ in range(200):
        if file.exists() and file.stat().st_size:
            break
        time.sleep(0.05)
    rows = list(csv.reader(file.read_text().splitlines()))
    assert rows[0] == ["name", "Output tokens/s", "low", "high", "replications"]
    assert rows[1][:2] == ["paged", "102"] and len(rows) == 5


def test_print_unfolds_everything_in_light_colours(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["report"], 1400, dark=True)
    browser.value('dispatchEvent(new Event("beforeprint"))')
    assert browser.value('document.querySelectorAll("details:not([open])").length') == 0
    browser.value('dispatchEvent(new Event("afterprint"))')
    assert browser.value('document.querySelectorAll("details:not([open])").length') > 0
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.value("getComputedStyle(document.body).maxWidth") == "none"
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
