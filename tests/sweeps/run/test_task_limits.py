"""Is a simulation ended that takes more than it may, and do the others go on?"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sweeps.run.executor import execute
from sweeps.run.task_limits import TaskLimits, in_force, put_in_force, read_limits
from tests.sweeps.cli.test_command_line import bankwise

LIMIT_S, LARGE = 1.0, 2 << 30


def work(task: Any) -> Any:
    if task == "endless":
        time.sleep(60)
    if task == "large":
        kept = bytearray(LARGE)
        kept[:: 1 << 12] = b"1" * (LARGE >> 12)
        time.sleep(60)
    return task * 2


@pytest.fixture
def limited() -> Iterator[None]:
    """TaskLimits that a test puts in force hold in it alone."""
    yield
    put_in_force(TaskLimits())


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_a_task_that_takes_too_long_is_ended_and_the_others_are_done(jobs: int) -> None:
    tasks = [1, "endless", 2, "endless", 3]
    outcomes = list(execute(work, tasks, jobs, limits=TaskLimits(seconds=LIMIT_S)))
    found = {outcome.index: outcome for outcome in outcomes}
    assert len(outcomes) == len(found) == 5
    assert [found[at].value for at in (0, 2, 4)] == [2, 4, 6]
    for at in (1, 3):
        assert found[at].error == "it took longer than --time-limit, 1 s"
        assert not found[at].at_fault and not found[at].lost


def test_a_task_that_takes_too_much_memory_is_ended() -> None:
    limits = TaskLimits(resident_bytes=LARGE / 2)
    found = {each.index: each for each in execute(work, [1, "large", 2], 2, limits=limits)}
    assert (found[0].value, found[2].value) == (2, 4)
    assert str(found[1].error).startswith("it took more memory than --memory-limit, 1.074e+09")


def test_what_has_ended_is_within_its_limits() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert TaskLimits(60, 0).broken(ended.pid, time.monotonic()) is None


def test_a_task_that_is_ended_is_not_begun_again() -> None:
    began = time.monotonic()
    limits = TaskLimits(seconds=0.3)
    (only,) = execute(work, ["endless"], 1, retries=5, limits=limits)
    assert only.error is not None and time.monotonic() - began < 30


@pytest.mark.usefixtures("limited")
def test_limits_in_force_hold_for_what_names_none() -> None:
    put_in_force(TaskLimits(seconds=0.3))
    assert in_force().seconds == 0.3
    (only,) = execute(work, ["endless"], 1)
    assert only.error == "it took longer than --time-limit, 0.3 s"
    (only,) = execute(work, [4], 1, limits=TaskLimits())
    assert only.value == 8


def test_limits_are_read_with_their_units() -> None:
    assert read_limits("1.5s", "2GiB", None) == TaskLimits(1.5, 2 << 30)
    assert read_limits(None, None, "host:1") == TaskLimits()


def test_a_run_reports_what_was_ended_and_goes_on_with_resume(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.run.executor.LOOK_S", 0.001)  # points may end within 0.1 s
    words = ("run", "smoke", "--out", tmp_path / "run", "--set", "replications=1")
    done = bankwise(*words, "--time-limit", "1ms", cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "it took longer than --time-limit, 0.001 s" in done.stdout + done.stderr
    again = bankwise(*words, "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
