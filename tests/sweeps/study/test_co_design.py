"""Studies of a mix, with costs, and trials that a short window prunes."""

from __future__ import annotations

from pathlib import Path

from sweeps.study.study_spec import load_study
from tests.sweeps.study.studies import results, run, tiny

MIX = [
    "base.load=null", "base.arrivals={process: all_at_once}", "replications=2",
    "mix=[{workload: r1-reasoning}, {workload: sharegpt, seed: 3}]",
]  # fmt: skip
HALVING = "halving=[{set: {requests: 10}, keep: 0.5}, {keep: 1}]"


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
