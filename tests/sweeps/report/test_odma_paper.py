"""Does the ODMA paper's table follow its protocol, and do its findings follow the results?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from policies.memory.fidelity import FidelitySpec
from policies.serving import calibration
from sweeps.analyse.statistics import Interval
from sweeps.analyse.table import Row
from sweeps.plan import odma_paper
from sweeps.plan.experiment import Task, seed_of
from sweeps.plan.odma_paper import EVALUATION_SEED, OdmaPaperSpec, measure, solve
from sweeps.plan.paper_findings import (
    GAIN,
    AssumptionCase,
    DatasetResult,
    MapCell,
    placement,
)
from sweeps.plan.sweep import load_sweep
from sweeps.report import paper_sentences
from sweeps.report.contents import Report, read_report
from sweeps.run.progress import Progress
from sweeps.run.sweep_run import run_sweep
from tests.sweeps.cli.test_mistakes import ROOT
from tests.sweeps.made import measuring

SMALL = ["requests=60", "warmup_requests=20", "replications=2"]


def experiment(*overrides: str, name: str = "centre") -> OdmaPaperSpec:
    points = load_sweep("odma-paper", [*SMALL, *overrides]).points
    found = next(p.experiment for p in points if p.experiment.assumption.name == name)  # type: ignore[attr-defined]
    assert isinstance(found, OdmaPaperSpec)
    return found


def test_evaluation_never_touches_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    plain = calibration.draw

    def spied(
        prompts: Any, shape: Any, count: int, seed: tuple[int, ...]
    ) -> calibration.LengthDraw:
        seen.append(seed[1])
        return plain(prompts, shape, count, seed)

    monkeypatch.setattr(calibration, "draw", spied)
    spec = experiment()
    solve(spec)
    assert seen == list(range(10))
    seen.clear()
    monkeypatch.setattr(odma_paper, "solve", lambda spec: pytest.fail("solved again"))
    assert [seed_of(spec, r) for r in (1, 10)] == [(1, EVALUATION_SEED), (1, EVALUATION_SEED + 9)]
    assert max(odma_paper.CALIBRATION_SEEDS) < EVALUATION_SEED


def test_another_evaluation_seed_changes_no_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (measure(Task(experiment(), r, None)) for r in (1, 2))
    for key in ("scale", "spread", "calibrated", "capacity_per_s"):
        assert first[key] == second[key]
    assert first["utilization"] != second["utilization"]
    monkeypatch.setattr(odma_paper, "EVALUATION_SEED", 500)
    third = measure(Task(experiment(), 1, None))
    assert third["scale"] == first["scale"] and third["spread"] == first["spread"]
    assert third["utilization"] != first["utilization"]


def test_what_is_served_has_the_static_utilization_that_was_solved_for() -> None:
    found = measure(Task(experiment("requests=600", "warmup_requests=0"), 1, None))
    assert found["calibrated"]["static_utilization"] == pytest.approx(0.5505, abs=0.002)
    assert found["calibrated"]["reached"] == 1
    # other requests of the same law
    assert found["utilization"]["static"] == pytest.approx(0.5505, abs=0.05)
    assert found["s3_accuracy"] == pytest.approx(0.986, abs=0.015)


def test_four_cards_take_four_times_the_requests() -> None:
    cards = "axes.assumption=[{name: centre, cards: 4}]"
    one, four = (measure(Task(experiment(*more), 1, None)) for more in ([], [cards]))
    assert four["capacity_per_s"] == pytest.approx(4 * one["capacity_per_s"], rel=0.2)
    assert four["throughput"]["static"] == pytest.approx(4 * one["throughput"]["static"], rel=0.2)


CASES = (
    "axes.assumption=[{name: centre}, {name: arena, odma: {space: arena}}, "
    "{name: load 0.6, load: 0.6}, {name: even 1024, shape: lognormal-0.2, limit: 1024}, "
    "{name: even, shape: lognormal-0.2}, {name: uneven, shape: lognormal-0.8}]"
)
GAINS = {"centre": 0.20, "arena": -0.30, "load 0.6": 0.02, "even 1024": 0.75, "even": 0.23,
         "uneven": 0.60}  # fmt: skip
"""What odma gains over static under each assumption; half of it on the second data set."""


def planted(task: Any) -> dict[str, Any]:
    spec, noise = task.experiment, (0.99, 1.0, 1.01)[task.replication - 1]
    gain = GAINS[spec.assumption.name] * noise / (1 + (spec.dataset.name != "alpaca"))
    return {
        "calibrated": {"static_utilization": 0.55, "s3_accuracy": 0.98, "reached": 1.0},
        "throughput": {"odma": 100 * (1 + gain), "static": 100.0, "paged": 150.0 * noise},
        "utilization": {"odma": 0.55 + gain / 2, "static": 0.55}, "accuracy": 0.985 * noise,
        "batch": {"odma": 30.0, "static": 20.0, "paged": 40.0}, "coverage_final": 0.9,
        "migrations": 0.01, "throughput_gain": gain,
    }  # fmt: skip


def planted_paper(path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    measuring(monkeypatch, planted)
    sweep = load_sweep("odma-paper", ["replications=3", CASES])
    run_sweep(sweep, path, False, 1, Progress(terminal=False))
    return read_report(path)


def test_the_map_names_the_shapes_and_limits_where_the_figures_are_met() -> None:
    def exactly(value: float) -> Interval:
        return Interval(value, value, value, 5)

    paper = {"utilization.odma": 0.72, "throughput_gain": 0.23}
    cells = [
        MapCell(0.2, 1024, {"utilization.odma": exactly(0.75), "throughput_gain": exactly(0.228)}),
        MapCell(0.4, 2048, {"utilization.odma": exactly(0.721), "throughput_gain": exactly(0.1)}),
    ]
    assert [cell.meets(paper) for cell in cells] == [["throughput_gain"], ["utilization.odma"]]


def test_the_paper_lies_inside_at_the_edge_or_outside() -> None:
    def case(name: str, values: list[float]) -> AssumptionCase:
        row = Row(name, "", {r: {"accuracy": value} for r, value in enumerate(values, 1)})
        return AssumptionCase({"name": name}, row)

    def place(paper: float, grid: list[AssumptionCase]) -> str:
        return placement(paper, "accuracy", "accuracy", grid).place

    grid = [case("low", [0.70, 0.72]), case("high", [0.79, 0.81])]  # means 0.71 and 0.80
    assert place(0.75, grid) == "inside"
    # 0.80 with t(1) = 12.7 on a deviation of 0.01 over sqrt 2 has an interval of 0.127
    assert place(0.85, grid) == "edge"
    assert place(0.95, grid) == "outside"
    assert place(0.85, [case("one", [0.8])]) == "not told by one replication"
    high = [case("high", [0.95, 0.99])]  # its interval ends at 1.22 before it is cut
    centre = placement(0.9, "accuracy", "accuracy", high).centre
    assert centre is not None and centre.high == 1.0


def test_does_one_replication_say_that_it_cannot_tell() -> None:
    def met(values: list[float]) -> list[str]:
        row = Row("odma", "", {r: {GAIN: v} for r, v in enumerate(values, 1)})
        case = AssumptionCase({"name": "centre"}, row)
        placed = placement(0.23, GAIN, "gain", [case])
        cell = MapCell(0.4, 2048, {GAIN: case.interval(GAIN)})
        return list(
            paper_sentences.paper([DatasetResult("a", 0.23, [placed], [cell], {GAIN: 0.23})])
        )

    assert "All figures together are met at 1 of 1 length" in met([0.22, 0.23, 0.24])[1]
    assert met([0.23])[1] == (
        "One replication cannot tell which of the paper's figures are met: run three or more."
    )


def test_another_policy_stands_beside_the_papers_own() -> None:
    served = {r: {"throughput.odma": 100.0 * r, "throughput.paged": 150.0 * r} for r in (1, 2, 3)}
    found = AssumptionCase({"name": "centre"}, Row("lpddr", "", served))
    assert found.name == "centre, lpddr"
    over = found.over_odma()
    assert list(over) == ["paged"] and over["paged"].mean == pytest.approx(math.log(1.5))


@pytest.mark.long
def test_the_shipped_sweep_serves_the_same_requests_on_every_card() -> None:
    points = load_sweep(
        ROOT / "docs/release/odma-paper-paged.yaml", ["requests=60", "warmup_requests=20"]
    ).points
    centre = [p.experiment for p in points if p.experiment.assumption.name == "centre"]  # type: ignore[attr-defined]
    memory = {"memory": FidelitySpec(fidelity="analytic")}
    specs = [
        each.model_copy(update={"serving": each.serving.model_copy(update=memory)})  # type: ignore[attr-defined]
        for each in centre[:2]
    ]
    found = []
    for spec in specs:
        assert isinstance(spec, OdmaPaperSpec)
        found.append(measure(Task(spec, 1, None)))
    assert [each["card"]["peak_gbps"] for each in found] == pytest.approx([307.2, 614.4])
    for each in found:
        assert list(each["throughput"]) == ["odma", "static", "odma in hard pools", "paged"]
    for key in ("scale", "spread", "accuracy"):
        assert found[0][key] == found[1][key]
    assert found[1]["throughput"]["static"] > 1.5 * found[0]["throughput"]["static"]
