"""Does a report show what the results say, in a page that needs no network?"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sweeps.analyse.figures import FIGURES
from sweeps.cli.reporting import report
from sweeps.report.contents import read_report
from tests.sweeps.made import made


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
