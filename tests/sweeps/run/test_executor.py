"""Do all tasks get an outcome, whatever becomes of their worker?"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from policies.serving.counted_runs import RUNS
from sweeps.run.executor import execute, worker_count


def work(task: Any) -> Any:
    match task:
        case "user":
            raise DescriptionError("too small", "a.yaml", 3)
        case "bug":
            raise ZeroDivisionError("by hand")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "asked to end":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        case ("leaves", code):
            os._exit(code)
        case "pid":
            return os.getpid()
        case "large":  # in a worker that may have no more than it has
            resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, resource.RLIM_INFINITY))
            return len(bytearray(4 << 30))
        case "slow":
            time.sleep(60)
    return task * 2


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_every_task_has_one_outcome(jobs: int) -> None:
    outcomes = sorted(execute(work, list(range(20)), jobs), key=lambda outcome: outcome.index)
    assert [outcome.value for outcome in outcomes] == [2 * i for i in range(20)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_says_why_and_the_others_go_on(jobs: int) -> None:
    found = {o.index: o for o in execute(work, [1, "user", 2, "bug", 3], jobs)}
    assert [found[i].value for i in (0, 2, 4)] == [2, 4, 6]
    assert (found[1].error, found[1].at_fault) == ("a.yaml:3: too small", True)
    assert found[3].error is not None and not found[3].at_fault
    assert found[3].error.startswith("ZeroDivisionError: by hand (at test_executor.py:")


def test_a_worker_for_each_core_unless_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_count(3) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 4, 5}, raising=False)
    assert worker_count(None) == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    for known, expected in ((6, 6), (None, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda known=known: known)
        assert worker_count(None) == expected


@pytest.mark.parametrize("fails", [True, False])
def test_ctrl_c_is_not_lost_in_the_compiler(fails: bool) -> None:
    def compiles(task: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):  # as a callback from C does
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        if fails:
            raise RuntimeError("no compiled object yet")
        return task

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(execute(compiles, [1, 2], 1))
    assert signal.getsignal(signal.SIGINT) is before


def test_how_a_worker_left_is_said() -> None:
    handler = signal.signal(signal.SIGTERM, lambda *_: None)  # the parent's own
    found = [*execute(work, [("leaves", 0), ("leaves", 3), "killed", "asked to end"], 2)]
    signal.signal(signal.SIGTERM, handler)
    assert sorted(str(each.error) for each in found) == [
        "its worker process was ended by signal 15 (out of memory?)",
        "its worker process was ended by signal 9 (out of memory?)",
        "its worker process was ended with exit code 0",
        "its worker process was ended with exit code 3",
    ]


def test_runs_of_workers_are_counted_where_they_are_asked_for() -> None:
    before = RUNS.copy()
    found = list(execute(lambda kind: RUNS.update([kind]), ["plain", "plain", "general"], 2))
    assert not any(each.error for each in found)
    assert RUNS - before == {"plain": 2, "general": 1}


def test_a_worker_out_of_memory_says_so_and_the_others_go_on() -> None:
    found = {o.index: o for o in execute(work, [1, "large", 2, 3], 2)}
    assert found[1].error == "out of memory" and not found[1].lost
    assert [found[i].value for i in (0, 2, 3)] == [2, 4, 6]


def test_a_worker_killed_while_idle_costs_none() -> None:
    outcomes = execute(work, ["pid", *["pid"] * 5], 2)
    first = next(outcomes)
    os.kill(first.value, signal.SIGKILL)
    time.sleep(0.2)
    others = list(outcomes)
    assert len(others) == 5 and not any(each.error for each in others)
    assert first.value not in [each.value for each in others[1:]]


def dies_once(flag: Path) -> str:
    """Kills its worker the first time."""
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def test_a_task_is_begun_again_where_its_worker_died(tmp_path: Path) -> None:
    flags = [tmp_path / str(i) for i in range(3)]
    assert [o.value for o in execute(dies_once, flags, 2, retries=1)] == ["done"] * 3
    found = {o.index: o for o in execute(work, [1, "killed"], 2, retries=2)}
    assert found[0].value == 2 and found[1].lost


def test_closing_ends_workers_that_are_busy() -> None:
    start = time.monotonic()
    outcomes = execute(work, ["pid", "slow", "slow"], 2)
    pid = next(outcomes).value
    outcomes.close()
    assert time.monotonic() - start < 30
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_tasks_no_workers() -> None:
    assert list(execute(work, [], 4)) == []
