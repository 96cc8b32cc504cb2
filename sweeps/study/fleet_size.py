"""The cheapest fleet: of each configuration the fewest cards that keep a study's constraints.

A trial draws everything but the cards. They are found by bisection on the requests of all of its
replications, if a card more never serves less (assumed; the noise of runs aside). As many cards as
its rival's best trial costs are tried first: who breaks a constraint with them is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict
from sweeps.analyse.rows import flat
from sweeps.plan.bisection import least
from sweeps.plan.experiment import ExperimentSpec, Task, device_of, measure
from sweeps.run.sweep_run import apart
from sweeps.study.space import Overrides, ParameterSpec

CARDS = "serving.cluster.cards"
FEWEST = 2
"""Cards of a fleet."""
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
    """Name -> who is tuned. Trials are theirs in turn; each has a sampler of its own, and tries the
    shared settings of the best of all."""
    most: Annotated[int, Field(ge=FEWEST, le=1024)] = 64
    """Cards that are tried at most."""
    cost: Literal["cards", "watts", "price"] = "cards"
    """What the metric `cost` counts: cards, the most that their boards draw in W, or prices."""
    card_costs: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Device -> watts or price of a card. Watts that are not here are those of its description."""


def cost(study: Any, overrides: Overrides) -> dict[str, float]:
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


def check(study: Any) -> None:
    """Whether the study can be one of the cheapest fleet. Raises DescriptionError."""
    spec, base = study.spec, study.base
    cluster, rate = base.serving.cluster, 0.0 if base.load is None else base.load.rate_per_s
    lasts_s = base.requests / rate if rate else SHORTEST_S
    beside = [key for key in ("first", "halving", "mix", "costs") if getattr(spec, key)]
    objectives = [(each.metric, each.direction) for each in spec.objectives]
    paths = [path for each in spec.fleet.rivals.values() for path in (*each.space, *each.set)]
    mistakes: list[tuple[object, str, tuple[str, ...]]] = [
        (cluster.cells > 1,
         "a study of fleets needs cluster.cells: 1", ("base", "serving", "cluster")),
        (not rate, "fleets of any size serve one load: expected rate_per_s", ("base", "load")),
        (lasts_s < SHORTEST_S,
         f"requests arrive for {lasts_s:.3g} s, which measures how queues fill: expected "
         f"{SHORTEST_S:g} s, {SHORTEST_S * (rate or 0):.0f} requests", ("base", "requests")),
        (not spec.constraints,
         f"which fleets will do? expected such as {{metric: {ATTAINED}, at_least: 0.95}}",
         ("constraints",)),
        (objectives != [("cost", "minimize")],
         "the cheapest fleet: expected [{metric: cost, direction: minimize}]", ("objectives",)),
        (beside, f"{', '.join(beside)}: not with fleet, whose rivals are their own first trials "
         "and whose costs are fleet.card_costs", tuple(beside[:1])),
        (spec.memory != "sampled", "expected sampled: each trial's own memory", ("memory",)),
        (CARDS in {*spec.space, *paths}, f"{CARDS} is found by bisection", ("fleet", "rivals")),
    ]  # fmt: skip
    for wrong, why, place in mistakes:
        if wrong:
            raise study.document.error(why, place)
    devices = spec.space["device"].choice if "device" in spec.space else [base.device]
    for rival in spec.fleet.rivals.values():
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
        spare = [1 - (each.at_least or 0) for each in self.constraints if each.metric == ATTAINED]

        def meets(cards: int) -> bool:
            runs[cards], told, missed = [], list[dict[str, Any]](), 0.0
            for one, replication in zip(self.experiments, self.replications, strict=True):
                cluster = one.serving.cluster.model_copy(update={"cards": cards})
                serving = one.serving.model_copy(update={"cluster": cluster})
                sized = one.model_copy(update={"serving": serving})
                rate = None if one.load is None else one.load.rate_per_s
                runs[cards].append(measure(Task(sized, replication, rate)))
                told.append(flat(apart(runs[cards][-1])[0]))
                missed += 1 - told[-1].get(ATTAINED, 1.0)
                if cards < self.most and missed > min(spare, default=1) * len(self.experiments):
                    return False  # which the replications to come cannot mend
            means = [np.mean([each[c.metric] for each in told]) for c in self.constraints]
            pairs = zip(self.constraints, map(float, means), strict=True)
            return all(each.violation(mean) <= 0 for each, mean in pairs)

        found = least(meets, self.lowest, self.most, self.guess) or self.most
        return {"cards": found, "runs": runs[found]}
