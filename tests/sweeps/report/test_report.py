"""Does a report show what the results say, in a page that needs no network?"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sweeps.analyse.figures import FIGURES, PREEMPTIONS_EACH, THROUGHPUT
from sweeps.analyse.objective import OBJECTIVES
from sweeps.analyse.table import Group, Row, Table
from sweeps.cli.reporting import report
from sweeps.report.contents import read_report
from sweeps.report.gallery import charts
from sweeps.report.trend import trends
from sweeps.report.vega import spec
from tests.sweeps.made import CONFIG, made

ROOT = Path(__file__).resolve().parents[3]


class Links(HTMLParser):
    """What a page would load, and whether its tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = [value or "" for key, value in attrs if key in ("src", "href")]
        self.loads += [value for value in found if value != "#"]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_rows_without_intervals_or_shares_are_still_drawn(tmp_path: Path) -> None:
    group = read_report(made(tmp_path)).table.groups[0]
    group.rows = group.rows[:1]
    group.rows[0].replications = {1: {THROUGHPUT: 5.0}}
    group.rows[0].raw = {1: {}}
    (chart,) = charts(group)
    assert spec(chart)["data"]["values"] == "name,of,value\npaged,paged,5\n"


def test_preemptions_are_counted_against_the_requests_that_count(tmp_path: Path) -> None:
    row = read_report(made(tmp_path)).table.groups[0].rows[0]
    assert row.mean(PREEMPTIONS_EACH) == pytest.approx(12 / (50 - 20))


def test_the_page_loads_nothing_and_is_well_formed(tmp_path: Path) -> None:
    report([made(tmp_path)])
    text = (tmp_path / "report.html").read_text()
    links = Links()
    links.feed(text)
    assert (links.loads, links.open) == ([], [])
    assert "prefers-color-scheme: dark" in text and "vegaEmbed" in text
    assert not re.search(r"url\(|@import", re.search("<style>.*</style>", text, re.S)[0])
    assert len(text) < 3e6
    assert "made by hand &lt;&amp;&gt;" in text


def test_one_page_for_several_runs(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), made(tmp_path / "b")]
    report(runs, tmp_path / "out/all.html")
    # each run, and what differs between the two
    assert (tmp_path / "out/all.html").read_text().count("<h1>") == 3
    assert (tmp_path / "out/all.html").read_text().count("window.vegaEmbed=") == 1
    assert not (tmp_path / "a/report.html").exists()


def test_every_figure_is_a_metric_of_a_real_run(tmp_path: Path) -> None:
    from sweeps.analyse.rows import flat
    from sweeps.plan.sweep import load_sweep
    from sweeps.run.progress import Progress
    from sweeps.run.sweep_run import run_sweep

    sets = ["fidelity=sampled", "policy=[paged]", "replications=1", "requests=20"]
    sets += ["serving.memory.max_probes=2", "workload_set.lengths.constant.output_tokens=4"]
    sets += ["latency_at=0.5", "slo={ttft: 1s, tpot: 1s}"]
    run_sweep(load_sweep("smoke", sets), tmp_path, False, 1, Progress(terminal=False))
    row = read_report(tmp_path).table.groups[0].rows[0]
    raw = flat(row.raw[1])
    lacking = [f.metric for f in FIGURES if not row.values(f.metric) and f.metric not in raw]
    lacking = [each for each in lacking if each not in ("memory.writes_a_day", "memory.years")]
    assert {metric.split(".")[0] for metric in lacking} <= {
        "kv_slots",
        "goodput_per_s",
        "tokens_per_s_per_kusd",
        "tokens_per_s_per_watt",
        "tokens_per_s_per_mm2",
    }  # no limit, no search
    assert sum(row.limits().values()) == pytest.approx(1)


def test_does_no_band_go_where_nothing_can_lie() -> None:
    def group(load: float, *values: float) -> Group:
        found = {r: {"slo.attainment": v, THROUGHPUT: 9.0} for r, v in enumerate(values, 1)}
        at = {"requests": load}
        rows = [Row(name, "", found, overrides=at) for name in ("paged", "odma")]
        return Group(str(load), rows, {"requests": load}, OBJECTIVES["attainment"])

    config = {**CONFIG, "axes": {"requests": [1, 2], "serving.policy": ["paged", "odma"]}}
    groups = [group(1, 0.02, 0.0, 0.4), group(2, 0.9, 1.0, 0.98)]
    table = Table("made", "", groups, 1, 1, config, {})
    (chart,) = [each for each in trends(table) if "attainment" in each.title.lower()]
    for series in chart.series:
        assert min(series.low) == 0.0 and max(series.high) == 100.0
        assert series.high[0] < 100 and series.low[1] > 0
