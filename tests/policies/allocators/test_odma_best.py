"""Is `odma-best` what its name says: odma's mechanism, with what serves more?"""

from __future__ import annotations

import pytest

from hwmodel.description.description import DescriptionError
from policies.allocators.odma import OdmaAllocator
from policies.allocators.odma_best import OdmaBestAllocator, OdmaBestOptions
from policies.allocators.odma_options import OdmaOptions
from policies.allocators.registry import policy_class
from policies.predictors.predictor import PredictorSpec
from sweeps.plan.counterfactual import chain, losses
from sweeps.plan.experiment import Task, measure
from sweeps.plan.sweep import load_sweep
from sweeps.study.study_spec import load_study

SMALL = [
    "axes.device=[mlu370-x4]", "fidelity=analytic", "serving.memory.efficiency=1",
    "requests=100", "warmup_requests=100",
    "load=null", "arrivals={process: all_at_once}", "skip=[control, reference]",
]  # fmt: skip
CHANGED = {
    "name": "odma-best", "buckets": 32, "balance": "least_unused", "bucket_on": "total",
    "gamma": 0.0, "tau": 1.0, "space": "arena", "compaction": "copied",
    "large_full": "next_larger",
}  # fmt: skip


def test_only_these_defaults_differ() -> None:
    theirs = OdmaOptions().model_dump()
    ours = OdmaBestOptions().model_dump()
    assert {key: value for key, value in ours.items() if value != theirs[key]} == CHANGED
    assert OdmaBestAllocator.Sizes is OdmaAllocator.Sizes
    assert OdmaBestAllocator.size is OdmaAllocator.size


def test_it_serves_as_odma_with_its_options_and_more_than_odma() -> None:
    spelt = {**CHANGED, "name": "odma"}
    points = load_sweep("quickstart", [*SMALL, f"policy=[odma, odma-best, {spelt}]"]).points
    plain, best, same = (measure(Task(p.experiment, 0, None)) for p in points)  # type: ignore[arg-type]
    assert best == same
    assert best["output_tokens_per_s"] > 1.1 * plain["output_tokens_per_s"]
    assert best["migrations"] > 0, "copies are charged"


def test_its_losses_are_explained_and_its_paper_is_nobodys() -> None:
    experiment = load_sweep("quickstart", [*SMALL, "policy=[odma-best]"]).points[0].experiment
    assert isinstance(experiment.serving.predictor, PredictorSpec)  # type: ignore[attr-defined]
    assert losses(experiment.serving)  # type: ignore[attr-defined]
    assert chain(experiment)[-1].removed[:2] == ("copies", "prediction")  # type: ignore[arg-type]
    assert not policy_class(OdmaBestOptions()).published


def test_a_study_searches_what_it_is_made_of_and_compares_with_it() -> None:
    study = load_study("odma")
    searched = {path.rpartition(".")[2] for path in study.spec.space}
    assert {"levels", "space", "compaction", "gamma", "tau", "large_full"} <= searched
    assert "least_unused" in study.spec.space["serving.policy.levels"].balance
    assert not any(path.startswith("serving.predictor") for path in study.spec.space)
    policy = study.point("odma-best").experiment.serving.policy  # type: ignore[union-attr]
    assert isinstance(policy, OdmaBestOptions)
    assert study.spec.ceilings[0] == "oracle without holes"
    tuned = study.first[2]
    assert tuned.name == "odma-best"
    found = study.experiment(study.space.overrides(tuned.params)).serving.policy.model_dump()
    kept = CHANGED.keys() - {"name"}
    assert {key: found[key] for key in kept} == {key: CHANGED[key] for key in kept}
    assert found["buckets"] == 32 and found["borrow"] is None


def test_a_mistake_in_what_is_tried_first_is_said() -> None:
    with pytest.raises(DescriptionError, match="no policy is static with other defaults"):
        load_study("quick", ["first=[tuned]", "base.serving.policy={name: static}",
                             "space={serving.policy.fit: {choice: [first, best]}}"])  # fmt: skip
    with pytest.raises(DescriptionError, match="'tuned' or 'least_unused'; got 'tunned'"):
        load_study("quick", ["first=[tunned]"])
