"""Is the offered load the multiple of capacity that the sweep asks for, and are seeds common?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.plan.experiment import (
    ExperimentSpec,
    requests_of,
    workload_of,
)
from sweeps.plan.sweep import load_sweep
from sweeps.run.sweep_run import Progress, run_sweep

QUIET = Progress(terminal=False)


def test_each_replication_is_calibrated_on_requests_that_none_is_measured_on() -> None:
    experiment = load_sweep("smoke", ["workload=sharegpt"]).points[0].experiment
    assert [experiment.calibrated_on(r) for r in (1, 2)] == [-1, -2]
    drawn = {
        tuple(requests_of(experiment, r, 1.0, workload_of(experiment)).output_tokens)
        for r in (0, 1, 2, -1, -2)
    }
    assert len(drawn) == 5


def trace_experiment(tmp_path: Path, rows: int) -> ExperimentSpec:
    lines = [f"{i * i},{10 + i},{5 + i}" for i in range(rows)]
    file = tmp_path / "trace.csv"
    file.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    sets = [f"workload={file}", "requests=8", "warmup_requests=2"]
    return load_sweep("smoke", sets).points[0].experiment


def test_replications_of_a_trace_are_its_consecutive_stretches(tmp_path: Path) -> None:
    experiment = trace_experiment(tmp_path, 30)
    for replication, first in ((0, 10), (1, 10), (2, 20), (3, 30), (-2, 20)):
        found = requests_of(experiment, replication, 4.0, workload_of(experiment))
        assert found.prompt_tokens.tolist() == list(range(first, first + 10))
        assert found.arrival_s[0] == 0
        assert found.arrival_s[-1] == pytest.approx(9 / 4.0)


def test_a_trace_too_short_for_all_replications_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    rows = "\n".join(f"{i},100,20" for i in range(200))
    file.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}\n")
    sweep = load_sweep("smoke", [f"workload={file}"])
    with pytest.raises(DescriptionError, match="200 requests and 240 are asked for"):
        run_sweep(sweep, tmp_path / "run", False, 1, QUIET)
    assert not (tmp_path / "run").exists()
    repeated = load_sweep("smoke", [f"workload={file}", "workload_set={lengths: {repeat: true}}"])
    assert len(run_sweep(repeated, tmp_path / "run", False, 1, QUIET).records) == 4
