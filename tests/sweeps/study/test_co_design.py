"""Studies of a mix, with costs, and trials that a short window prunes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.study.study_spec import load_study
from tests.sweeps.study.studies import BARE, results, run, tiny

MIX = [
    "base.load=null", "base.arrivals={process: all_at_once}", "replications=2",
    "mix=[{workload: r1-reasoning}, {workload: sharegpt, seed: 3}]",
]  # fmt: skip
HALVING = "halving=[{set: {requests: 10}, keep: 0.5}, {keep: 1}]"


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["mix=[{modle: qwen3-8b}]"], "did you mean"),
        (["mix=[{model: qwen3-8bb}]"], "no shipped model|did you mean"),
        (["base.arrivals={process: poisson}", "base.load={relative: 1.5}"], "no common load"),
        (["costs={device_set.memory: {hbm3-6.4: 1}}"], "expected a choice of the space"),
        (
            [
                "space={device_set.controller.read_queue: {choice: [32, 64]}}",
                "first=[]",
                "memory=sampled",
                "costs={device_set.controller.read_queue: {32: 0, 64: 1}}",
            ],
            "states none of these.*base: {device_set: {controller: {read_queue: 32}}}",
        ),
        (["halving=[{set: {requests: 10}, keep: 2}]"], "less than or equal to 1"),
        (["halving=[{set: {reqests: 10}}]"], "did you mean"),
    ],
)
def test_a_mistake_is_answered(sets: list[str], said: str) -> None:
    with pytest.raises(DescriptionError, match=said):
        load_study("quick", [*BARE, *MIX, *sets])


def test_costs_name_every_choice() -> None:
    missing = ["costs={device_set.memory: {lpddr5-6400-x16: 1}}"]
    with pytest.raises(DescriptionError, match="expected a cost of each of"):
        load_study("co-design", missing)


def test_the_cost_of_a_point_is_the_sum_over_its_choices_and_the_base_s() -> None:
    study = load_study("co-design")
    assert study.cost({}) == {"cost": 1}
    wide = {"device_set.dma.window": "64KiB", "device_set.memory": "lpddr5x-9600-x16"}
    assert study.cost(wide)["cost"] == pytest.approx(1.33)


def test_replications_serve_the_members_of_a_mix_in_turn_and_the_finale_its_own() -> None:
    study = load_study("co-design")
    named = [study.served({}, r).workload for r in range(1, 6)]
    assert named == ["sharegpt", "r1-reasoning", "azure-conv", "alpaca", "azure-conv"]


def test_a_short_window_keeps_half_of_a_batch_and_an_interruption_changes_nothing(
    tmp_path: Path,
) -> None:
    study = tiny(*MIX, HALVING, "trials=8", "batch=4", "first=[base]")
    run(study, tmp_path / "run")
    found = results(tmp_path / "run")
    pruned = [r["trial"] for r in found if r["state"] == "pruned"]
    assert [sum(number // 4 == batch for number in pruned) in (1, 2) for batch in (0, 1)]
    assert len(pruned) >= 3 and 0 not in pruned  # the base goes on in any case
    assert all(r["short"] for r in found if r["state"] != "failed")  # all served the first rung
    assert all(r["rung"] == 1 for r in found if r["trial"] in pruned)
    again = tmp_path / "again"
    run(tiny(*MIX, HALVING, "trials=4", "batch=4", "first=[base]"), again)
    run(study, again, resume=True)
    assert results(again) == found
