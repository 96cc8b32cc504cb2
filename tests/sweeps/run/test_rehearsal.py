"""Are the kernels of a run compiled once, and side by side where there are several?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hwmodel.kernel.shapes import ONE_KERNEL
from sweeps.plan import experiment
from sweeps.plan.experiment import Task
from sweeps.plan.sweep import load_sweep
from sweeps.run import rehearsal
from sweeps.run.outcome import Outcome
from sweeps.run.progress import Progress
from sweeps.run.task_limits import TaskLimits

SMALL = ["variants={}", "serving.policy=[static]", "serving.memory.fidelity=sampled"]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(ONE_KERNEL, "0")
    experiment._kernel.cache_clear()
    yield
    experiment._kernel.cache_clear()


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Devices that are tried: by workers, and here; nothing is measured."""
    found: dict[str, list[str]] = {"workers": [], "here": []}

    def tried(where: str, task: Task) -> Outcome:
        memory = task.experiment.serving.memory
        if memory.efficiency is None:
            found[where].append(task.experiment.device)
        return Outcome(0, {})

    def execute(work: Any, tasks: list[Task], jobs: int, limits: TaskLimits) -> Iterator[Outcome]:
        assert limits == TaskLimits()  # compiling takes what it takes
        yield from (tried("workers", task) for task in tasks)

    monkeypatch.setattr(rehearsal, "execute", execute)
    monkeypatch.setattr(rehearsal, "attempt", lambda work, index, task: tried("here", task))
    return found


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("devices", "jobs", "workers", "here"),
    [
        # the two have LPDDR5, and then HBM in common
        ("mlu370-x4, oaken-lpddr", 2, [], ["mlu370-x4"]),
        ("mlu370-x4, a100-80gb, h100-sxm", 2, ["mlu370-x4", "a100-80gb"],
         ["mlu370-x4", "a100-80gb"]),
        ("mlu370-x4, a100-80gb", 1, [], ["mlu370-x4", "a100-80gb"]),
        ("mlu370-x4, b200", 2, [], ["mlu370-x4", "b200"]),  # whose memory is given
    ],
)  # fmt: skip
def test_a_kernel_is_tried_once_and_several_by_workers_first(
    devices: str, jobs: int, workers: list[str], here: list[str], done: dict[str, list[str]]
) -> None:
    sweep = load_sweep("quickstart", [*SMALL, f"device=[{devices}]"])
    rehearsal.rehearse(sweep.points, None, Progress(terminal=False), jobs)
    assert done == {"workers": workers, "here": here}
