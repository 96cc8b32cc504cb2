"""Is the goodput the largest load that keeps the objective?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.plan.experiment import Task, capacity_task, run_task
from sweeps.plan.sweep import load_sweep
from sweeps.report.contents import read_report
from sweeps.run.goodput import (
    TOLERANCE,
    NoRate,
    goodput_task,
    largest_rate,
    search,
    searched,
)
from sweeps.run.progress import Progress
from sweeps.run.store import RunDirectory
from sweeps.run.sweep_run import run_sweep

QUIET = Progress(terminal=False)
ASKED = ["load={goodput: {ttft: 500ms, tpot: 200ms, attainment: 0.8}}", "requests=100"]


@pytest.mark.parametrize("threshold", [0.011, 0.9, 1.0, 3.7, 400.0])
def test_a_planted_threshold_is_found(threshold: float) -> None:
    found = largest_rate(lambda rate: rate <= threshold, 1.0)
    assert found <= threshold < found * (1 + TOLERANCE)


def test_where_every_rate_or_none_attains_there_is_no_goodput() -> None:
    with pytest.raises(NoRate, match=r"attained even at 1\.02e\+03 requests/s, 1024 times"):
        largest_rate(lambda rate: True, 1.0)
    with pytest.raises(NoRate, match=r"no rate attains the objective, not even 0\.000977"):
        largest_rate(lambda rate: False, 1.0)


def test_the_rate_attains_and_a_larger_one_does_not() -> None:
    tight = [ASKED[0].replace("200ms", "80ms"), ASKED[1], "serving.memory.fidelity=analytic"]
    experiment = load_sweep("smoke", [*tight, "workload_set={arrivals: {process: fixed}}"])
    spec = experiment.points[1].experiment
    rate = goodput_task((spec, [1, 2]))  # type: ignore[arg-type]

    def attained(factor: float) -> float:
        each = (Task(spec, replication, rate * factor) for replication in (1, 2))
        return sum(run_task(task)["slo"]["attainment"] for task in each) / 2

    assert attained(1.0) >= 0.8 > attained(1 + 2 * TOLERANCE)


def test_no_goodput_is_above_the_capacity() -> None:
    """A hundred requests at twice the capacity are there before the first waits too long."""
    loose = ASKED[0].replace("500ms", "60s").replace("200ms", "10s")
    spec = load_sweep("smoke", [loose, ASKED[1]]).points[1].experiment
    capacity = capacity_task(Task(spec, 0, None))
    assert run_task(Task(spec, 1, 2 * capacity))["slo"]["attainment"] > 0.8
    assert goodput_task((spec, [1])) == capacity


def test_requests_that_do_not_fill_the_card_have_no_goodput() -> None:
    spec = load_sweep("smoke", [ASKED[0], "requests=30"]).points[1].experiment
    with pytest.raises(DescriptionError, match=r"30 requests arrive within .* expected"):
        goodput_task((spec, [1]))


def test_each_point_is_offered_its_own_and_resuming_keeps_it(tmp_path: Path) -> None:
    sweep = load_sweep("smoke", [*ASKED, "replications=2"])
    out = tmp_path / "run"
    run = run_sweep(sweep, out, False, 1, QUIET)
    rates = {record["point"]: record["rate_per_s"] for record in run.records}
    known = dict(search(searched(sweep), {}, 1))
    assert sorted(known.values()) == sorted(rates.values())
    for point in (0, 1):
        found = [r["metrics"]["slo"]["attainment"] for r in run.records if r["point"] == point]
        assert sum(found) / len(found) >= 0.8
    lines = (out / "results.jsonl").read_text().splitlines(keepends=True)
    (out / "results.jsonl").write_text("".join(lines[:1]))
    again = run_sweep(sweep, out, True, 1, QUIET)
    assert {record["point"]: record["rate_per_s"] for record in again.records} == rates
    assert RunDirectory(out).read_json("calibration.json")


def test_an_objective_nobody_can_keep_is_the_inputs_fault(tmp_path: Path) -> None:
    sweep = load_sweep("smoke", ["load={goodput: {ttft: 1us, tpot: 1us}}", "requests=20"])
    with pytest.raises(DescriptionError, match="goodput of static: no rate attains"):
        run_sweep(sweep, tmp_path / "run", False, 1, QUIET)
    assert not (tmp_path / "run").exists()


def test_a_point_without_goodput_leaves_the_others_theirs(tmp_path: Path) -> None:
    """`orca` needs 4,096 slots for each request, of which there are 3,776: all are dropped."""
    changes = ["serving.policy=[orca, paged]", "serving.gpu_memory_utilization=0.6"]
    sweep = load_sweep("smoke", [*ASKED, *changes, "serving.engine.too_long=drop"])
    run = run_sweep(sweep, tmp_path / "run", False, 1, QUIET)
    assert {record["point"] for record in run.records} == {1}
    assert len(run.failures) == sweep.points[0].experiment.replications and run.at_fault
    assert all("goodput of orca: none of 120 requests can be served" in f for f in run.failures)
    again = run_sweep(sweep, tmp_path / "run", True, 1, QUIET)
    assert again.reused == len(run.records) and again.failures == run.failures


def test_a_goodput_that_is_the_capacity_is_a_problem(tmp_path: Path) -> None:
    loose = ASKED[0].replace("500ms", "60s").replace("200ms", "10s")
    sweep = load_sweep("smoke", [loose, ASKED[1], "policy=[paged]", "replications=1"])
    run_sweep(sweep, tmp_path / "run", False, 1, QUIET)
    assert any("up to their capacity" in text for text in read_report(tmp_path / "run").problems)
