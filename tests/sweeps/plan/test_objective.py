"""Does a sweep compare by the objective it names, and is one that it does not measure refused?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.analyse.figures import GOODPUT
from sweeps.analyse.objective import OBJECTIVES
from sweeps.plan.evaluations import PARAMETER, VALUE, Evaluations
from sweeps.plan.measures import objective_of
from sweeps.plan.sweep import load_sweep
from sweeps.report.contents import Report, read_report
from sweeps.run.explained_run import explain_run
from sweeps.run.goodput import searched
from sweeps.run.progress import Progress
from sweeps.run.sweep_run import run_sweep

QUIET = Progress(terminal=False)
SLO = "{ttft: 500ms, tpot: 200ms, attainment: 0.8}"
SMALL = ["requests=60", "replications=2"]


def test_latencies_are_those_of_the_second_pass_where_there_is_one() -> None:
    over = {"objective": "ttft_p99", "base": {"latency_at": 0.8}}
    found, alone = objective_of(over), objective_of({"objective": "ttft_p99", "base": {}})
    assert found is not None and found.metric == "at_share.ttft_s.p99"
    assert alone == OBJECTIVES["ttft_p99"]
    assert load_sweep("smoke", ["objective=ttft_p99", "load={relative: 2}", "latency_at=0.5"])
    served = objective_of({"base": {"latency_at": 0.8}})
    assert served == OBJECTIVES["throughput"]


def report_of(path: Path, *overrides: str) -> Report:
    run_sweep(load_sweep("smoke", [*SMALL, *overrides]), path, False, 1, QUIET)
    return read_report(path)


def test_goodput_is_searched_once_or_for_each_replication() -> None:
    for objective, expected in ([], [(1, 2)]), (["objective=goodput"], [(1,), (2,)]):
        sweep = load_sweep("smoke", [*SMALL, f"load={{goodput: {SLO}}}", *objective])
        sought = [each.replications for each in searched(sweep).values() if not each.point.index]
        assert sought == expected


@pytest.mark.long
def test_goodput_of_each_replication_decides(tmp_path: Path) -> None:
    strict = "load={goodput: {ttft: 300ms, tpot: 120ms, attainment: 0.8}}"  # below the capacity
    pooled = report_of(tmp_path / "a", strict).table
    for row in pooled.groups[0].rows:
        assert set(row.values(GOODPUT)) == {row.rate_per_s}  # once for all, so without an interval
    report = report_of(tmp_path / "b", strict, "objective=goodput")
    (verdict,) = report.findings.verdicts
    rates = {row.name: row.values(GOODPUT) for row in report.table.groups[0].rows}
    assert all(len(set(each)) == 2 for each in rates.values())
    best = max(rates, key=lambda name: sum(rates[name]))
    assert verdict.leader == best and verdict.rate == pytest.approx(sum(rates[best]) / 2)
    assert "requests/s within the SLO" in " ".join(report.sentences)


def test_a_latency_decides_and_explain_refuses(tmp_path: Path) -> None:
    report = report_of(tmp_path / "a", "objective=tpot_p99", "load={relative: 0.5}")
    (verdict,), rows = report.findings.verdicts, report.table.groups[0].main()
    least = min(rows, key=lambda row: row.mean("tpot_s.p99") or 0.0)
    assert verdict.leader == least.name and all(gap.total.mean >= 0 for gap in verdict.gaps)
    with pytest.raises(DescriptionError, match="the objective of this run is tpot_p99"):
        explain_run(tmp_path / "a", "", 1, QUIET)


def test_a_search_reads_the_objective_the_better_way_round() -> None:
    def point(name: str, value: float | None, p99: float, **more: float) -> dict[str, object]:
        given = {"policy": name, PARAMETER: "cost", VALUE: value}
        return {"overrides": given, "replication": 1, "metrics": {"ttft_s": {"p99": p99}, **more}}

    config = {
        "objective": "ttft_p99", "compare": "policy", "axes": {"policy": ["a", "b"]},
        "base": {"replications": 1},
    }  # fmt: skip
    known = Evaluations(config, [point("a", 1, 2.0), point("b", 1, 1.0)])
    a, b = (known.rates({}, name, "cost", 1) for name in "ab")
    assert known.advantage(a, b).mean < 0 < known.advantage(b, a).mean
    assert known.mean_log(b) > known.mean_log(a)
    known.refuse_unmeasured()
    late = Evaluations(config, [point("a", 1, 2.0, backlog_share=0.5)])
    with pytest.raises(DescriptionError, match="a has no TTFT p99 with cost 1: its load is above"):
        late.refuse_unmeasured()
