"""Is a planted crossing found, with its interval, and told; and is "never" an answer?"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.analyse.crossing import crossing as crossing_of
from sweeps.analyse.crossing import edge, sure
from sweeps.analyse.statistics import Interval
from sweeps.plan.crossing_findings import Crossed
from sweeps.plan.crossing_sweep import CrossingSpec
from sweeps.plan.experiment import Task
from sweeps.plan.parameter import Parameter
from sweeps.plan.sweep import load_sweep
from sweeps.report.contents import Report, read_report
from sweeps.report.crossing_page import over_places
from sweeps.run import sweep_run as run_module
from sweeps.run.progress import Progress
from sweeps.run.store import RunDirectory
from sweeps.run.sweep_run import run_sweep
from tests.sweeps.made import RESULTS, measuring, results

QUIET = Progress(terminal=False)
COST = "{path: device_set.dma.descriptor_cost, range: [10, 10240], unit: ns, log: true, why: x}"
LIMIT = "{path: serving.engine.max_tokens, range: [64, 128], of: static, why: x}"
HASH = "{variants: {none: {set: {device_set.channel_hash: none}}}, why: x}"
SETS = ["rule=crossing", f"crossing={{cost: {COST}, hash: {HASH}}}",
        "policy=[paged, static]", "replications=3", "load={rate_per_s: 1}"]  # fmt: skip


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_curve_turns_where_a_fine_grid_last_finds_it_on_the_side_of_its_end(
    seed: int, log: bool
) -> None:
    """However large leads are, and whichever of the two is called the first."""
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.uniform(0.5, 2, 6))
    mean = rng.normal(0, 0.01, 6)
    ends = {"mean": mean, "low": mean - rng.uniform(0, 0.02, 6), "high": mean + 0.008}
    at = (np.log if log else np.asarray)(values)
    grid = np.linspace(at[0], at[-1], 40_001)

    def turn(end: str, sign: int) -> float | None:
        ahead = sign * np.interp(grid, at, ends[end]) > 0
        if ahead[0] == ahead[-1]:
            return None
        found = grid[np.flatnonzero(ahead != ahead[-1])[-1]]
        return float(np.exp(found) if log else found)

    def near(value: float | None) -> Any:
        return None if value is None else pytest.approx(value, rel=1e-3)

    for factor in (1, 300, -1, -300):
        sign = 1 if factor > 0 else -1
        low, high = ("low", "high")[::sign]
        leads = {v: Interval(*(factor * ends[name][n] for name in ("mean", low, high)), 3)
                 for n, v in enumerate(values.tolist())}  # fmt: skip
        found, beside = crossing_of(leads, log), edge(leads, log)
        assert (found is None) == (turn("mean", 1) is None)
        if found is not None:
            falls = sign * mean[0] > 0
            begin, end = (low, high) if falls else (high, low)
            assert (found.at, found.falls) == (near(turn("mean", 1)), falls)
            assert (found.low, found.high) == (near(turn(begin, 1)), near(turn(end, 1)))
        first = next(((name, ahead) for name, ahead in ((low, True), (high, False))
                      if turn(name, 1) is not None), None)  # fmt: skip
        assert (beside is None) == (first is None)
        if beside is not None and first is not None:
            name, ahead = first
            above = (sign * ends[name][-1] > 0) == ahead
            assert (beside.at, beside.above, beside.ahead) == (near(turn(name, 1)), above, ahead)
        for value in np.delete(grid, slice(0, None, 2))[::4001]:
            lowest, highest = (factor * np.interp(value, at, ends[name]) for name in (low, high))
            told = sure(leads, float(np.exp(value) if log else value), log)
            assert told == (lowest > 0 or highest < 0)


HALVINGS = 6
NOISE = (0.98, 1.0, 1.03)
"""Factor of the ratio in each replication."""


def number(text: Any) -> float:
    return float(str(text).removesuffix("ns"))


def planted(task: Task, at: float = 700.0, noise: tuple[float, ...] = NOISE) -> dict[str, Any]:
    """paged / static is (at / cost) ** 0.2 over the descriptor cost, 2 at 0.2 of the cost without a
    channel hash."""
    spec = task.experiment
    dma = spec.device_set.get("dma", {})
    ratio = (at / number(dma.get("descriptor_cost", "100ns"))) ** 0.2
    if spec.device_set.get("channel_hash") == "none":
        ratio = 2.0
    ours = spec.serving.policy.name == "paged"
    rate = 100.0 * (ratio * noise[task.replication - 1] if ours else 1.0)
    return {"output_tokens_per_s": rate, "finished": 120, "preemptions": 100,
            "limit_share": {"kv_memory": 1.0}}  # fmt: skip


def run(path: Path, monkeypatch: pytest.MonkeyPatch, *more: str, **changes: Any) -> Report:
    """A run whose results are planted."""
    measuring(monkeypatch, partial(planted, **changes))
    run_sweep(load_sweep("smoke", [*SETS, *more]), path, False, 1, QUIET)
    return read_report(path)


def of(report: Report, name: str) -> Crossed:
    (search,) = report.findings.own.searches
    return next(each for each in search.numbers if each.name == name)  # type: ignore[no-any-return]


def curve(parameter: Parameter, answer: Any) -> dict[Any, Interval]:
    """Everything that a parameter asks for, answered by `answer` of the number."""
    found: dict[Any, Interval] = {}
    for _ in range(100):
        asked = parameter.sought(found)
        if not asked:
            return found
        assert not set(asked) & set(found)
        found |= {value: answer(number(value)) for value in asked}
    raise AssertionError("it never ends")


def test_each_case_has_a_search_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        "variants.hashed={set: {device_set.channel_hash: rotate}, role: case}",
        "variants.plain={set: {device_set.channel_hash: none}, role: case}",
        f"crossing={{cost: {COST}, limit of static: {LIMIT}}}",
    ]
    report = run(tmp_path / "run", monkeypatch, *cases)
    assert report.table.done == report.table.total
    hashed, plain = report.findings.own.searches
    assert (hashed.where, plain.where) == ("hashed", "plain")
    assert hashed.numbers[0].crossing and hashed.numbers[0].outcome == "crosses"
    assert plain.numbers[0].outcome == "no crossing"  # twice as much whatever the cost
    cost, _ = over_places([hashed, plain])
    assert [(bar.name, bar.dim) for bar in cost.bars] == [("hashed", False), ("plain", True)]
    assert 650 < cost.bars[0].value.mean < 750
    assert cost.bars[1].value.mean == 10240
    unfit = [replace(each, numbers=[replace(each.numbers[0], answers={}, unfit=("10ns",))])
             for each in (hashed, plain)]  # fmt: skip
    assert not [*over_places(unfit)]  # a chart of nothing is none


@pytest.mark.parametrize("at", [10.5, 77.0, 700.0, 9999.0])
@pytest.mark.parametrize("rises", [False, True])
def test_bisection_finds_a_planted_crossing(at: float, rises: bool) -> None:
    parameter = Parameter(path="x", why="y", range=[10, 10240], unit="ns", log=True)
    sign = 1 if rises else -1

    def answer(cost: float) -> Interval:
        mean = sign * math.log(cost / at)
        return Interval(mean, mean - 0.5, mean + 0.5, 5)

    found = curve(parameter, answer)
    crosses = crossing_of(parameter.leads(found), True)
    assert crosses is not None and crosses.at == pytest.approx(at, rel=0.01)
    assert crosses.falls != rises
    assert len(found) <= 2 + 3 * HALVINGS


def test_an_open_end_is_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = run(tmp_path / "run", monkeypatch, at=10400.0)
    found = of(table, "cost")  # 1.006 at its most, within the noise
    assert found.outcome == "undecided" and found.ends["at 10240ns"].sign == 0
    assert found.edge is not None and found.edge.ahead and not found.edge.above
    logs = [math.log(factor) for factor in NOISE]
    mean = sum(logs) / 3
    half = 4.302653 * math.sqrt(sum((x - mean) ** 2 for x in logs) / 2 / 3)
    truth = 10400 * math.exp(5 * (mean - half))
    assert truth / 1024 ** (2**-HALVINGS) <= number(found.edge.at) <= truth * 1.01
    wide = run(tmp_path / "wide", monkeypatch, noise=(0.1, 1.0, 10.0))
    crossing = of(wide, "cost").crossing
    assert crossing is not None and (crossing.low, crossing.high) == (None, None)


@pytest.mark.long
def test_workers_do_not_change_a_search_and_every_rate_is_kept(tmp_path: Path) -> None:
    load = "load={relative: 1.5, of: best}"
    sets = [*SETS, "replications=2", "requests=30", load, "serving.memory={efficiency: 0.8}"]
    one, two = tmp_path / "one", tmp_path / "two"
    for path, jobs in ((one, 1), (two, 2)):
        run_sweep(load_sweep("smoke", sets), path, False, jobs, QUIET)
    assert results(one) == results(two)
    table = read_report(one).table
    assert table.done == table.total == len(results(one))
    again = load_sweep(str(one / "config.yaml"))
    run_sweep(again, tmp_path / "again", False, 1, QUIET)
    assert results(tmp_path / "again") == results(one)


def test_a_failure_ends_the_search_until_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "whole", monkeypatch)

    def fails(task: Task) -> dict[str, Any]:
        if task.experiment.device_set.get("channel_hash") == "none" and task.replication == 2:
            raise ZeroDivisionError("by hand")
        return planted(task)

    measuring(monkeypatch, fails)
    monkeypatch.setattr(run_module, "rehearse", lambda *given: None)
    sweep = load_sweep("smoke", SETS)
    done = run_sweep(sweep, tmp_path / "run", False, 1, QUIET)
    assert len(done.failures) == 2 and len(done.records) == 4 * 2 * 3 - 2
    report = read_report(tmp_path / "run")
    assert of(report, "hash").outcome == "unfinished"
    assert report.table.done < report.table.total
    measuring(monkeypatch, planted)
    run_sweep(load_sweep("smoke", SETS), tmp_path / "run", True, 1, QUIET)
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_results_of_another_search_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "run", monkeypatch)
    file = tmp_path / "run/results.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    for record in records:
        if record["point"] == 8:
            record["overrides"]["value"] = "1ns"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(Exception, match="cannot resume: point 8 is cost, 1ns, paged there and"):
        run_sweep(load_sweep("smoke", SETS), tmp_path / "run", True, 1, QUIET)


MAPS = ["rule=crossing", "crossing={maps: {variants: plausible, why: x}}"]


def test_whole_numbers_end_where_nothing_lies_between() -> None:
    parameter = Parameter(path="x", why="y", range=[1, 8])
    found = curve(parameter, lambda n: Interval(n - 5.5, n - 5.5, n - 5.5, 3))
    assert set(found) <= set(range(1, 9)) and {5, 6} <= set(found)


def test_no_crossing_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = run(tmp_path / "run", monkeypatch, at=1e6)
    found = of(table, "cost")
    assert (found.outcome, found.crossing, len(found.answers)) == ("no crossing", None, 2)
    assert math.exp(found.ends["as described"].mean) == pytest.approx(6.33, abs=0.01)
    assert len(RunDirectory(tmp_path / "run").records()) == 4 * 2 * 3


def test_another_ratio_may_be_sought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = run(tmp_path / "run", monkeypatch, "crossing.cost.ratio=0.8")
    crossing = of(table, "cost").crossing
    assert crossing is not None
    assert number(crossing.at) == pytest.approx(700 * 0.8**-5 * 1.0094**5, rel=0.1)


def test_both_ends_on_one_side_and_the_described_value_on_the_other_is_a_turn() -> None:
    parameter = Parameter(path="x", why="y", range=[1, 2])
    found = {1: Interval(0.2, 0.1, 0.3, 3), 2: Interval(0.2, 0.1, 0.3, 3)}
    bases = {"no crossing": (0.05, 0.2), "crosses": (-0.2, -0.05), "undecided": (-0.2, 0.3)}
    for outcome, (low, high) in bases.items():
        base = Interval((low + high) / 2, low, high, 3)
        assert Crossed("x", parameter, found, base).outcome == outcome


def test_each_place_has_its_own_search_and_only_the_one_that_has_it_is_changed() -> None:
    sets = [*SETS, "axes.device_set.dma.window=[8KiB, 16KiB]"]
    sets[1] = (
        "crossing={block: {path: serving.policy.block, range: [8, 32], of: paged, why: x, "
        "set: {serving.policy.watermark: 0.02}}}"
    )
    points = load_sweep("smoke", sets).points
    assert [p.overrides["parameter"] for p in points] == ["as described"] * 4 + ["block"] * 4
    for point in points[4:]:
        assert point.overrides["serving.policy"] == "paged"  # static is as described
        policy = point.experiment.serving.policy.model_dump()  # type: ignore[attr-defined]
        assert policy["block"] == point.overrides["value"]
        window = {"window": point.overrides["device_set.dma.window"]}
        assert policy["watermark"] == 0.02
        assert point.experiment.device_set == {"dma": window}


def test_the_shipped_searches_have_reasons() -> None:
    for name in ("break-even-mlu370-x4", RESULTS / "break-even-kv-mlu370-x4.yaml"):
        sweep = load_sweep(name)
        assert isinstance(sweep.spec, CrossingSpec)
        assert all(parameter.why for parameter in sweep.spec.crossing.values())
        assert sweep.points[0].experiment.replications >= 5


def test_the_plausible_variants_of_the_device_are_choices() -> None:
    """Each is laid over what axes and base set; a100-80gb has its own."""
    more = ["crossing.maps.variants=plausible", "axes.device_set.dma.window=[8KiB]"]
    sweep = load_sweep("smoke", [*MAPS, *SETS[2:], *more, "device_set={capacity: 20GiB}"])
    choices = sweep.config["crossing"]["maps"]["variants"]
    assert choices["8-bank mode"] == {"set": {"device_set.memory": "lpddr5-6400-x16-8b"}}
    mode, *_ = [p for p in sweep.points if p.overrides.get("value") == "8-bank mode"]
    assert mode.experiment.device_set == {
        "capacity": "20GiB", "dma": {"window": "8KiB"}, "memory": "lpddr5-6400-x16-8b",
    }  # fmt: skip
    other = load_sweep("smoke", [*MAPS, *SETS[2:], "device=a100-80gb"])
    assert "queues of 128" in other.config["crossing"]["maps"]["variants"]
