"""Is a run that was stopped, however it was stopped, the same in the end as one that was not?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.plan.experiment import Task, run_task
from sweeps.plan.sweep import load_sweep
from sweeps.run.progress import Progress
from sweeps.run.store import RunDirectory
from sweeps.run.sweep_run import run_sweep
from tests.sweeps.made import RESULTS, results

ROOT = Path(__file__).resolve().parents[3]
EACH = 6
MANY = [f"replications={EACH}", "requests=200"]
QUIET = Progress(terminal=False)
each_number_of_jobs = pytest.mark.parametrize(
    "jobs", ["2", pytest.param("1", marks=pytest.mark.long)]
)


def start(out: Path, *arguments: str) -> subprocess.Popen[str]:
    """A real `bankwise run smoke` of many replications, in a process group of its own."""
    sets = [part for assignment in MANY for part in ("--set", assignment)]
    return subprocess.Popen(
        [sys.executable, "-m", "sweeps.cli.main", "run", "smoke", "--out", str(out), *sets,
         *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip


def wait_for_results(process: subprocess.Popen[str], out: Path, count: int) -> None:
    file = out / "results.jsonl"
    while not file.is_file() or file.read_bytes().count(b"\n") < count:
        assert process.poll() is None, "it ended before it could be stopped"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run, on one worker."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run_sweep(load_sweep("smoke", MANY), out, False, 1, QUIET)
    return out


def differing(one: Any, other: Any, place: str = "") -> list[str]:
    """Places at which two results differ, with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted({*one, *other})
        parts = [differing(one.get(key), other.get(key), f"{place}.{key}") for key in keys]
        return [text for part in parts for text in part]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        parts = [differing(a, b, f"{place}[{i}]") for i, (a, b) in pairs]
        return [text for part in parts for text in part]
    return [] if one == other else [f"{place}: {one!r} != {other!r}"]


def same(stopped: Path, whole: Path) -> None:
    assert differing(results(stopped), results(whole)) == []
    for name in ("summary.csv", "config.yaml", "calibration.json"):
        assert (stopped / name).read_text() == (whole / name).read_text(), name


def test_workers_do_not_change_results(whole: Path, tmp_path: Path) -> None:
    run_sweep(load_sweep("smoke", MANY), tmp_path / "run", False, 3, QUIET)
    same(tmp_path / "run", whole)


@each_number_of_jobs
def test_kill_9_keeps_what_was_finished_and_ends_the_workers(
    jobs: str, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = start(out, "--jobs", jobs)
    wait_for_results(process, out, 3)
    process.kill()
    process.communicate()
    wait_for_the_end_of_all(process)
    kept = len(results(out))
    assert 3 <= kept < 2 * EACH
    with (out / "results.jsonl").open("a") as file:
        file.write('{"point": 1, "repl')
    done = start(out, "--jobs", jobs, "--resume")
    _, said = done.communicate()
    assert done.returncode == 0, said
    same(out, whole)


def wait_for_the_end_of_all(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < deadline, "a worker is still there"
        time.sleep(0.1)


@each_number_of_jobs
@pytest.mark.parametrize(
    ("number", "name", "code"),
    [(signal.SIGINT, "Ctrl-C", 130), (signal.SIGTERM, "SIGTERM", 143)],
    ids=("SIGINT", "SIGTERM"),
)
def test_a_signal_keeps_what_was_finished_and_says_so(
    number: int, name: str, code: int, jobs: str, whole: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    process = start(out, "--jobs", jobs)
    wait_for_results(process, out, 3)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: parent and workers alike
    else:
        process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode == code
    assert "Traceback" not in said
    kept = len(results(out))
    expected = (
        f"stopped by {name}; {kept} of {2 * EACH} results are kept in {out}; the same command with"
    )
    assert f"{expected} --resume continues" in said
    run_sweep(load_sweep("smoke", MANY), out, True, 2, QUIET)
    same(out, whole)


def test_a_description_that_changed_since_is_noticed(tmp_path: Path) -> None:
    run_sweep(load_sweep("smoke"), tmp_path / "a", False, 1, QUIET)
    file = tmp_path / "a/config.yaml"
    file.write_text(file.read_text().replace("tRCD: 18ns", "tRCD: 17ns"))
    with pytest.raises(DescriptionError) as error:
        run_sweep(load_sweep(str(file)), tmp_path / "b", False, 1, QUIET)
    assert "mlu370-x4 has changed since this was recorded: memory.timing.tRCD" in str(error.value)
    assert not (tmp_path / "b").exists()


def test_what_leads_is_told_as_soon_as_each_point_has_a_result(tmp_path: Path) -> None:
    class Told(Progress):
        def say(self, text: str) -> None:
            lines = (tmp_path / "results.jsonl").read_text().splitlines()
            told.append((text, {record["replication"] for record in map(json.loads, lines)}))

    told: list[tuple[str, set[int]]] = []
    done = run_sweep(load_sweep("smoke"), tmp_path, False, 1, Told(terminal=False))
    (there,) = (there for text, there in told if text.startswith("one replication of"))
    assert there == {1} < {record["replication"] for record in done.records}


def test_provenance_says_where_results_come_from(whole: Path) -> None:
    known = json.loads((whole / "provenance.json").read_text())
    assert set(known["inputs"]) == {"sweep", "devices", "models", "formats", "workloads"}
    assert len(known["inputs"]["devices"]["mlu370-x4"]) == 64
    assert "dma.window" in known["assumed"]["mlu370-x4"]
    assert known["seeds"] == [[1, EACH]]
    assert known["libraries"]["numpy"]


def test_the_formats_that_are_served_are_inputs(tmp_path: Path) -> None:
    wanted = [
        "serving.weights=q4_k_m", "serving.kv=int8_token_head", "serving.memory.efficiency=0.8",
        "load={rate_per_s: 3}", "requests=20", "warmup_requests=5",
    ]  # fmt: skip
    run_sweep(load_sweep("smoke", [*wanted, "replications=1"]), tmp_path, False, 1, QUIET)
    known = json.loads((tmp_path / "provenance.json").read_text())
    assert set(known["inputs"]["formats"]) == {"q4_k_m", "q6_k", "fp32", "int8_token_head"}
    assert "scale_bits" in known["assumed"]["int8_token_head"]
    resolved = RunDirectory(tmp_path).config()["resolved"]["formats"]
    assert resolved["q4_k_m"]["parts"]["down"] == "q6_k" and resolved["fp32"]["bits"] == 32


def test_a_result_that_memory_leaves_uncertain_is_refused_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsure(task: Task) -> dict[str, Any]:
        error = {1: 0.09, 2: 15.47}[task.replication]
        return {**run_task(task), "memory": {"throughput_ci95": error}}

    monkeypatch.setattr("sweeps.plan.experiment.run_task", unsure)
    sweep = load_sweep("smoke", ["serving.memory.max_probes=5", "load={rate_per_s: 3}"])
    run = run_sweep(sweep, tmp_path / "run", False, 1, QUIET)
    assert [record["replication"] for record in run.records] == [1, 1] and not run.at_fault
    assert run.failures == [
        f"failed: {policy}, replication 2: sampled memory leaves the throughput uncertain by "
        "1547%, more than 10%: --set serving.memory.max_probes=20, or more requests"
        for policy in ("static", "paged")
    ]


@pytest.mark.long
@pytest.mark.parametrize(("name", "jobs", "done"), [("tiered", "2", 1), ("combined", "1", 4)])
def test_what_is_killed_among_transfers_and_resumed_moves_the_same_bytes(
    name: str, jobs: str, done: int, tmp_path: Path
) -> None:
    """Kill -9 of one worker of two, whose result alone is lost, or of the run."""
    sweep = str(RESULTS / f"{name}.yaml")
    whole, out = tmp_path / "whole", tmp_path / "run"
    run_sweep(load_sweep(sweep), whole, False, 1, QUIET)
    assert all("metrics" in one for one in results(whole))
    command = [sys.executable, "-m", "sweeps.cli.main", "run", sweep, "--out", str(out)]
    given: dict[str, Any] = {
        "env": {**os.environ, "PYTHONPATH": str(ROOT)}, "cwd": tmp_path, "text": True,
        "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
    }  # fmt: skip
    process = subprocess.Popen([*command, "--jobs", jobs], **given)
    wait_for_results(process, out, done)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(workers[-1]) if jobs == "2" else process.pid, signal.SIGKILL)
    said = process.communicate(timeout=300)[1]
    lost = len(results(whole)) - len([one for one in results(out) if "metrics" in one])
    assert lost in (0, 1) if jobs == "2" else lost > 0, said
    again = subprocess.run([*command, "--resume", "--jobs", "1"], **given, check=False)
    assert again.returncode == 0, again.stderr
    same(out, whole)
    assert name != "tiered" or all("write" in one["metrics"]["tiers"] for one in results(out))
