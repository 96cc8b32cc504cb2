"""Are the cells of a fleet shared out to workers without changing a figure, whatever becomes of
one?"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sweeps.plan.experiment import measure
from sweeps.plan.sweep import load_sweep
from sweeps.run import sweep_run
from sweeps.run.sweep_run import SweepRun, run_sweep
from tests.sweeps.study.studies import QUIET, results

SMALL = [
    "requests=150", "warmup_requests=30", "replications=1", "serving.cluster.cards=6",
    "load.rate_per_s=30", "serving.cluster.cells=3", "serving.memory.efficiency=0.9",
    "serving.cluster.placement=[round_robin, kv_aware]", "variants={}",
]  # fmt: skip


def run(out: Path, jobs: int = 1, cluster: str | None = None) -> SweepRun:
    return run_sweep(load_sweep("fleet", SMALL), out, False, jobs, QUIET, cluster)


def kept(out: Path) -> list[dict[str, Any]]:
    """Results in order, without wall times."""
    return [{k: v for k, v in each.items() if k != "walls"} for each in results(out)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What this process alone comes to."""
    out = tmp_path_factory.mktemp("fleet") / "alone"
    run(out)
    return kept(out)


def slow(task: Any) -> Any:
    """Says who does a cell, and takes its time."""
    (Path(os.environ["FLEET_TEST"]) / f"{task.cell}-{os.getpid()}").touch()
    time.sleep(0.3)
    return measure(task)


def test_two_workers_one_of_which_is_killed_come_to_what_one_does(
    alone: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_TEST", str(tmp_path))
    monkeypatch.setattr(sweep_run, "measure", slow)
    killed: list[int] = []

    def kill() -> None:
        while not (found := [each for each in tmp_path.glob("*-*") if each.is_file()]):
            time.sleep(0.01)
        killed.append(int(found[0].name.split("-")[-1]))
        os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(sweep_run, "rehearse", lambda *_: None)  # it measures here
    thread = threading.Thread(target=kill)
    thread.start()
    found = run(tmp_path / "two", jobs=2)
    thread.join()
    assert killed and not found.failures
    assert kept(tmp_path / "two") == alone


@pytest.mark.long
def test_a_dask_cluster_comes_to_what_one_process_does(
    alone: list[dict[str, Any]], tmp_path: Path
) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        run(tmp_path / "cluster", cluster=cluster.scheduler_address)
    assert kept(tmp_path / "cluster") == alone


@pytest.mark.parametrize(
    ("sweep", "sets", "cards"),
    [
        ("fleet", ["serving.cluster.cards=1000"], 2),
        ("fleet", ["serving.faults=[{replica: 4, at_s: 1}]"], 20),
        (
            "docs/release/kunserve.yaml",
            ["serving.cluster={cards: 4, dropping: {link: rdma-200}}"],
            4,
        ),
    ],
)
def test_as_many_cards_are_tried_first_as_differ(sweep: str, sets: list[str], cards: int) -> None:
    chosen = load_sweep(sweep, [*sets, "variants={}"])
    tried = chosen.points[0].experiment.rehearsals([chosen.points[0].experiment])
    assert {each.serving.cluster.cards for each in tried} == {cards}
