"""Is a run of planted results that is stopped, damaged and resumed the same in the end, and is
nothing measured twice?"""

from __future__ import annotations

import csv
import json
import math
import re
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from scipy import stats

from hwmodel.description.description import DescriptionError
from policies.allocators.kv_layout import DoesNotFit
from sweeps.analyse.figures import THROUGHPUT
from sweeps.plan.experiment import CALIBRATION as CALIBRATED
from sweeps.plan.experiment import Task
from sweeps.plan.sweep import load_sweep
from sweeps.run import capacity, goodput, one_point, rehearsal, sweep_run
from sweeps.run.progress import Progress
from sweeps.run.store import CALIBRATION, CONFIG, RESULTS, SUMMARY, RunDirectory
from sweeps.run.sweep_run import Interrupted, SweepRun, run_sweep

QUIET = Progress(terminal=False)
WINDOWS, POLICIES, EACH = ("8KiB", "16KiB"), ("paged", "static"), 2
SETS = [
    f"axes.device_set.dma.window=[{', '.join(WINDOWS)}]", f"policy=[{', '.join(POLICIES)}]",
    "variants.slow={set: {serving.memory.efficiency: 0.5}, role: control}",
    "variants.top={set: {serving.policy: oracle}, role: reference}", f"replications={EACH}",
]  # fmt: skip
LOADS = {
    "none": "load=null", "given": "load={rate_per_s: 2}",
    "best": "load={relative: 1.5, of: best}", "shared": "load={relative: 1.5}",
    "own": "load={relative: 0.5, of: own}",
    "goodput": "load={goodput: {ttft: 1s, tpot: 1s}}", "search": "load={rate_per_s: 2}",
}  # fmt: skip
"""`shared`: all replications are calibrated on the same requests; `search`: results ask for more
points."""
COST = "{path: device_set.dma.descriptor_cost, range: [10, 10240], unit: ns, log: true, why: x}"
SEARCH = ["rule=crossing", f"crossing={{cost: {COST}}}", *SETS[:2], SETS[-1]]


def draw(*of: Any) -> float:
    """Any number above 1, the same whenever it is asked for."""
    return 1 + crc32(repr(of).encode()) % 1000 / 100


def place(experiment: Any) -> tuple[str, str]:
    return experiment.serving.policy.name, experiment.device_set["dma"]["window"]


def where(overrides: dict[str, Any]) -> tuple[str, str]:
    return overrides["serving.policy"], overrides["device_set.dma.window"]


def number(task: Task) -> tuple[Any, ...]:
    which = crc32(task.experiment.model_dump_json().encode())
    return *place(task.experiment), which, task.replication


class Machine:
    """What takes the place of simulations: it counts them, is stopped after `left` of them, and
    fails for those that it is told."""

    def __init__(self, patch: pytest.MonkeyPatch, seen_before: bool) -> None:
        self.counts = Counter[str]()
        self.measured: list[Any] = []
        self.left = math.inf
        self.failing: dict[Any, Exception] = {}
        self.unfit: set[tuple[str, str]] = set()
        self.without_rate: set[tuple[str, str]] = set()
        self.seen_before = seen_before
        for room in (sweep_run, one_point):
            patch.setattr(room, "measure", self.measure)
        patch.setattr(rehearsal, "measure", self.rehearse)
        hours = count()
        patch.setattr(time, "time", lambda: 2e9 - 3600 * next(hours))  # it goes back by an hour
        patch.setattr(capacity, "capacity_task", self.capacity)
        patch.setattr(goodput, "goodput_task", self.goodput)

    def _fits(self, experiment: Any) -> None:
        if place(experiment) in self.unfit:
            raise DoesNotFit(f"{place(experiment)[1]}: no room")

    def rehearse(self, task: Task) -> dict[str, Any]:
        if self.seen_before:
            self._fits(task.experiment)
        return {THROUGHPUT: 1.0}

    def measure(self, task: Task) -> dict[str, Any]:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        self._fits(task.experiment)
        self.measured.append(number(task))
        if number(task) in self.failing:
            raise self.failing[number(task)]
        return {THROUGHPUT: draw(number(task), task.rate_per_s), "offered": task.rate_per_s,
                "of": {"name": "x", "wall_s": 5.0}}  # fmt: skip

    def capacity(self, task: Task) -> float:
        self.counts["capacity"] += 1
        self._fits(task.experiment)
        return draw(*place(task.experiment), task.replication)

    def goodput(self, task: Any) -> float:
        self.counts["goodput"] += 1
        self._fits(task[0])
        if place(task[0]) in self.without_rate:
            raise DescriptionError("no rate attains the objective")
        assert task[1] == tuple(range(1, EACH + 1))
        return draw(*place(task[0]), task[0].serving.memory.efficiency)


def rate(load: str, record: dict[str, Any], unfit: set[tuple[str, str]]) -> float | None:
    """What a result was offered, by the definition of its load."""
    policy, window = where(record["overrides"])
    on = CALIBRATED if load == "shared" else -record["replication"]
    policy = "oracle" if record["control"] == "reference" else policy
    match load:
        case "best" | "shared":
            there = [each for each in POLICIES if (each, window) not in unfit]
            return 1.5 * max(draw(each, window, on) for each in there)
        case "own":
            return 0.5 * draw(policy, window, on)
        case "goodput":
            return draw(policy, window, 0.5 if record["control"] == "slow" else 0.8)
    return None if load == "none" else 2.0


def asked(load: str) -> list[str]:
    sets = SEARCH if load == "search" else SETS
    shared = ["calibration=shared"] if load == "shared" else []
    return [*sets, LOADS[load], "serving.memory.efficiency=0.8", *shared]


def rest(path: Path) -> list[str]:
    return [(path / name).read_text() for name in (SUMMARY, CALIBRATION, CONFIG)]


def results(path: Path) -> list[Any]:
    return [{**each, "wall_s": 0} for each in RunDirectory(path).records()]


def keys(records: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(each["point"], each["replication"]) for each in records]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("load", LOADS)
def test_whatever_stops_it_a_run_ends_as_one_that_was_not_stopped(
    load: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng([seed, *load.encode()])
    machine = Machine(monkeypatch, seen_before=bool(rng.integers(2)))
    if rng.random() < 0.4 and load != "search":
        machine.unfit = {(str(rng.choice(POLICIES)), str(rng.choice(WINDOWS)))}

    def go(name: str, resume: bool) -> SweepRun:
        machine.measured.clear()
        machine.counts.clear()
        return run_sweep(load_sweep("smoke", asked(load)), tmp_path / name, resume, 1, QUIET)

    whole = go("whole", False)
    everything, first = results(tmp_path / "whole"), list(machine.measured)
    misfits = whole.misfits.points
    assert len(first) == len(set(first)) == len(everything) == whole.total
    assert keys(everything) == sorted(set(keys(everything))) and not whole.failures
    assert {where(each.overrides) for each in misfits} == machine.unfit
    assert all(each.why.endswith(": no room") for each in misfits)
    for record in everything:
        assert record["rate_per_s"] == rate(load, record, machine.unfit)
        assert record["metrics"]["offered"] == record["rate_per_s"]
        assert (record["metrics"]["of"], record["walls"]) == ({"name": "x"}, {"wall_s": 5.0})
    summarised(tmp_path / "whole", everything, {each.point for each in misfits})
    if not machine.unfit and load != "search":
        alone(machine, tmp_path / "whole", everything[rng.integers(len(everything))], load)

    stopped = tmp_path / "stopped"
    for turn in range(rng.integers(1, 4)):
        machine.left = int(rng.integers(len(first)))
        fails = first[rng.integers(len(first))]
        at_fault = bool(rng.integers(2))
        why = "by hand" if at_fault else "ZeroDivisionError: by hand (at test_resume.py:"
        error = DescriptionError if at_fault else ZeroDivisionError
        machine.failing = {fails: error("by hand")}
        before = results(stopped) if stopped.is_dir() else []
        try:
            done = go("stopped", turn > 0)
            failed = fails in machine.measured
            assert (len(done.failures), done.at_fault) == (failed, failed and at_fault)
            assert all(f"replication {fails[-1]}: {why}" in each for each in done.failures)
        except Interrupted as error:
            kept = len(results(stopped)) if stopped.is_dir() else 0
            told = rf"^{kept} of \d+ results are kept in {stopped};" if kept else "^nothing"
            assert re.search(told, str(error)) and error.exit_code == 130
        if before:
            assert {*keys(before)} <= {*keys(results(stopped))}
            assert not machine.counts or load == "none"
        if stopped.is_dir() and rng.random() < 0.5:
            damage(stopped, rng)
    machine.left, machine.failing = math.inf, {}
    there = len(results(stopped)) if stopped.is_dir() else 0
    ended = go("stopped", True)
    assert ended.reused == there and len(machine.measured) == len(everything) - there
    assert results(stopped) == everything == [{**e, "wall_s": 0} for e in ended.records]
    assert rest(stopped) == rest(tmp_path / "whole")
    go("stopped", True)
    assert not machine.measured and not machine.counts
    assert results(stopped) == everything


def test_a_point_without_goodput_leaves_the_others_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, seen_before=True)
    machine.without_rate = {("static", WINDOWS[0])}
    sweep = load_sweep("smoke", asked("goodput"))
    lost = EACH * sum(place(point.experiment) in machine.without_rate for point in sweep.points)
    for resume in (False, True):
        done = run_sweep(sweep, tmp_path / "run", resume, 1, QUIET)
        assert done.at_fault and len(done.failures) == lost == done.total - len(done.records) > 0
        assert all("goodput of" in each and "no rate attains" in each for each in done.failures)
        assert {("static", WINDOWS[0])}.isdisjoint(
            where(each["overrides"]) for each in done.records)  # fmt: skip
    assert done.reused == len(done.records)


def test_resuming_where_something_else_is_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DescriptionError, match="is not a run directory"):
        run_sweep(load_sweep("smoke"), tmp_path, True, 1, QUIET)


def alone(machine: Machine, whole: Path, record: dict[str, Any], load: str) -> None:
    """A replication of a point by itself, with the capacities of a run or its own."""
    chosen = {"point": record["point"], "replication": record["replication"]}
    rivals = {"best": len(POLICIES), "shared": len(POLICIES), "own": 1, "goodput": 1}.get(load, 0)
    for given, more, many in ((whole, [], 0), ("smoke", asked(load), rivals)):
        machine.counts.clear()
        found = one_point.simulate(given, more, **chosen)
        del found["metrics"]["of"]["wall_s"]
        assert found == {key: record[key] for key in found} and len(found) == 7
        assert machine.counts.total() == many
    config = (whole / CONFIG).read_text()
    (whole / CONFIG).write_text(config.replace("tRCD: 18ns", "tRCD: 17ns"))
    with pytest.raises(DescriptionError, match="has changed since this was recorded"):
        one_point.simulate(whole, **chosen)
    (whole / CONFIG).write_text(config)
    for wrong in (0, EACH + 1):
        with pytest.raises(DescriptionError, match=f"--replication: expected 1 to {EACH}; got"):
            one_point.simulate(whole, **{**chosen, "replication": wrong})


def damage(path: Path, rng: np.random.Generator) -> None:
    """Some lines are lost, or the last one is torn."""
    lines = (path / RESULTS).read_text().splitlines(keepends=True)
    kept = [line for line in lines if rng.random() < 0.7]
    torn = lines[-1][: rng.integers(1, len(lines[-1]))] if rng.random() < 0.5 else ""
    (path / RESULTS).write_text("".join(kept) + torn.rstrip("\n"))


def summarised(path: Path, records: list[dict[str, Any]], unfit: set[int]) -> None:
    """A row a point, with SciPy's intervals."""
    with (path / SUMMARY).open() as file:
        rows = list(csv.DictReader(file))
    points = sorted({each["point"] for each in records} | unfit)
    assert [int(row["point"]) for row in rows] == points
    for row in rows:
        mine = [each for each in records if each["point"] == int(row["point"])]
        assert int(row["replications"]) == len(mine)
        assert bool(row.get("does_not_fit")) == (int(row["point"]) in unfit)
        if not mine:
            continue
        values = [each["metrics"][THROUGHPUT] for each in mine]
        half = stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)
        assert float(row[THROUGHPUT]) == pytest.approx(np.mean(values))
        assert float(row[f"{THROUGHPUT}_half"]) == pytest.approx(half)
        assert row["control"] == mine[0]["control"] and "of.name" not in row
        assert json.dumps([row[key] for key in mine[0]["overrides"]]) == json.dumps(
            [*mine[0]["overrides"].values()]
        )
