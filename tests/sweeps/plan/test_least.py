"""Is the least value that meets an objective found, by its mean and surely, and told?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.analyse.least import least
from sweeps.analyse.objective import OBJECTIVES
from sweeps.plan.experiment import Task
from sweeps.plan.sweep import load_sweep
from sweeps.report.contents import Report, read_report
from sweeps.run.progress import Progress
from sweeps.run.sweep_run import run_sweep
from tests.sweeps.made import measuring

SETS = [
    "rule=least",
    "least={axis: serving.engine.max_num_seqs, metric: tpot_s.mean, at_most: 0.05}",
    "axes.serving.engine.max_num_seqs=[16, 8, 32]", "policy=[paged, static]", "replications=3",
    "load={rate_per_s: 1}",
]  # fmt: skip


def planted(task: Task) -> dict[str, Any]:
    """paged needs 16, and 32 to be sure; static has none that is enough."""
    spec = task.experiment
    value = 0.8 / spec.serving.engine.max_num_seqs * (0.97, 0.96, 1.05)[task.replication - 1]
    slow = 1.0 if spec.serving.policy.name == "paged" else 3.0
    return {"output_tokens_per_s": 10.0, "finished": 120, "tpot_s": {"mean": slow * value}}


def run(path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    measuring(monkeypatch, planted)
    run_sweep(load_sweep("smoke", SETS), path, False, 1, Progress(False))
    return read_report(path)


def test_a_metric_that_no_run_has_is_refused_before_it(tmp_path: Path) -> None:
    asked = "least={axis: serving.engine.max_num_seqs, metric: tpot_s.men, at_most: 0.05}"
    sweep = load_sweep("smoke", ["rule=least", asked, *SETS[2:], "serving.memory.efficiency=0.8"])
    with pytest.raises(DescriptionError, match=r"least.metric: .* did you mean 'tpot_s.mean'"):
        run_sweep(sweep, tmp_path / "r", False, 1, Progress(False))


def test_all_larger_ones_have_to_meet_it() -> None:
    assert least([1, 2, 3, 4], lambda value: value in (1, 3, 4)) == 3
    assert least([1, 2], lambda value: value == 1) is None
    assert OBJECTIVES["tpot_p99"].less
