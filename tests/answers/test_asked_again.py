"""Is each answer that rests on many runs the same when it is asked by another command, or by
hand?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import bankwise
from hwmodel.measure.bandwidth import measure as pattern_of
from hwmodel.specs.device import load_device
from policies.allocators.paged import PagedOptions
from sweeps.ask.size import SizeQuestion
from sweeps.ask.sizing import answer
from sweeps.ask.sizing_runs import SizingQuestion
from sweeps.plan.experiment import Task, measure
from sweeps.study.search import rates
from sweeps.study.study_run import Workers
from sweeps.study.study_spec import Study, load_study
from tests.sweeps.study.studies import QUIET, results, run, tiny


@pytest.mark.parametrize("seed", [1, 2])
def test_a_what_if_says_of_refresh_what_memory_says(seed: int) -> None:
    """On a card of 614 GB/s, with probes shorter than a refresh interval: KV is read as much slower
    with all-bank refresh as a pattern is, and less is served."""
    kv, served, patterns = [], [], []
    for refresh in ("per_bank", "all_bank"):
        found = bankwise.simulate("smoke", set={
            "policy": "paged", "arrivals.process": "all_at_once", "load": None, "seed": seed,
            "device_set": {"channels": 48, "controller.refresh": refresh},
            "serving.memory": {"fidelity": "sampled", "probe_bytes": "1MiB", "max_probes": 6},
        })["metrics"]  # fmt: skip
        kv.append(found["memory"]["phases"]["attention"]["efficiency"])
        served.append(found["output_tokens_per_s"])
        card = load_device("mlu370-x4", ["channels=48", f"controller.refresh={refresh}"])
        patterns.append(pattern_of(card, "random_16KiB")["bandwidth_gbps"])
    assert card.peak_gbps == pytest.approx(614.4)
    said = patterns[1] / patterns[0] - 1
    assert said < -0.03 and kv[1] / kv[0] - 1 == pytest.approx(said, abs=0.02)
    assert served[1] < 0.99 * served[0]


def test_the_best_of_a_study_serves_as_much_when_it_is_served_alone(tmp_path: Path) -> None:
    study = tiny("memory=sampled")
    run(study, tmp_path / "run")
    trials = [each for each in results(tmp_path / "run") if each["state"] == "complete"]
    best = max(trials, key=lambda each: each["values"]["output_tokens_per_s"])
    (rate,) = rates(study, Workers(1), QUIET, {}, [1]).values()
    alone = measure(Task(study.experiment(best["overrides"]), 1, rate))
    assert best["values"]["output_tokens_per_s"] == alone["output_tokens_per_s"]


PRICES = {"l4": 2500.0, "rtx-4090": 1800.0}


@pytest.mark.parametrize("per_s", [6.0])
def test_the_cheapest_fleet_of_a_study_is_the_one_that_size_names(
    per_s: float, tmp_path: Path
) -> None:
    served = {"name": "paged", "block": 16}
    question = SizeQuestion.of({"model": "llama-3.2-3b", "workload": "azure-conv"})
    target = question.target_at("ttft=1s,tpot=50ms", f"{per_s}")
    wanted = target._replace(cards=1, policy=PagedOptions(block=16))
    sized = {}
    for name in PRICES:
        asked = SizingQuestion("load", wanted, load_device(name))
        most = answer(asked)
        assert most is not None
        sized[name] = answer(asked._replace(what="replicas", guess=math.ceil(per_s / most)))
    study = _fleet(per_s, served)
    run(study, tmp_path / "run")
    fleets: dict[str, int] = {}
    for each in results(tmp_path / "run"):
        if each["state"] == "complete" and max(each["constraints"].values()) <= 0:
            device = each["overrides"].get("device", "l4")
            cards = each["overrides"]["serving.cluster.cards"]
            fleets[device] = min(cards, fleets.get(device, cards))
    assert fleets.keys() == PRICES.keys()
    for name, cards in fleets.items():
        assert abs(cards - (sized[name] or 0)) <= 1
    cheapest = [min(each, key=lambda name, each=each: each[name] * PRICES[name])
                for each in (fleets, sized)]  # fmt: skip
    assert cheapest[0] == cheapest[1]


def _fleet(per_s: float, policy: dict[str, Any]) -> Study:
    """A study of fleets whose servers are those that `size` takes."""
    return load_study({
        "kind": "study", "name": "fleets", "summary": "one rival, two devices",
        "base": {
            "device": "l4", "model": "llama-3.2-3b", "workload": "azure-conv",
            "serving": {
                "cluster": {"cards": 3, "placement": "least_requests"},
                "memory": {"fidelity": "analytic"}, "policy": policy,
            },
            "load": {"rate_per_s": per_s}, "slo": {"ttft": "1s", "tpot": "50ms"},
            "warmup_requests": 50, "requests": 400, "replications": 2, "seed": 1,
        },
        "space": {"device": {"choice": [*PRICES]}},
        "fleet": {"most": 16, "cost": "price", "card_costs": PRICES,
                  "rivals": {"paged": {"set": {"serving.policy": policy}}}},
        "objectives": [{"metric": "cost", "direction": "minimize"}],
        "constraints": [{"metric": "slo.attainment", "at_least": 0.9}],
        "memory": "sampled", "trials": 4, "batch": 2, "sampler": {"name": "random"},
    })  # fmt: skip
