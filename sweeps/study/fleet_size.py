"""The cheapest fleet: of each configuration the fewest cards that keep a study's constraints.

A trial draws everything but the cards. They are found by bisection on the requests of all of its
replications, from what earlier trials on the same device took: if a card more never serves less
(assumed; the noise of runs aside), no draw of theirs could do better.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError, Document, Strict
from sweeps.analyse.rows import flat
from sweeps.plan.bisection import least
from sweeps.plan.experiment import ExperimentSpec, Task, device_of, measure
from sweeps.run.sweep_run import apart
from sweeps.study.space import Overrides, ParameterSpec

CARDS = "serving.cluster.cards"
FEWEST = 2
"""Cards of a fleet."""
GUESS = 8
"""Cards that are tried first where nothing is known of the device (assumed)."""
SHORTEST_S = 20.0
"""Arrivals that last less measure how queues fill, not whether they stay short (assumed)."""
ATTAINED = "slo.attainment"


class RivalSpec(Strict):
    """One of those that are tuned by as many trials each, beside the study's own space."""

    set: dict[str, Any] = {}
    """Overrides of the base that make it; as it is then, it is its own first trial."""
    space: dict[str, ParameterSpec] = {}
    """What is searched for it alone."""


class CheapestSpec(Strict):
    """A study of the cheapest fleet that keeps the constraints."""

    rivals: Annotated[dict[str, RivalSpec], Field(min_length=1)]
    """Name -> who is tuned. Trials are theirs in turn; each has a sampler of its own."""
    most: Annotated[int, Field(ge=FEWEST, le=1024)] = 64
    """Cards that are tried at most."""
    cost: Literal["cards", "watts", "price"] = "cards"
    """What the metric `cost` counts: cards, the most that their boards draw in W, or prices."""
    card_costs: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Device -> watts or price of a card. Watts that are not here are those of its description."""


class FleetStudy(Protocol):
    """What of a study a fleet's cost and checks need."""

    @property
    def spec(self) -> Any: ...
    @property
    def document(self) -> Document: ...
    @property
    def base(self) -> ExperimentSpec: ...
    def experiment(self, overrides: Overrides) -> ExperimentSpec: ...


def cost(study: FleetStudy, overrides: Overrides) -> dict[str, float]:
    """The metrics `cost` and `cards` of a fleet: each replica is as many devices as it has stages
    and ways of tensor parallelism. Raises DescriptionError where a card's cost is not known."""
    experiment, fleet = study.experiment(overrides), study.spec.fleet
    serving = experiment.serving
    cards = serving.cluster.cards * serving.cluster.stages * serving.tensor_parallel
    name = PurePath(experiment.device).name.removesuffix(".yaml")
    each = 1.0 if fleet.cost == "cards" else fleet.card_costs.get(name)
    if each is None and fleet.cost == "watts":
        accelerator = device_of(experiment).accelerator
        if accelerator is not None and accelerator.power is not None:
            each = accelerator.power / 1e3
    if each is None:
        wanted = f"expected card_costs: {{{name}: {'W' if fleet.cost == 'watts' else 'PRICE'}}}"
        raise study.document.error(
            f"{fleet.cost} of {name}: not in its description; {wanted}", ("fleet", "cost")
        )
    return {"cost": cards * each, "cards": float(cards)}


def check(study: FleetStudy) -> None:
    """Whether the study can be one of the cheapest fleet. Raises DescriptionError."""
    spec, base, document = study.spec, study.base, study.document
    cluster = base.serving.cluster
    if cluster.fleet is None or cluster.fleet.cells > 1:
        why = "a study of fleets needs serving.cluster.fleet: {cells: 1} in its base"
        raise document.error(why, ("base", "serving", "cluster"))
    if base.load is None or base.load.rate_per_s is None:
        raise document.error("fleets of any size serve one load: expected rate_per_s",
                             ("base", "load"))  # fmt: skip
    if (lasts_s := base.requests / base.load.rate_per_s) < SHORTEST_S:
        raise document.error(
            f"{base.requests} requests arrive in {lasts_s:.3g} s, which measures how queues fill: "
            f"expected {SHORTEST_S:g} s or more, {SHORTEST_S * base.load.rate_per_s:.0f} requests",
            ("base", "requests"),
        )  # fmt: skip
    if not spec.constraints:
        wanted = f"{{metric: {ATTAINED}, at_least: 0.95}}"
        raise document.error(f"which fleets will do? expected such as {wanted}", ("constraints",))
    if [(each.metric, each.direction) for each in spec.objectives] != [("cost", "minimize")]:
        raise document.error("the cheapest fleet: expected [{metric: cost, direction: minimize}]",
                             ("objectives",))  # fmt: skip
    for key in ("first", "prune", "mix", "costs"):
        if getattr(spec, key):
            raise document.error(f"{key}: not with fleet, whose rivals are their own first trials "
                                 "and whose costs are fleet.card_costs", (key,))  # fmt: skip
    if spec.memory != "sampled":
        raise document.error("fleets differ in memory: expected sampled, each trial's own",
                             ("memory",))  # fmt: skip
    devices = spec.space["device"].choice if "device" in spec.space else [base.device]
    for name, rival in spec.fleet.rivals.items():
        for path in (*spec.space, *rival.space, *rival.set):
            if f"{path}.".startswith(f"{CARDS}."):
                raise document.error(f"{CARDS} is found by bisection", ("fleet", "rivals", name))
        for device in devices:
            cost(study, {"device": device, **rival.set})


@dataclass(frozen=True)
class SmallestFleet:
    """The experiment of a task: the fewest cards with which all replications together keep the
    constraints. `experiments`: one a replication, whatever their cards."""

    experiments: tuple[ExperimentSpec, ...]
    replications: tuple[int, ...]
    constraints: tuple[Any, ...]
    lowest: int
    most: int
    guess: int

    def measure(self, task: Task) -> dict[str, Any]:
        """`cards`, and the metrics of each replication with them; `most` where even those do not
        keep the constraints. Raises DescriptionError."""
        runs: dict[int, list[dict[str, Any]]] = {}

        def meets(cards: int) -> bool:
            runs[cards] = []
            for experiment, replication in zip(self.experiments, self.replications, strict=True):
                assert experiment.load is not None
                sized = Task(of(experiment, cards), replication, experiment.load.rate_per_s)
                runs[cards].append(measure(sized))
                if cards < self.most and self._lost(runs[cards]):
                    return False
            return all(each.violation(_mean(runs[cards], each.metric)) <= 0
                       for each in self.constraints)  # fmt: skip

        found = least(meets, self.lowest, self.most, self.guess) or self.most
        return {"cards": found, "found": runs[found]}

    def _lost(self, runs: list[dict[str, Any]]) -> bool:
        """Whether so few have attained their objective that the replications to come cannot mend
        it."""
        missed = sum(1 - flat(run)[ATTAINED] for run in runs) / len(self.experiments)
        least = [each.at_least for each in self.constraints if each.metric == ATTAINED]
        return any(missed > 1 - share for share in least if share is not None)


def _mean(runs: list[dict[str, Any]], metric: str) -> float:
    """Of the replications. Raises DescriptionError where one has no such number."""
    values = [flat(apart(run)[0]).get(metric) for run in runs]
    if not all(isinstance(value, int | float) for value in values):
        raise DescriptionError(f"metric {metric} is missing")
    return float(np.mean(values))  # type: ignore[arg-type]


def of(experiment: ExperimentSpec, cards: int) -> ExperimentSpec:
    """The experiment on a fleet of so many replicas."""
    cluster = experiment.serving.cluster.model_copy(update={"cards": cards})
    serving = experiment.serving.model_copy(update={"cluster": cluster})
    return experiment.model_copy(update={"serving": serving})


def guess(device: str, rival: str, told: list[dict[str, Any]], base: str) -> int:
    """Cards to try first: the fewest that a trial on the device took, of the same rival where there
    is one. told: records of trials; base: the device of those that name none."""
    known = [each for each in told if each["values"] and CARDS in each["overrides"]]
    known = [each for each in known if each["overrides"].get("device", base) == device]
    own = [each for each in known if each["rival"] == rival]
    return min((each["overrides"][CARDS] for each in own or known), default=GUESS)
