"""Is the cheapest fleet found, each rival tuned by as many trials, and no size a matter of luck?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.plan.bisection import least
from sweeps.plan.experiment import Task
from sweeps.report.contents import read_report
from sweeps.study import fleet_size, search, study_run
from sweeps.study.fleet_size import CARDS
from sweeps.study.study_spec import load_study
from tests.sweeps.study.studies import results, run

NAME = "cheapest-fleet"
NEEDED = {"paged": 10, "odma": 12, "static": 15}
"""Cards of an l4; of an rtx-4090 half as many."""


def served(task: Task) -> dict[str, Any]:
    """What an oracle says of a fleet: three of four attain it with a card too few; requests that
    the search has not seen take one more."""
    serving = task.experiment.serving
    needed = NEEDED[serving.policy.name] + (task.replication > 1)
    if task.experiment.device == "rtx-4090":
        needed = -(-needed // 2)
    enough = serving.cluster.cards >= needed
    return {"slo": {"attainment": 1.0 if enough else 0.75}, "output_tokens_per_s": 1.0}


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_size, "measure", served)
    monkeypatch.setattr(search, "rehearse_study", lambda *_: None)
    monkeypatch.setattr(study_run, "measure", lambda task: (
        served(task) if hasattr(task.experiment, "serving") else task.experiment.measure(task)
    ))  # fmt: skip


def test_the_least_is_found_from_any_guess() -> None:
    for most in (1, 2, 7, 16):
        for true in range(1, most + 2):
            for guess in range(most + 3):
                asked: list[int] = []

                def meets(n: int, true: int = true, asked: list[int] = asked) -> bool:
                    asked.append(n)
                    return n >= true

                assert least(meets, 1, most, guess) == (true if true <= most else None)
                assert len(set(asked)) == len(asked) and all(1 <= n <= most for n in asked)


def test_the_cheapest_rival_wins_and_each_is_tuned_by_as_many_trials(
    oracle: None, tmp_path: Path
) -> None:
    """Half as many cards of six times the watts are dearer: l4 wins, with one card more than the
    search saw, since its size is confirmed on other requests."""
    study = load_study(NAME, ["trials=15", "batch=6", "finale={choose: 1, replications: 2}"])
    done = run(study, tmp_path / "run")
    found = results(tmp_path / "run")
    names = [each["rival"] for each in found]
    assert names == ["paged", "odma", "static"] * 5
    assert [each["first"] for each in found[:4]] == ["paged", "odma", "static", None]
    best = {each["rival"]: 72 * NEEDED[each["rival"]] for each in found}  # of the first batch
    for each in found:
        if each["trial"] >= 6 and max(each["constraints"].values()) > 0:
            fewest = each["overrides"][CARDS] == fleet_size.FEWEST
            assert fewest or each["values"]["cost"] <= best[each["rival"]]  # more was not tried
            continue
        halves = {"l4": 1, "rtx-4090": 2, "a100-80gb": 1}[each["overrides"]["device"]]
        assert each["overrides"][CARDS] == -(-NEEDED[each["rival"]] // halves)
    assert done.finale is not None
    metrics = done.finale.best.metrics[done.finale.judging[0]]
    assert done.finale.best.overrides["device"] == "l4" and metrics["cards"] == 11
    assert metrics["cost"] == 11 * 72 and metrics["slo.attainment"] == 1.0
    others = {each.name.split(" ")[0]: each.overrides[CARDS] for each in done.finale.others}
    assert others == {"base": 11, "odma": 13, "static": 16}
    said = " ".join(read_report(tmp_path / "run").sentences)
    trial = done.finale.best.name
    assert f"paged ({trial}) on l4, 11 cards (792 W); on 2 replications not used" in said
    assert "slo.attainment 1.000 (1.000 to 1.000)" in said
    assert "takes 13 cards and costs +18 %" in said and "takes 16 cards and costs +45 %" in said


def test_every_rival_tries_the_device_and_router_of_the_best(oracle: None, tmp_path: Path) -> None:
    run(load_study(NAME, ["trials=24", "batch=6", "finale=null"]), tmp_path / "run")
    found = results(tmp_path / "run")
    shared = load_study(NAME).space.parameters
    for begin in (6, 12, 18):
        kept = [r for r in found[:begin] if max(r["constraints"].values()) <= 0]
        best = min(kept, key=lambda each: (each["values"]["cost"], each["trial"]))
        wanted = {path: best["overrides"][path] for path in shared}
        tried = [r for r in found[: begin + 6] if wanted.items() <= r["overrides"].items()]
        assert {each["rival"] for each in tried} == {"paged", "odma", "static"}


def test_no_rival_loses_by_a_device_that_it_did_not_draw(oracle: None, tmp_path: Path) -> None:
    """The last trial, of paged, is the first on the cheapest device; others get it later."""
    sets = ["trials=4", "batch=4", "fleet.card_costs={rtx-4090: 10}", "sampler.seed=5"]
    done = run(load_study(NAME, [*sets, "finale={choose: 1, replications: 2}"]), tmp_path / "run")
    assert done.finale is not None and done.finale.best.name == "trial 3"
    others = {each.name: each.overrides.get(CARDS) for each in done.finale.others}
    assert others == {"base": 11, "trial 3 as odma": 7, "trial 3 as static": 8}


def test_an_interrupted_study_comes_to_the_same(oracle: None, tmp_path: Path) -> None:
    whole = load_study(NAME, ["trials=9", "batch=3", "finale=null"])
    run(whole, tmp_path / "whole")
    run(load_study(NAME, ["trials=5", "batch=3", "finale=null"]), tmp_path / "parts")
    run(whole, tmp_path / "parts", resume=True)
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


def test_a_cost_is_of_every_device_of_a_replica() -> None:
    twice = {"serving.tensor_parallel": 2, CARDS: 5}
    assert load_study(NAME).cost(twice) == {"cost": 720, "cards": 10}
    given = load_study(NAME, ["fleet.cost=watts", "fleet.card_costs={l4: 100}"])
    assert given.cost(twice)["cost"] == 1000
    assert load_study(NAME, ["fleet.cost=cards"]).cost(twice)["cost"] == 10
