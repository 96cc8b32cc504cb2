"""Does a report show what the results say, in a page that needs no network?"""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.analyse.figures import FIGURES, PREEMPTIONS_EACH, THROUGHPUT
from sweeps.analyse.objective import OBJECTIVES, SERVED
from sweeps.analyse.table import Group, Row, Table, headings
from sweeps.cli.reporting import report
from sweeps.report.contents import read_report
from sweeps.report.gallery import charts, phases, throughput
from sweeps.report.markdown import markdown
from sweeps.report.trend import trends
from sweeps.report.vega import spec
from sweeps.run.store import RunDirectory
from sweeps.sections.chart import Bars
from tests.sweeps.made import CONFIG, PROVENANCE, made

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


def words(page: Path) -> str:
    """The text of a page."""
    return unescape(re.sub("<[^>]*>", "", page.read_text())).replace("\xa0", " ")


def text_of(path: Path) -> str:
    return markdown([read_report(path).section])


def test_the_table_has_a_group_a_device_and_a_row_a_policy(tmp_path: Path) -> None:
    table = read_report(made(tmp_path)).table
    assert [group.title for group in table.groups] == ["card", "other"]
    titles = [row.title for row in table.groups[0].ordered()]
    assert titles == ["paged", "paged (analytic)", "odma", "odma (analytic)"]
    assert (table.done, table.total) == (24, 24)


@pytest.mark.parametrize(("requests", "warmup", "told"), [(60, 10, 0), (60, 9, 1), (69, 0, 1)])
def test_a_run_that_is_short_beside_its_batch_says_so(
    tmp_path: Path, requests: int, warmup: int, told: int
) -> None:
    base = CONFIG["base"] | {"requests": requests, "warmup_requests": warmup}
    found = read_report(made(tmp_path, config=CONFIG | {"base": base}, batch=10.0)).problems
    assert [text for text in found if "--set requests=100" in text] == found and len(found) == told


def test_cells_carry_units_and_the_interval(tmp_path: Path) -> None:
    row = read_report(made(tmp_path)).table.groups[0].rows[0]
    found = dict(zip(headings(SERVED), row.cells(), strict=True))
    # 101, 102, 103: mean 102, standard error 1 / sqrt(3), times 4.3027
    assert found["output tokens/s"] == "102.0 ± 2.5"
    assert found["TTFT p99 s"] == "2.50"
    assert found["TPOT ms"] == "50.0"
    assert found["utilisation %"] == "87.5"
    assert found["preemptions"] == "12"
    assert found["row hits %"] == "50.0"
    assert found["limit"] == "KV memory 75%"
    assert found["other limits"] == "empty queue 25%, FLOPs for 20% of step time"


def test_the_report_is_written_beside_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report([made(tmp_path)])
    shown = capsys.readouterr().out
    said = "card: odma serves 132.6 output tokens/s, 30 % (95 % CI 30 to 30) more than paged."
    text = (tmp_path / "report.md").read_text()
    page = words(tmp_path / "report.html")
    for place in (shown, text, page):
        assert said in place and "Decided by step time." in place
        assert "102.0 ± 2.5" in place
        assert "95 % intervals, n = 3 replications" in place
    for place in (text, page):
        assert "dma.window" in place and "with changes that are not committed" in place


def test_other_results_other_sentences(tmp_path: Path) -> None:
    text = text_of(made(tmp_path, odma=50))
    assert "card: paged serves 102.0 output tokens/s" in text and "odma serves" not in text


def test_the_terminals_table_fits_120_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report([made(tmp_path, odma=1234)])
    table = capsys.readouterr().out.split("\n\n")[1]
    assert "analytic" in table and max(map(len, table.splitlines())) <= 120


def test_charts_hold_intervals_and_shares_of_step_time(tmp_path: Path) -> None:
    group = read_report(made(tmp_path)).table.groups[0]
    (rates,) = throughput(group)
    assert [bar.name for bar in rates.bars] == ["odma", "odma (analytic)", "paged",
                                               "paged (analytic)"]  # fmt: skip
    assert all(bar.value.low < bar.value.mean < bar.value.high for bar in rates.bars)
    steps, compute = phases(group)
    assert isinstance(steps, Bars)
    assert next(bar.parts for bar in steps.bars if bar.name == "paged") == pytest.approx(
        [0.6, 0.0, 0.4, *[0.0] * 5]
    )
    assert [row[1] for row in compute.rows()] == [pytest.approx(20.0)] * 2


def test_charts_in_which_all_are_the_same_are_left_out(tmp_path: Path) -> None:
    group = read_report(made(tmp_path)).table.groups[0]
    titles = {chart.title for chart in charts(group)}
    assert "Output tokens/s" in titles
    assert not {chart.title for chart in phases(group)} & titles


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


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    text = text_of(made(tmp_path, skip=3))
    assert "unfinished: 15 of 24 results" in text
    assert "card: no results yet." in text


def test_a_metric_that_is_missing_is_a_dash(tmp_path: Path) -> None:
    table = read_report(made(tmp_path)).table
    row = table.groups[0].rows[0]
    for found in row.replications.values():
        del found["memory.phases.attention.row_hit_rate"]
    assert row.cells()[headings(SERVED).index("row hits %")] == "–"


def test_no_run_no_report(tmp_path: Path) -> None:
    for nothing, said in ((tmp_path, "is empty"), (tmp_path / "none", "no such dir")):
        with pytest.raises(DescriptionError, match=said):
            report([nothing])
    assert list(tmp_path.iterdir()) == []


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


def test_a_sweep_of_kv_reads_says_who_reads_fastest(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    axes = {"device_set.dma.window": ["4KiB", "8KiB"], "batch.policy": ["paged", "oracle"]}
    run.create({**CONFIG, "axes": axes, "variants": {}, "compare": "batch.policy"}, PROVENANCE, {})
    for index, (window, policy, rate) in enumerate(
        [
            ("4KiB", "paged", 100.0),
            ("4KiB", "oracle", 150.0),
            ("8KiB", "paged", 200.0),
            ("8KiB", "oracle", 202.0),
        ]
    ):
        for replication in (1, 2, 3):
            found = {"kv_gbps": rate * (1 + 0.01 * replication * (index == 3)), "kv_share": 0.2,
                     "extent_bytes": 16384.0, "row_hit_rate": 0.7}  # fmt: skip
            overrides = {"device_set.dma.window": window, "batch.policy": policy}
            run.append({"point": index, "replication": replication, "overrides": overrides,
                        "metrics": found})  # fmt: skip
    run.release()
    text = text_of(tmp_path)
    assert "oracle reads fastest for every device_set.dma.window (4KiB, 8KiB): at least" in text
    assert "4KiB: oracle reads KV at 150.0 GB/s, 50 % (95 % CI 50 to 50) faster than paged." in text
    assert "Reading KV takes 20 % of a step" in text
    assert "**KV read, GB/s against device_set.dma.window**" in text
    assert "TTFT" not in text and "> no curves" not in text


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
