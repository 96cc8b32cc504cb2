"""Does a Dask cluster come to the same trials as processes here, whatever becomes of a worker?"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from hwmodel.description.description import DescriptionError
from policies.allocators.registry import POLICIES
from policies.engines.schedulers import SCHEDULERS
from policies.serving.plugins import LOADED, load_plugin
from policies.transfers.connectors import CONNECTORS
from sweeps.plan.sweep import load_sweep
from sweeps.run.executor import execute
from sweeps.run.store import RunDirectory
from sweeps.run.sweep_run import run_sweep
from sweeps.study.study_spec import load_study
from tests.sweeps.study.studies import QUIET, results, run, tiny

distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as found:
        yield found


@pytest.fixture(scope="module")
def apart() -> Iterator[str]:
    """The address of a scheduler that is a process of its own, as its one worker is."""
    with distributed.SubprocessCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0",
        worker_class="distributed.Worker",
    ) as found:  # fmt: skip
        yield found.scheduler_address


def slow(task: tuple[Path, int]) -> int:
    """Says who does it, and takes its time."""
    folder, number = task
    (folder / f"{number}-{os.getpid()}").touch()
    time.sleep(0.5)
    return number * number


@pytest.mark.long
def test_trials_are_those_of_the_pool(cluster: Any, tmp_path: Path) -> None:
    run(tiny(), tmp_path / "pool", jobs=2)
    run(tiny(), tmp_path / "cluster", cluster=cluster.scheduler_address)
    assert results(tmp_path / "cluster") == results(tmp_path / "pool")


WHOLE = [
    "trials=10", "batch=5", "warmup_requests=60", "requests=40", "policy.window=60",
    "policy.refresh=20", "memory=table", "first=[base, paper]", "halving=[{keep: 0.5}]",
    "space.serving.policy.levels={quantiles: [3, 5], balance: [requests, residents]}",
    "families={own: {serving.policy.levels: drawn}}", "profiles=[serving.policy.gamma]",
]  # fmt: skip


def told(out: Path) -> list[Any]:
    """The trials of a study's journal."""
    storage = JournalStorage(JournalFileBackend(str(out / "journal.log")))
    trials = optuna.load_study(study_name="quick", storage=storage).trials
    return [(t.params, t.values, t.state, t.constraints, t.intermediate_values) for t in trials]


@pytest.mark.long
def test_a_worker_killed_in_mid_trial_changes_nothing(cluster: Any, tmp_path: Path) -> None:
    """Kill a real worker process while the study runs on it; its trials go to another."""
    study, here, there = load_study("quick", WHOLE), tmp_path / "pool", tmp_path / "cluster"
    run(study, here)
    killed: list[int] = []

    def kill() -> None:
        file = there / "results.jsonl"
        while not file.is_file() or file.read_bytes().count(b"\n") < 5:
            time.sleep(0.001)
        worker = next(iter(cluster.workers.values()))
        killed.append(worker.pid)
        os.kill(worker.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    run(study, there, cluster=cluster.scheduler_address)
    thread.join()
    assert killed
    assert results(there) == results(here) and told(there) == told(here)
    for name in ("finale.jsonl", "profile.jsonl", "limit.json", "best.yaml"):
        assert (there / name).read_text() == (here / name).read_text()


def test_a_task_whose_worker_is_killed_is_done_by_another(cluster: Any, tmp_path: Path) -> None:
    outcomes = execute(slow, [(tmp_path, n) for n in range(4)], 1, cluster.scheduler_address)

    def kill() -> None:
        while not any(tmp_path.iterdir()):
            time.sleep(0.01)
        pid = int(next(tmp_path.iterdir()).name.split("-")[1])
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    assert sorted(outcome.value for outcome in outcomes) == [0, 1, 4, 9]
    thread.join()
    begun = [file.name.split("-")[0] for file in tmp_path.iterdir()]
    assert len(begun) > len(set(begun)), "none was begun again"


def named(options: Any) -> str:
    """Of a plug-in, as its module there says."""
    return f"{type(options).__module__}: {type(options).__name__}"


def test_plug_ins_go_along(apart: str) -> None:
    """Objects of a plug-in's classes, to a scheduler and a worker that have never seen it."""
    examples = Path(__file__).resolve().parents[3] / "examples"
    try:
        for name in ("own_scheduler.py", "own_connector.py"):
            load_plugin(examples / name)
        options = [SCHEDULERS["capped"].Options(name="capped"), CONNECTORS["second_pool"].Options()]
        outcomes = list(execute(named, options, 1, apart))
    finally:
        SCHEDULERS.pop("capped", None)
        CONNECTORS.pop("second_pool", None)
        LOADED.clear()
    said = {(outcome.error, outcome.value) for outcome in outcomes}
    assert said == {
        (None, "bankwise_plugin_own_scheduler: CappedSpec"),
        (None, "bankwise_plugin_own_connector: SecondPoolOptions"),
    }


def test_a_policy_of_a_plug_in_serves_on_two_workers_as_it_does_here(tmp_path: Path) -> None:
    """Workers that are processes of their own, and have never seen it."""
    with distributed.SubprocessCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0",
        worker_class="distributed.Worker",
    ) as found:  # fmt: skip
        try:
            load_plugin(Path(__file__).resolve().parents[3] / "examples/own_allocator.py")
            few = ["requests=20", "warmup_requests=5", "policy=[room, paged]"]
            sweep = load_sweep("smoke", few)
            run_sweep(sweep, tmp_path / "cluster", False, 2, QUIET, found.scheduler_address)
            run_sweep(sweep, tmp_path / "here", False, 1, QUIET)
        finally:
            POLICIES.pop("room", None)
            LOADED.clear()
    there, here = (
        [each["metrics"] for each in RunDirectory(tmp_path / name).records()]
        for name in ("cluster", "here")
    )
    assert len(there) > 1 and there == here


def test_no_scheduler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps.run.dask_cluster.CONNECT_S", 1)
    with pytest.raises(DescriptionError, match=r"no scheduler at tcp://127\.0\.0\.1:9"):
        next(execute(slow, [1], 1, "tcp://127.0.0.1:9"))
