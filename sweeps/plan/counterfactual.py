"""Counterfactuals of a point that serves: the causes of a lower rate, each taken away.

A side of a comparison is simulated with more and more causes removed. With all of them removed it
is one and the same ceiling, `ideal` with analytic memory, whatever policy it began with, so that
the effects of both sides' removals add up to the whole gap. KV layout goes first and what leads to
the ceiling last; the causes between are removed in their order, and in the reverse one, and so are
those that lead to the ceiling. Nothing that is removed changes who is served first. Which causes a
policy has, and what removes each, is its own declaration (`policies.allocators.declaration`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from policies.allocators.declaration import Loss, Removal
from policies.allocators.registry import policy_class
from policies.predictors.predictors import exact_predictor
from policies.serving.serving_spec import ServingSpec
from sweeps.plan.experiment import ExperimentSpec

_NOT_SIMULATED = {"load", "replications", "logs", "latency_at", "slo"}


class LossCause(NamedTuple):
    """Why a point serves less than the ceiling, in words, and what takes it away."""

    name: Loss | Literal["layout"]
    words: str
    removed_by: str


LAYOUT = LossCause("layout", "KV layout", "memory.fidelity: analytic")
BETWEEN = (
    LossCause("copies", "copies of migration and compaction", "free: [copies]"),
    LossCause("prediction", "mispredicted lengths", "predictor: {kind: oracle}"),
    LossCause("reservation", "reservations beyond the length", "policy: oracle"),
    LossCause("holes", "holes", "compaction: free"),
)
"""In the order in which they are removed. With exact lengths nothing is predicted or outgrown."""
TO_CEILING = (
    LossCause("line", "head-of-line blocking", "policy: {name: ideal, reserve: output}"),
    LossCause("held", "memory reserved for tokens not yet generated", "policy: ideal"),
)
RECOMPUTE = LossCause("recompute", "preemption, recompute and blocks", "policy: ideal")
CAUSES: dict[str, LossCause] = {
    cause.name: cause for cause in (LAYOUT, *BETWEEN, *TO_CEILING, RECOMPUTE)
}
HARDWARE = {"weights": "reading the weights", "compute": "FLOPs"}
"""What no allocator changes, and what is removed from both sides to see how it scales the gap."""


class RemovedState(NamedTuple):
    """A side with causes removed, in their order of removal."""

    removed: tuple[str, ...]
    experiment: ExperimentSpec


def losses(serving: ServingSpec) -> dict[Loss, Removal]:
    """What the policy declares that it loses under these settings. Raises DescriptionError where it
    declares nothing."""
    every = policy_class(serving.policy).losses
    exact = serving.predictor.exact
    return {
        name: removal
        for name, removal in every.items()
        if removal.applies(serving.policy) and not (removal.exact_lengths and exact)
    }


def chain(experiment: ExperimentSpec, reverse: bool = False) -> list[RemovedState]:
    """The side as described, then with one more cause removed each; the ceiling last."""
    serving, order = experiment.serving, -1 if reverse else 1
    names: list[str] = [LAYOUT.name] * (serving.memory.fidelity != "analytic")
    lost = losses(serving)
    for group in (BETWEEN, TO_CEILING, (RECOMPUTE,)):
        names += [cause.name for cause in group if cause.name in lost][::order]
    return [without(experiment, names[:n]) for n in range(len(names) + 1)]


def without(experiment: ExperimentSpec, names: Iterable[str]) -> RemovedState:
    """A side without these causes, or without a cost of the hardware. However it came about, a set
    of causes gives one experiment."""
    names = tuple(names)
    serving = experiment.serving
    if LAYOUT.name in names:
        memory = serving.memory.model_copy(update={"fidelity": "analytic"})
        serving = serving.model_copy(update={"memory": memory})
    lost = losses(serving)
    for name in CAUSES:
        if name in lost and name in names:
            serving = _removed(serving, lost[name])
    for cost in HARDWARE:
        if cost in names:
            serving = _free(serving, cost)
    return RemovedState(names, experiment.model_copy(update={"serving": serving}))


def _removed(serving: ServingSpec, removal: Removal) -> ServingSpec:
    if removal.free_copies:
        serving = _free(serving, "copies")
    if removal.exact_lengths:
        serving = serving.model_copy(update={"predictor": exact_predictor()})
    if removal.policy is not None:
        return serving.model_copy(update={"policy": removal.policy(serving.policy)})
    if removal.reference is None:
        return serving
    policy = removal.reference(serving.policy)
    changed: dict[str, Any] = {"policy": policy}
    # what a reference does not have is as by default, so that equal points are equal in text
    lost = policy_class(policy).losses
    if "prediction" not in lost:
        changed["predictor"] = exact_predictor()
    if "copies" not in lost or not lost["copies"].applies(policy):
        changed["free"] = [each for each in serving.free if each != "copies"]
    return serving.model_copy(update=changed)


def _free(serving: ServingSpec, what: str) -> ServingSpec:
    return serving.model_copy(update={"free": sorted({*serving.free, what})})


def key(experiment: ExperimentSpec, rate_per_s: float | None) -> str:
    """What decides a result of each replication, hashed."""
    data = experiment.model_dump(mode="json", exclude=_NOT_SIMULATED)
    text = json.dumps([data, rate_per_s], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
