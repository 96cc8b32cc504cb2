"""Is the goodput the largest load that keeps the objective?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.plan.experiment import Task
from sweeps.plan.sweep import load_sweep
from sweeps.report.contents import read_report
from sweeps.run import goodput
from sweeps.run.goodput import (
    TOLERANCE,
    NoRate,
    goodput_task,
    largest_rate,
)
from sweeps.run.progress import Progress
from sweeps.run.sweep_run import run_sweep

QUIET = Progress(terminal=False)
ASKED = ["load={goodput: {ttft: 500ms, tpot: 200ms, attainment: 0.8}}", "requests=100"]


def test_where_every_rate_or_none_attains_there_is_no_goodput() -> None:
    with pytest.raises(NoRate, match=r"attained even at 1\.02e\+03 requests/s, 1024 times"):
        largest_rate(lambda rate: True, 1.0)
    with pytest.raises(NoRate, match=r"no rate attains the objective, not even 0\.000977"):
        largest_rate(lambda rate: False, 1.0)


CAPACITY, ANSWER_S = 8.0, 0.5


@pytest.mark.parametrize("attainment", [0.8, 0.9, 1.0])
@pytest.mark.parametrize("knees", [(0.3,), (2.0, 2.0), (0.5, 3.0), (1.0, 2.0, 5.0), (40.0, 60.0)])
def test_the_largest_rate_attains_on_average_and_none_is_above_the_capacity(
    knees: tuple[float, ...], attainment: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """knees: the rate from which on fewer attain it, by replication."""

    def attained(replication: int, rate: float) -> float:
        return min(1.0, (knees[replication - 1] / rate) ** 0.3)

    def served(task: Task) -> dict[str, Any]:
        share = attained(task.replication, task.rate_per_s or 0.0)
        return {"slo": {"attainment": share}, "latency_s": {"mean": ANSWER_S}}

    monkeypatch.setattr(goodput, "run_task", served)
    monkeypatch.setattr(goodput, "capacity_task", lambda task: CAPACITY)
    load = f"load={{goodput: {{ttft: 500ms, tpot: 200ms, attainment: {attainment}}}}}"
    spec: Any = load_sweep("smoke", [load, "requests=1000"]).points[0].experiment
    replications = [*range(1, len(knees) + 1)]

    def mean(rate: float) -> float:
        return sum(attained(r, rate) for r in replications) / len(knees)

    found = goodput_task((spec, replications))
    assert found <= CAPACITY and mean(found) >= attainment - 1e-9
    larger = found * (1 + TOLERANCE)
    assert larger > CAPACITY or mean(larger) < attainment
    # requests must arrive for twice as long as an answer takes
    enough = math.ceil(2 * ANSWER_S * found)
    for count in (enough, enough - 1) if enough > 1 else ():
        short = spec.model_copy(update={"requests": count})
        if count == enough:
            assert goodput_task((short, replications)) == found
            continue
        with pytest.raises(DescriptionError, match=f"expected {enough:,} requests or more") as why:
            goodput_task((short, replications))
        assert f"{count} requests arrive within {count / found:.2g} s" in str(why.value)


@pytest.mark.parametrize("process", ["all_at_once", "closed"])
def test_arrivals_without_a_rate_have_no_goodput(process: str) -> None:
    clients = ", clients: 4" if process == "closed" else ""
    sets = [ASKED[0], f"workload_set={{arrivals: {{process: {process}{clients}}}}}"]
    with pytest.raises(DescriptionError, match=process):
        goodput_task((load_sweep("smoke", sets).points[0].experiment, [1]))  # type: ignore[arg-type]


def test_an_objective_nobody_can_keep_is_the_inputs_fault(tmp_path: Path) -> None:
    sweep = load_sweep("smoke", ["load={goodput: {ttft: 1us, tpot: 1us}}", "requests=20"])
    with pytest.raises(DescriptionError, match="goodput of static: no rate attains"):
        run_sweep(sweep, tmp_path / "run", False, 1, QUIET)
    assert not (tmp_path / "run").exists()


def test_a_goodput_that_is_the_capacity_is_a_problem(tmp_path: Path) -> None:
    loose = ASKED[0].replace("500ms", "60s").replace("200ms", "10s")
    sweep = load_sweep("smoke", [loose, ASKED[1], "policy=[paged]", "replications=1"])
    run_sweep(sweep, tmp_path / "run", False, 1, QUIET)
    assert any("up to their capacity" in text for text in read_report(tmp_path / "run").problems)
