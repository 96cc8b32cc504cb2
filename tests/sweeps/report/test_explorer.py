"""Does the explorer show every place that was simulated, and say nothing of others?"""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.report.contents import read_report
from sweeps.report.explorer import explored
from sweeps.report.vega import spec
from sweeps.run.store import RunDirectory
from sweeps.sections.chart import Places, PlaceValue
from tests.sweeps.cli.test_command_line import bankwise
from tests.sweeps.made import CONFIG, PROVENANCE, made, metrics
from tests.sweeps.report.browser import CHROMIUM, Browser

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


def chart_of(run: Path) -> Places:
    (found,) = (each for each in explored(read_report(run)).blocks if isinstance(each, Places))
    return found


def test_a_run_has_its_axes_and_every_place_that_was_simulated(simulated: Path) -> None:
    chart = chart_of(simulated)
    assert list(chart.axes.values()) == [["1", "10", "100"]]
    assert [(each.name, each.at, each.value.mean) for each in chart.values][:2] == [
        ("paged", ("1",), 40.0), ("odma", ("1",), 40.0)
    ]  # fmt: skip
    assert len(chart.rows()) == 6 and len(chart.rows()[0]) == len(chart.columns())


def test_axes_are_parameters_of_vega(simulated: Path) -> None:
    one = chart_of(simulated)
    assert not [each for each in spec(one, live=True)["params"] if "bind" in each]
    axes = {"cards": ["1", "2", "4"], "load": ["0.5"]}
    places = [PlaceValue("paged", (cards, "0.5"), one.values[0].value) for cards in axes["cards"]]
    off, along, cards, load = spec(Places("", one.y, axes, places), live=True)["params"]
    assert off["name"] == "off" and along["bind"]["options"] == ["cards", "load"]
    assert cards["bind"]["options"] == ["1", "2", "4"] and load["value"] == "0.5"


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_draws_every_simulated_point_along_an_axis(
    simulated: Path, tmp_path: Path
) -> None:
    page = tmp_path / "explore.html"
    done = bankwise("report", "explore", simulated, "--out", page, cwd=tmp_path)
    assert done.stdout.endswith(f"wrote {page}\n")
    points = "[...document.querySelectorAll('.vega .mark-symbol.role-mark path')]"
    with Browser(tmp_path) as browser:
        browser.open(page, 390)
        browser.value("draw(charts[0]).then(() => true)")
        said = browser.value(f"{points}.map(each => each.getAttribute('aria-label')).join()")
        lines = browser.value("document.querySelectorAll('.vega .mark-line path').length")
        assert browser.value("document.documentElement.scrollWidth") <= 390
        assert browser.errors == []
    assert lines == 2 and "160" in said and "140" in said


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
    chart = chart_of(run.path)
    assert chart.axes == {"case": ["small", "large"]}
    assert [(p.at, p.value.mean) for p in chart.values] == [(("small",), 10), (("large",), 20)]


def test_a_run_of_one_place_is_drawn_by_name(tmp_path: Path) -> None:
    one = chart_of(made(tmp_path / "run"))
    alone = Places("", one.y, {}, [each._replace(at=()) for each in one.values])
    found = spec(alone, live=True)
    assert found["params"][1] == {"name": "along", "value": ""}
    assert found["transform"][-1]["calculate"] == "datum.of"
