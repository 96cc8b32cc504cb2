"""Is an estimate that of the points that are timed, by a clock that each step of it moves?"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.plan.sweep import load_sweep
from sweeps.run import dry_run
from tests.sweeps.cli.test_command_line import bankwise

WINDOWS = [f"{2**i}KiB" for i in range(9)]
FIRST_S, REHEARSED_S, CAPACITY_S = 1.0, 3.0, 1.0


class Clock:
    """CPU time, which the parts of a dry run move as they are told."""

    def __init__(self, patch: pytest.MonkeyPatch, seconds: dict[str, float | None]) -> None:
        """seconds: what a point takes, by window; None: it cannot be measured."""
        self.now_s, self.seconds, self.timed = 100.0, seconds, list[str]()
        self.unfit: set[int] = set()
        patch.setattr(dry_run, "time", SimpleNamespace(process_time=lambda: self.now_s))
        for name in ("rehearse", "rate_of", "measure"):
            patch.setattr(dry_run, name, getattr(self, name))

    def rehearse(self, points: Any, document: Any, progress: Any, unfit: dict[int, str]) -> Any:
        self.now_s += REHEARSED_S
        unfit |= dict.fromkeys(self.unfit, "no room")
        return []

    def rate_of(self, sweep: Any, point: Any, *_: Any, **__: Any) -> float:
        load = point.experiment.offered
        self.now_s += CAPACITY_S if load is not None and load.relative is not None else 0.0
        return 1.0

    def measure(self, task: Any) -> dict[str, Any]:
        assert (task.replication, task.rate_per_s) == (1, 1.0)
        window = task.experiment.device_set["dma"]["window"]
        self.now_s += 0 if self.timed else FIRST_S  # what a process does once
        self.timed.append(window)
        if (took_s := self.seconds[window]) is None:
            raise DescriptionError(f"{window} cannot be measured")
        self.now_s += took_s
        return {"batch": 8.0} if window != WINDOWS[0] else {"batch": 0.0}


def asked(*sets: str) -> dry_run.DryRun:
    axes = ["policy=[paged, static]", f"axes.device_set.dma.window=[{', '.join(WINDOWS)}]"]
    return dry_run.dry_run(load_sweep("smoke", [*axes, "replications=2", *sets]), 90.0)


@pytest.mark.parametrize("load", ["rate_per_s: 1", "relative: 1, of: own", "relative: 1, of: best"])
def test_minutes_are_of_all_results_if_they_are_like_those_timed(
    load: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: dict[str, float | None] = {each: 0.5 + i / 2 for i, each in enumerate(WINDOWS)}
    clock = Clock(monkeypatch, seconds)
    found = asked(f"load={{{load}}}", "policy=[paged]")
    places = [0, 2, 4, 6, 8]
    # the middle one comes first, and twice, as it is short
    assert [WINDOWS.index(each) for each in clock.timed[:2]] == [4, 4]
    assert sorted(WINDOWS.index(each) for each in clock.timed[1:]) == places
    capacity = CAPACITY_S * 18 if "relative" in load else 0.0  # of each point and replication
    mean = sum(0.5 + place / 2 for place in places) / 5 * 18 + capacity
    assert found.minutes == pytest.approx((10 + REHEARSED_S + mean) / 60)
    assert (found.points, found.unfit, found.results, found.timed) == (9, 0, 18, 5)
    assert not found.explained and found.lengths == [(120, 8.0)] * 4


def test_a_group_measures_the_capacities_of_its_rivals_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, dict.fromkeys(WINDOWS, 6.0))
    clock.unfit = {3}
    found = asked("load={relative: 1, of: best}")
    # the first takes more than 5 s, and is not timed again; its two rivals have one rate
    each = [7.0, *[6.0] * 4]
    results = 2 * 17
    mean = sum(once * results + CAPACITY_S / 2 * results for once in each) / 5
    assert found.minutes == pytest.approx((10 + REHEARSED_S + mean) / 60, rel=0.02)
    assert (found.points, found.unfit, found.results, found.timed) == (17, 1, results, 5)
    assert found.explained


@pytest.mark.parametrize("slow_s", [39.0, 41.0])
def test_what_cannot_be_measured_is_passed_over_and_long_points_are_few(
    slow_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {each: slow_s if i == 6 else None for i, each in enumerate(WINDOWS)}
    clock = Clock(monkeypatch, seconds)
    found = asked("load={rate_per_s: 1}", "policy=[paged]")
    assert found.timed == 1 and len(clock.timed) == (5 if slow_s < dry_run.ENOUGH_S else 3)
    clock.seconds = dict.fromkeys(WINDOWS)
    with pytest.raises(DescriptionError, match="16KiB cannot be measured"):
        asked("load={rate_per_s: 1}", "policy=[paged]")


def test_a_study_says_how_long_it_takes_and_writes_nothing(tmp_path: Path) -> None:
    done = bankwise("run", "quick", "--dry-run", "--set", "requests=20", cwd=tmp_path)
    assert done.returncode == 0 and not list(tmp_path.iterdir())
    said = (
        r"24 trials of 1 replication, a finale of 12 results, (less than a|about \d\.\d) CPU minute"
    )
    assert re.match(said, done.stdout)
