"""Do logs come with the results they belong to, and only then?"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from hwmodel.description import DescriptionError
from sweeps.progress import Progress
from sweeps.run import run_sweep
from sweeps.store import RunDirectory
from sweeps.sweep import load_sweep

QUIET = Progress(terminal=False)
LOGGED = ["logs=[requests, steps, trace]"]


def logs(out: Path) -> list[str]:
    return sorted(file.name for file in (out / "logs").iterdir())


def test_every_replication_has_its_logs_and_nothing_is_left_over(tmp_path: Path) -> None:
    plain = run_sweep(load_sweep("smoke"), tmp_path / "plain", False, 1, QUIET)
    run = run_sweep(load_sweep("smoke", LOGGED), tmp_path / "run", False, 2, QUIET)
    ends = ("requests.csv", "steps.csv", "trace.json.gz")
    assert logs(tmp_path / "run") == [
        f"point{p}-r{r}-{e}" for p in (0, 1) for r in (1, 2) for e in ends
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "run"]
    assert not (tmp_path / "plain" / "logs").exists()
    assert [r["metrics"] for r in run.records] == [r["metrics"] for r in plain.records]


def test_resuming_makes_the_logs_that_are_missing(tmp_path: Path) -> None:
    out = tmp_path / "run"
    sweep = load_sweep("smoke", ["logs=[requests]"])
    run_sweep(sweep, out, False, 1, QUIET)
    results = out / "results.jsonl"
    results.write_text("".join(results.read_text().splitlines(keepends=True)[:3]))
    (out / "logs" / "point1-r2-requests.csv").unlink()
    run_sweep(sweep, out, True, 1, QUIET)
    assert len(logs(out)) == 4 and len(RunDirectory(out).records()) == 4


def test_rows_have_the_outputs_that_were_made(tmp_path: Path) -> None:
    sweep = load_sweep("smoke", ["logs=[requests]", "serving.engine.max_tokens=50"])
    run = run_sweep(sweep, tmp_path / "run", False, 1, QUIET)
    with (tmp_path / "run" / "logs" / "point0-r1-requests.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["output_tokens"] for row in rows} == {"50"}
    assert len(rows) == run.records[0]["metrics"]["finished"]


def test_an_unknown_log_is_refused() -> None:
    with pytest.raises(DescriptionError, match="logs"):
        load_sweep("smoke", ["logs=[request]"])
