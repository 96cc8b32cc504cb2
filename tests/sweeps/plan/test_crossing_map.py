"""Is a planted map found: who wins each cell, where it ties, and what an objection turns?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policies.allocators.kv_layout import DoesNotFit
from sweeps.plan.experiment import Task
from sweeps.plan.sweep import load_sweep
from sweeps.report.contents import Report, read_report
from sweeps.report.page import page
from sweeps.run.progress import Progress
from sweeps.run.sweep_run import run_sweep
from tests.sweeps.made import measuring

QUIET = Progress(terminal=False)
RATIO = "KV bandwidth, scattered over contiguous"
HALVINGS = 4
SETS = ["serving.weights=[bf16, int8]", "policy=[static, odma, paged, oracle]",
        f"crossing.{RATIO}.against=[static, odma]", "replications=3"]  # fmt: skip
SHIPPED = load_sweep("answer").document.data
CASES = {
    "short": {"set": {"workload": "alpaca"}, "role": "case"},
    "long": {"set": {"workload": "r1-reasoning"}, "role": "case"},
}
OBJECTIONS = {n: v for n, v in SHIPPED["variants"].items() if v["role"] == "objection"}
PLANTED = {**SHIPPED, "variants": {**CASES, **OBJECTIONS}}
TIES = {("bf16", "alpaca"): 0.2, ("bf16", "r1-reasoning"): 0.05, ("int8", "alpaca"): 0.6,
        ("int8", "r1-reasoning"): 3.0}  # fmt: skip
"""Where paged ties with odma, by weights and workload; static serves half of odma."""
NOISE = (0.98, 1.0, 1.02)


def planted(task: Task) -> dict[str, Any]:
    """paged / odma is (ratio / tie) ** 0.5; with exact lengths odma serves ten times as much."""
    spec = task.experiment
    tied = TIES[spec.serving.weights, spec.workload]
    policy = spec.serving.policy
    rate = {"static": 50.0, "odma": 100.0, "oracle": 120.0}.get(policy.name, 0.0)
    if policy.name == "paged":
        rate = 100.0 * (1 / policy.indirection / tied) ** 0.5 * NOISE[task.replication - 1]
    if policy.name == "odma" and spec.serving.predictor.sigma == 0:
        rate = 1000.0
    return {"output_tokens_per_s": rate, "finished": 100, "limit_share": {"kv_memory": 0.9}}


def run(path: Path, monkeypatch: pytest.MonkeyPatch, resume: bool = False) -> Report:
    measuring(monkeypatch, planted)
    run_sweep(load_sweep(PLANTED, SETS), path, resume, 1, QUIET)
    return read_report(path)


READINGS = (
    "variants={exact: {of: {odma: {serving.predictor.sigma: 0.0}}, role: reading},"
    " slow: {set: {seed: 2}, of: {paged: {serving.policy.indirection: 2.0}}, role: reading},"
    " long: {set: {workload: r1-reasoning}, role: case}}"
)


def test_a_map_is_made_again_under_each_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring(monkeypatch, planted)
    sets = [*SETS, READINGS]
    assert len(load_sweep("answer", sets).points) == 2 * 4  # `skip: [reading]` ships
    run_sweep(load_sweep("answer", [*sets, "skip=[]"]), tmp_path / "a", False, 1, QUIET)
    report = read_report(tmp_path / "a")
    table, found = report.table, report.findings.own
    assert table.done == table.total == 3 * (2 * (4 + 1 + 3) + 2 * 2)
    # paged leads bf16 by 4.5 and trails int8; exact lengths make odma's rate tenfold
    assert found.won("exact") == {"static": 0, "odma": 2, "paged": 0, "": 0}
    assert found.won("slow") == {"static": 0, "odma": 1, "paged": 1, "": 0}
    assert [cell.upheld for cell in found.cells] == [["exact"], []]
    assert "Under other readings" in page([report.section])


def test_one_that_does_not_fit_leaves_its_cell_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bf16 weights ODMA has no room for short prompts, paging none for long ones."""

    def cramped(task: Task) -> dict[str, Any]:
        spec = task.experiment
        unfit = {("bf16", "alpaca"): "odma", ("bf16", "r1-reasoning"): "paged"}
        if unfit.get((spec.serving.weights, spec.workload)) == spec.serving.policy.name:
            raise DoesNotFit("no room")
        return planted(task)

    measuring(monkeypatch, cramped)
    done = run_sweep(load_sweep(PLANTED, SETS), tmp_path / "a", False, 1, QUIET)
    report = read_report(tmp_path / "a")
    assert not done.failures and report.table.done == report.table.total == len(done.records)
    cells = {cell.name: cell for cell in report.findings.own.cells}
    short, long = cells["bf16, short"], cells["bf16, long"]
    assert (short.winner, short.pair, list(short.unfit)) == ("paged", ["paged", "static"], ["odma"])
    assert (long.winner, list(long.unfit), long.numbers[0].outcome) == (
        "odma", ["paged"], "does not fit")  # fmt: skip
    rows = {row[0]: row for row in report.grids[0].rows}
    assert [rows[name].count("does not fit") for name in cells] == [1, 0, 2, 0]
    assert cells["int8, short"].numbers[0].outcome == "crosses"


def test_contiguous_policies_are_simulated_once_and_a_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(tmp_path / "a", monkeypatch)
    assert whole.table.done == 3 * (4 * (4 + 4) + 2 * (2 + HALVINGS) + 2 * 2)
    file = tmp_path / "a" / "results.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[: len(lines) * 2 // 3]) + "\n")
    again = run(tmp_path / "a", monkeypatch, resume=True)
    assert again.findings.own == whole.findings.own
