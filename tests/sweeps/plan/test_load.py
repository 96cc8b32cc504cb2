"""Is the offered load the multiple of capacity that the sweep asks for, and are seeds common?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from sweeps.plan.experiment import (
    ExperimentSpec,
    Task,
    _profile,
    capacity_task,
    device_of,
    model_of,
    requests_of,
    workload_of,
)
from sweeps.plan.sweep import load_sweep
from sweeps.run.capacity import Capacities, CapacityFailed, calibrate, capacity_key, wanted
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


def calibrated(
    *overrides: str, replication: int = 1
) -> tuple[dict[str, float], list[float | None]]:
    """Capacity by policy, and each point's rate, in a replication."""
    sweep = load_sweep("smoke", overrides)
    found = dict(calibrate(wanted(sweep), {}, 1))
    calibration = Capacities(found)
    by_policy = {
        point.experiment.serving.policy.name: found[key]
        for point in sweep.points
        if (key := capacity_key(point.experiment, replication)) in found
    }
    rates = [calibration.rate_per_s(sweep, point, replication) for point in sweep.points]
    return by_policy, rates


def test_load_and_replications_are_no_part_of_a_capacity() -> None:
    def key(*overrides: str) -> str:
        return capacity_key(load_sweep("smoke", overrides).points[0].experiment, 1)

    assert key("load.relative=3", "replications=9") == key()
    assert key("requests=50") != key()
    assert key("device_set.dma.window=8KiB") != key()


def test_capacity_does_not_depend_on_the_load_it_is_asked_for() -> None:
    def capacity(*overrides: str) -> float:
        return capacity_task(Task(load_sweep("smoke", overrides).points[0].experiment, -1, None))

    assert capacity("load.relative=3") == capacity() > 0


def test_the_capacity_of_a_node_is_that_of_its_cards() -> None:
    """Four cards with four times the requests; the constant workload's are all alike."""
    one, four = (
        capacity_task(Task(load_sweep("smoke", sets).points[0].experiment, -1, None))
        for sets in ([], ["serving.cluster.cards=4", "requests=400", "warmup_requests=80"])
    )
    assert four == pytest.approx(4 * one, rel=0.02)


def test_a_capacity_that_fails_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Task) -> float:
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr("sweeps.run.capacity.capacity_task", fails)
    with pytest.raises(CapacityFailed, match=r"capacity of static: ZeroDivisionError: by hand"):
        calibrated()


@pytest.mark.parametrize(("calibration", "profiles"), [("replication", 2), ("shared", 1)])
def test_a_profile_is_of_its_replication_or_of_all(calibration: str, profiles: int) -> None:
    sets = ["workload=sharegpt", "policy=[odma]", f"calibration={calibration}"]
    experiment = load_sweep("smoke", sets).points[0].experiment
    found = {}
    for replication in (1, 2, experiment.calibrated_on(1)):
        requests = requests_of(experiment, replication, 1.0, workload_of(experiment))
        profile = _profile(experiment, replication, requests)
        assert profile is not None and len(profile) == experiment.warmup_requests
        found[replication] = tuple(profile.output_tokens)
    assert len(set(found.values())) == profiles
    assert found[experiment.calibrated_on(1)] == found[1]


def test_points_of_a_replication_share_their_requests() -> None:
    static, paged = (point.experiment for point in load_sweep("smoke").points)
    ours, theirs = (
        requests_of(experiment, 1, 2.0, workload_of(experiment)) for experiment in (static, paged)
    )
    assert np.array_equal(ours.arrival_s, theirs.arrival_s)
    other = requests_of(static, 2, 2.0, workload_of(static))
    assert not np.array_equal(ours.arrival_s, other.arrival_s)


def test_overrides_reach_device_model_and_workload() -> None:
    sets = [
        "device_set.dma.window=8KiB",
        "model_set.layers=4",
        "workload_set.limits.max_output_tokens=9",
    ]
    experiment = load_sweep("smoke", sets).points[0].experiment
    accelerator = device_of(experiment).accelerator
    assert accelerator is not None and accelerator.dma.window == 8192
    assert model_of(experiment).layers == 4
    requests = requests_of(experiment, 1, 1.0, workload_of(experiment))
    assert requests.output_tokens.max() == 9


def test_arrivals_may_be_given_beside_the_workload() -> None:
    sets = ["arrivals={process: fixed}"]
    experiment = load_sweep("smoke", sets).points[0].experiment
    requests = requests_of(experiment, 1, 2.0, workload_of(experiment))
    assert np.allclose(np.diff(requests.arrival_s), 0.5)


def test_a_cap_on_outputs_is_part_of_the_capacity() -> None:
    """As many tokens a second in shorter requests are more requests a second."""

    def capacity(*sets: str) -> float:
        return capacity_task(Task(load_sweep("smoke", sets).points[0].experiment, -1, None))

    long, short = (capacity(f"serving.engine.max_tokens={cap}") for cap in (200, 20))
    plain = capacity()
    assert short > 2 * long
    assert short > 2 * plain
