"""Do logs come with the results they belong to, and only then?"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sweeps.plan.sweep import load_sweep
from sweeps.run.progress import Progress
from sweeps.run.store import RunDirectory
from sweeps.run.sweep_run import run_sweep

QUIET = Progress(terminal=False)


def logs(out: Path) -> list[str]:
    return sorted(file.name for file in (out / "logs").iterdir())


def test_resuming_makes_the_logs_that_are_missing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    sweep = load_sweep("smoke", ["logs=[requests]"])
    run_sweep(sweep, out, False, 1, QUIET)
    results = out / "results.jsonl"
    results.write_text("".join(results.read_text().splitlines(keepends=True)[:3]))
    (out / "logs" / "point1-r2-requests.csv").unlink()
    run_sweep(sweep, out, True, 1, QUIET)
    assert len(logs(out)) == 4 and len(RunDirectory(out).records()) == 4


def test_a_log_adds_up_to_the_metrics_of_its_result(tmp_path: Path) -> None:
    changes = ["logs=[requests]", "warmup_requests=0", "serving.policy=[static, paged]"]
    changes += ["serving.gpu_memory_utilization=0.6", "load={rate_per_s: 20}"]
    changes += ["serving.memory.efficiency=0.8"]
    run = run_sweep(load_sweep("smoke", changes), tmp_path / "run", False, 1, QUIET)
    assert run.records[2]["metrics"]["preemptions"] > 0
    for record in run.records:
        metrics = record["metrics"]
        name = f"point{record['point']}-r{record['replication']}-requests.csv"
        with (tmp_path / "run" / "logs" / name).open(newline="") as file:
            rows = list(csv.DictReader(file))

        def column(of: str, rows: list[dict[str, str]] = rows) -> list[float]:
            return [float(row[of]) for row in rows]

        first, end = column("first_token_s"), column("end_s")
        arrival, output = column("arrival_s"), column("output_tokens")
        made = sum(output) / (max(end) - min(arrival))
        assert made == pytest.approx(metrics["makespan_output_tokens_per_s"])
        ttft = [a - b for a, b in zip(first, arrival, strict=True)]
        assert sum(ttft) / len(rows) == pytest.approx(metrics["ttft_s"]["mean"])
        each = [(e - f) / (o - 1) for e, f, o in zip(end, first, output, strict=True)]
        assert sum(each) / len(rows) == pytest.approx(metrics["tpot_s"]["mean"])
        assert sum(column("recomputed")) == metrics["preemptions"]
        assert sum(column("migrations")) == metrics["migrations"] == 0
