"""Does every policy declare what it loses, and is one that does not told so?"""

from __future__ import annotations

from abc import ABC
from typing import Any, Literal

import pytest

from hwmodel.description.description import DescriptionError
from policies.allocators import capabilities
from policies.allocators.allocator import Allocator, Demand
from policies.allocators.capabilities import Contiguous, Migrates, OnDemand, offers
from policies.allocators.declaration import DECLARED, Range, References
from policies.allocators.losses import GROWING, PREDICTION, RESERVING
from policies.allocators.registry import POLICIES, policy_class, predicts, refusal
from policies.allocators.static import StaticAllocator, StaticOptions
from policies.predictors.lognormal_predictor import LognormalPredictor
from policies.predictors.oracle_predictor import OraclePredictor
from sweeps.plan.counterfactual import chain, losses
from sweeps.plan.experiment import ExperimentSpec
from sweeps.plan.sweep import load_sweep
from sweeps.study.study_spec import load_study
from tests.policies.allocators.plugin import PluginAllocator
from tests.policies.allocators.settings import build


class Asked:
    """A prediction that notes whether anyone reads it."""

    read = False

    def __getattr__(self, name: str) -> Any:
        self.read = True
        return 10.0 if name in ("length", "spread") else lambda *_: 0.5


class GuessingOptions(StaticOptions):
    name: Literal["guessing"] = "guessing"  # type: ignore[assignment]
    margin: float = 0.1


class GuessingAllocator(StaticAllocator):
    """Reserves the predicted length and a margin, or the worst case when preempted."""

    Options = GuessingOptions
    options: GuessingOptions  # type: ignore[assignment]

    def size(self, request: int, demand: Demand) -> int:
        worst = super().size(request, demand)
        if demand.generated:
            return worst
        length = int(demand.prediction.length * (1 + self.options.margin)) + 1
        return min(int(self.slots_for(demand.prompt + length)), worst)


class DeclaredAllocator(GuessingAllocator):
    losses = {**RESERVING, "prediction": PREDICTION}
    searched = {"margin": Range(0, 2)}
    references = References(("static",), ceilings=("oracle",))


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_declares_as_it_is(name: str) -> None:
    options = POLICIES[name].Options(name=name)
    kind = policy_class(options)
    assert kind.searched.keys() <= kind.Options.model_fields.keys()
    assert kind.published.keys() <= kind.Options.model_fields.keys()
    for key, range_ in kind.searched.items():
        default = kind.Options.model_fields[key].default
        if isinstance(range_, Range) and isinstance(default, int | float):
            assert range_.least <= default <= range_.most, key
    assert {*kind.references.rivals, *kind.references.ceilings} <= POLICIES.keys() - {name}
    assert ("recompute" in kind.losses) == offers(kind, OnDemand)
    assert ("held" in kind.losses) == offers(kind, Contiguous)
    if offers(kind, Migrates):
        assert kind.losses["copies"].applies(options)


@pytest.mark.parametrize("kind", [*POLICIES.values(), DeclaredAllocator])
def test_it_declares_mispredictions_where_it_reads_predictions(
    kind: type[Allocator], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = kind.Options.model_fields["name"].default
    monkeypatch.setitem(POLICIES, name, kind)
    asked: Any = Asked()
    allocator = build(kind.Options(name=name))
    assert allocator.reserve(0, Demand(20, 0, asked, output=30), 20)
    assert asked.read == ("prediction" in kind.losses)


def guessing(**serving: Any) -> ExperimentSpec:
    point = load_sweep("quickstart", ["axes.device=[a100-80gb]"])
    found: Any = point.points[0].experiment
    given = {"policy": GuessingOptions(fit="best"), **serving}
    experiment: ExperimentSpec = found.model_copy(
        update={"serving": found.serving.model_copy(update=given)}
    )
    return experiment


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "guessing", DeclaredAllocator)


@pytest.mark.usefixtures("registered")
def test_a_new_predicting_allocator_gets_its_causes() -> None:
    unsure = LognormalPredictor(sigma=0.4)
    experiment = guessing(predictor=unsure)
    forward, reverse = chain(experiment), chain(experiment, reverse=True)
    names = ("layout", "prediction", "reservation", "holes", "line", "held")
    assert forward[-1].removed == names
    assert reverse[-1].removed == ("layout", *names[3:0:-1], *names[:3:-1])
    served = [state.experiment.serving for state in forward]
    assert [s.predictor.kind for s in served[1:3]] == ["lognormal", "oracle"]
    assert [s.policy.name for s in served] == ["guessing"] * 3 + ["oracle"] * 2 + ["ideal"] * 2
    assert served[3].policy.model_dump()["fit"] == "best"
    assert "prediction" not in losses(guessing(predictor=OraclePredictor()).serving)
    copied = GuessingOptions(compaction="copied")
    assert chain(guessing(policy=copied))[-1].removed[1] == "copies"


def test_one_without_declarations_is_told_which_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "guessing", GuessingAllocator)
    with pytest.raises(DescriptionError, match=f"does not declare {', '.join(DECLARED)}"):
        chain(guessing())
    monkeypatch.setattr(GuessingAllocator, "losses", RESERVING, raising=False)
    with pytest.raises(DescriptionError, match="does not declare searched, references"):
        policy_class(GuessingOptions())
    monkeypatch.setitem(POLICIES, "plugin", PluginAllocator)
    with pytest.raises(DescriptionError, match="PluginAllocator does not declare losses"):
        policy_class(PluginAllocator.Options(name="plugin"))


def test_where_prefixes_are_copied_holes_go_with_the_reservations() -> None:
    copying = StaticOptions(prefixes="copy")
    assert chain(guessing(policy=copying))[-1].removed == ("layout", "reservation", "line", "held")


def test_what_a_study_may_search_is_declared() -> None:
    kind = POLICIES["odma"]
    assert refusal(kind, "gamma", 0.2) is None and refusal(kind, "space", "slabs") is None
    assert refusal(kind, "levels", [0.5, 0.9]) is None
    assert refusal(kind, "gamma", 11.0) == "expected gamma from 0 to 10; got 11.0"
    with pytest.raises(DescriptionError, match="OdmaAllocator declares no search of bounds"):
        load_study("quick", ["space.serving.policy.bounds={choice: [[64, 128, 256, 512]]}"])
    with pytest.raises(DescriptionError, match="expected gamma from 0 to 10; got 12"):
        load_study("quick", ["space.serving.policy.gamma={range: [0.0, 12.0]}", "first=[]"])


def test_a_study_takes_the_references_that_the_policy_declares() -> None:
    sets = ["variants=declared", "ceilings=[]"]
    study = load_study("quick", sets)
    assert [point.control for point in study.points][1:] == ["static", "paged", "oracle", "ideal"]
    assert study.spec.ceilings == ["oracle", "ideal"]
    static = ["space={serving.policy.fit: {choice: [first, best]}}", "first=[base]"]
    study = load_study("quick", [*sets, "base.serving.policy={name: static}", *static])
    assert [point.control for point in study.points][1:] == ["paged", "oracle", "ideal"]
    with pytest.raises(DescriptionError, match="paper: policy static declares no published"):
        load_study("quick", ["base.serving.policy={name: static}", *static[:1], "first=[paper]"])


def test_losses_of_growing_policies_end_at_the_ceiling() -> None:
    options = GROWING["recompute"].reference
    assert options is not None
    assert options(StaticOptions()).model_dump() == {
        "name": "ideal", "reserve": "stored", "admit_on": "input",
    }  # fmt: skip


def test_who_reads_predictions_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: kind.Options.model_validate({"name": name}) for name, kind in POLICIES.items()}
    assert {name for name, options in made.items() if predicts(options)} == {
        "odma", "odma-best", "s3",
    }  # fmt: skip
    monkeypatch.setitem(POLICIES, "guessing", GuessingAllocator)  # which declares nothing
    assert predicts(GuessingOptions())


@pytest.mark.parametrize("name", POLICIES)
def test_does_a_class_offer_what_its_allocators_can_do(name: str) -> None:
    kind = POLICIES[name]
    allocator = build(kind.Options(name=name))
    assert set(kind.members) <= {type(part) for part in allocator.has}
    known = (each for each in vars(capabilities).values() if isinstance(each, type))
    for capability in (each for each in known if each.__module__ == capabilities.__name__):
        if not issubclass(capability, ABC):
            continue
        assert offers(kind, capability) == (allocator.able(capability) is not None), capability
