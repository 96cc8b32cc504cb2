"""Does the explorer interpolate inside what was simulated, and say nothing outside of it?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.report.explorer import explored, explorer, left_out
from sweeps.report.presenters import read_table
from sweeps.run.store import RunDirectory
from tests.sweeps.cli.test_command_line import bankwise, refusal
from tests.sweeps.made import made
from tests.sweeps.report.browser import CHROMIUM, Browser


def test_what_neighbours_say_is_linear_along_each_axis() -> None:
    line = {(1.0,): 10.0, (2.0,): 21.0, (4.0,): 40.0}
    assert left_out(line, (2.0,)) == pytest.approx(20.0)
    assert left_out(line, (1.0,)) is None and left_out(line, (4.0,)) is None
    plane = {(x, y): x + 10 * y for x in (0.0, 1.0, 3.0) for y in (0.0, 2.0)}
    assert left_out(plane, (1.0, 2.0)) == pytest.approx(21.0)


def run(folder: Path) -> Path:
    """A run over an axis of numbers."""
    path = folder / "run"
    found = bankwise(
        "run", "smoke", "--out", path, "--set", "axes.serving.engine.max_num_seqs=[1, 10, 100]",
        "--set", "requests=20", "--jobs", "1", cwd=folder,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return path


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("explored"))


def test_a_run_has_its_axes_points_and_errors(simulated: Path) -> None:
    found: dict[str, Any] = explored(read_table(RunDirectory(simulated)))
    (axis,) = found["axes"]
    assert axis["values"] == [1, 10, 100] and axis["log"]
    assert len(found["points"]) == 6 and found["names"] == ["static", "paged"]
    values = {p["at"][0]: p["value"][0] for p in found["points"] if p["name"] == "paged"}
    told = found["error"]["paged"]
    assert told["count"] == 1
    assert told["worst"] == pytest.approx(abs((values[1] + values[100]) / 2 / values[10] - 1))


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_interpolates_inside_and_is_silent_outside(
    simulated: Path, tmp_path: Path
) -> None:
    page = tmp_path / "explore.html"
    done = bankwise("explore", simulated, "--out", page, cwd=tmp_path)
    assert done.stdout == f"wrote {page}\n"
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
    assert "simulated" in at and "interpolated" not in at and "not simulated" not in at
    assert "interpolated; leave-one-out error: median" in between
    assert outside.count("not simulated") == 2 and "median" not in outside


def test_a_run_without_axes_of_numbers_is_chosen_from(tmp_path: Path) -> None:
    page = explorer([read_table(RunDirectory(made(tmp_path / "run")))])
    assert "<title>" in page and 'class="knobs"' in page


def test_a_run_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    assert refusal("explore", "quickstrat", cwd=tmp_path) == "quickstrat: no such directory"
