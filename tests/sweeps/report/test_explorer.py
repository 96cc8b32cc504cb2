"""Does the explorer interpolate inside what was simulated, and say nothing outside of it?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.report.contents import read_report
from sweeps.report.explorer import _without_what_all_say, explored, explorer, left_out
from sweeps.run.store import RunDirectory
from tests.sweeps.cli.test_command_line import bankwise, refusal
from tests.sweeps.made import CONFIG, PROVENANCE, made, metrics
from tests.sweeps.report.browser import CHROMIUM, Browser


def test_what_neighbours_say_is_linear_along_each_axis() -> None:
    line = {(1.0,): 10.0, (2.0,): 21.0, (4.0,): 40.0}
    assert left_out(line, (2.0,)) == pytest.approx(20.0)
    assert left_out(line, (1.0,)) is None and left_out(line, (4.0,)) is None
    plane = {(x, y): x + 10 * y for x in (0.0, 1.0, 3.0) for y in (0.0, 2.0)}
    assert left_out(plane, (1.0, 2.0)) == pytest.approx(21.0)


RATES = {"paged": (40.0, 80.0, 160.0), "odma": (40.0, 90.0, 140.0)}
"""Output tokens/s at 1, 10 and 100 sequences, where the middle of 40 and 160 is 100."""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunDirectory(tmp_path_factory.mktemp("explored") / "run")
    axes = {"serving.engine.max_num_seqs": [1, 10, 100], "serving.policy": [*RATES]}
    run.create({**CONFIG, "axes": axes, "variants": {}}, PROVENANCE, {})
    points = [(n, name) for n in range(3) for name in RATES]
    for index, (n, name) in enumerate(points):
        for replication in (1, 2):
            run.append({
                "point": index, "control": "", "replication": replication, "seed": [1, replication],
                "overrides": dict(zip(axes, (10**n, name), strict=True)), "rate_per_s": 1.0,
                "metrics": metrics(RATES[name][n]),
            })  # fmt: skip
    run.release()
    return run.path


def test_a_run_has_its_axes_points_and_errors(simulated: Path) -> None:
    found: dict[str, Any] = explored(read_report(simulated))
    (axis,) = found["axes"]
    assert axis["values"] == [1, 10, 100] and axis["log"]
    assert len(found["points"]) == 6 and found["names"] == ["paged", "odma"]
    assert found["error"]["paged"] == {"median": 0.25, "worst": 0.25, "count": 1}
    assert found["error"]["odma"]["worst"] == pytest.approx(0.0)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_interpolates_inside_and_is_silent_outside(
    simulated: Path, tmp_path: Path
) -> None:
    page = tmp_path / "explore.html"
    done = bankwise("report", "explore", simulated, "--out", page, cwd=tmp_path)
    assert done.stdout.endswith(f"wrote {page}\n")
    ask = """
    (value => {
      const box = document.querySelector("input[type=number]");
      box.value = value;
      box.dispatchEvent(new Event("input"));
      return document.querySelector(".bars").textContent;
    })
    """
    with Browser(tmp_path) as browser:
        browser.open(page, 390)
        at, between, outside = (browser.value(f"{ask}({value})") for value in (10, 40, 400))
        assert browser.value("document.documentElement.scrollWidth") <= 390
        assert browser.errors == []
    assert (
        "80.0" in at
        and "simulated" in at
        and "interpolated" not in at
        and "not simulated" not in at
    )
    assert "128.2" in between  # 80 and 160 in logarithms
    assert "interpolated; leave-one-out error: median 25 %, worst 25 % of 1 points" in between
    assert outside.count("not simulated") == 2 and "median" not in outside


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_all_places_are_filtered_by_words_and_told_on_hover(
    simulated: Path, tmp_path: Path
) -> None:
    page = tmp_path / "explore.html"
    bankwise("report", "explore", simulated, "--out", page, cwd=tmp_path)
    ask = """
    (words => {
      const box = document.querySelector(".all input");
      box.value = words;
      box.dispatchEvent(new Event("input"));
      return [...document.querySelectorAll(".all tbody tr")].map(row => row.cells[2].title);
    })
    """
    with Browser(tmp_path) as browser:
        browser.open(page, 390)
        every, some = (browser.value(f"{ask}('{words}')") for words in ("", " 100"))
        bar = browser.value("document.querySelector('.bar').title")
        assert browser.value("document.documentElement.scrollWidth") <= 390
        assert browser.errors == []
    assert len(every) == 3 and every[2].startswith("odma, ") and "140.0" in every[2]
    (only,) = some
    assert "140.0" in only and "Output tokens/s" in only
    assert bar == "paged: 40.0"  # who is better is for the report to say


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_curve_has_a_line_of_all_simulated_points_until_its_key_is_pressed(
    simulated: Path, tmp_path: Path
) -> None:
    page = tmp_path / "explore.html"
    bankwise("report", "explore", simulated, "--out", page, cwd=tmp_path)
    with Browser(tmp_path) as browser:
        browser.open(page, 390)
        lines = "document.querySelectorAll('.curve polyline').length"
        points = "[...document.querySelectorAll('.curve title')].map(each => each.textContent)"
        told, before = browser.value(points), browser.value(lines)
        browser.value("document.querySelector('.keys button').click()")
        after = browser.value(lines)
        assert browser.errors == []
    assert (before, after) == (2, 1) and len(told) == 6
    assert told[4].startswith("odma, ") and told[4].endswith("max_num_seqs 10: 90.0 (90.0 to 90.0)")


def test_names_lack_the_words_that_all_have_but_stay_apart() -> None:
    assert list(_without_what_all_say(["a=1 b=2", "a=2 b=2"]).values()) == ["a=1", "a=2"]
    assert list(_without_what_all_say(["a", "a b"]).values()) == ["a", "a b"]
    assert list(_without_what_all_say(["one of a kind"]).values()) == ["one of a kind"]


def test_cases_are_chosen_from_and_never_mixed(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    cases = {name: {"set": {"device": name}, "role": "case"} for name in ("small", "large")}
    axes = {"serving.policy": ["paged"]}
    run.create({**CONFIG, "axes": axes, "variants": cases}, PROVENANCE, {})
    for index, name in enumerate(cases):
        run.append({
            "point": index, "control": "", "replication": 1, "seed": [1, 1], "rate_per_s": 1.0,
            "overrides": {"case": name, "serving.policy": "paged"},
            "metrics": metrics(10.0 * (index + 1)),
        })  # fmt: skip
    run.release()
    found = explored(read_report(run.path))
    assert found["choices"] == [{"label": "case", "values": ["small", "large"]}]
    assert [(p["of"], p["value"][0]) for p in found["points"]] == [(["small"], 10), (["large"], 20)]


def test_a_run_without_axes_of_numbers_is_chosen_from(tmp_path: Path) -> None:
    page = explorer([read_report(made(tmp_path / "run"))])
    assert "<title>" in page and 'class="knobs"' in page


def test_a_run_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    text = refusal("report", "explore", "quickstrat", cwd=tmp_path)
    assert text == "quickstrat: no such directory"
