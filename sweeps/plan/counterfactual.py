"""Counterfactuals of a point that serves: the causes of a lower rate, each taken away.

A side of a comparison is simulated with more and more causes removed. With all of them removed it
is one and the same ceiling, `ideal` with analytic memory, whatever policy it began with, so that
the effects of both sides' removals add up to the whole gap. KV layout goes first and what leads to
the ceiling last; the causes between are removed in their order, and in the reverse one, and so are
those that lead to the ceiling. Nothing that is removed changes who is served first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

from policies.allocators.allocator import PolicyOptions
from policies.allocators.capabilities import Contiguous, OnDemand
from policies.allocators.ceilings import IdealOptions, OracleOptions
from policies.allocators.compaction import ArenaOptions
from policies.allocators.registry import POLICIES
from policies.predictors.predictor import PredictorSpec
from policies.serving.serving import ServingSpec
from sweeps.plan.experiment import ExperimentSpec

PREDICTING = ("odma", "s3")
"""Policies that read predictions."""
_OF_OTHER_SPACES = ("space", "borrow", "pool_split", "pool_share", "repartition",
                    "compaction", "compaction_tokens")  # fmt: skip
_NOT_SIMULATED = {"load", "replications", "logs", "latency_at", "slo"}


class Cause(NamedTuple):
    """Why a point serves less than the ceiling. `remove` takes it away."""

    name: str
    words: str
    removed_by: str
    applies: Callable[[ServingSpec], bool]
    remove: Callable[[ServingSpec], ServingSpec]


def _set(serving: ServingSpec, part: str, **values: object) -> ServingSpec:
    changed = getattr(serving, part).model_copy(update=values)
    return serving.model_copy(update={part: changed})


def _analytic(serving: ServingSpec) -> ServingSpec:
    return _set(serving, "memory", fidelity="analytic")


def _free(serving: ServingSpec, what: str) -> ServingSpec:
    return serving.model_copy(update={"free": sorted({*serving.free, what})})


def _copied(serving: ServingSpec) -> ServingSpec:
    """With copies at their cost: where none are made, so that equal points are equal in text."""
    return serving.model_copy(update={"free": [each for each in serving.free if each != "copies"]})


def _predicted(serving: ServingSpec) -> ServingSpec:
    return serving.model_copy(update={"predictor": PredictorSpec()})


def _exact(serving: ServingSpec) -> ServingSpec:
    """Exact lengths in runs of one arena, with the compaction that the policy has."""
    policy = serving.policy
    own = {key: getattr(policy, key) for key in ArenaOptions.model_fields if hasattr(policy, key)}
    exact = OracleOptions(**{**own, "name": "oracle"})
    if exact.compaction != "copied":
        serving = _copied(serving)
    return _predicted(serving).model_copy(update={"policy": exact})


def _compacted(serving: ServingSpec) -> ServingSpec:
    """One arena whose holes are joined for nothing; a buddy has no compaction."""
    policy = serving.policy
    if not isinstance(policy, ArenaOptions):
        return serving
    kept = {k: v for k, v in policy.model_dump().items() if k not in _OF_OTHER_SPACES}
    if kept.get("bounds"):
        kept.pop("first_bounds", None)
    changed = type(policy)(**kept, space="arena", compaction="free")  # type: ignore[call-arg]
    return serving.model_copy(update={"policy": changed})


def _ideal(serving: ServingSpec, **options: str) -> ServingSpec:
    """Towards the ceiling at which every side ends: `ideal` with its own options, other policies as
    exact lengths without holes."""
    policy = serving.policy
    if not isinstance(policy, IdealOptions):
        policy = IdealOptions(reserve="output", admit_on="output")
    plain = _predicted(_copied(_analytic(serving)))
    return plain.model_copy(update={"policy": policy.model_copy(update=options)})


def _contiguous(policy: PolicyOptions) -> bool:
    return issubclass(POLICIES[policy.name], Contiguous)


def on_demand(serving: ServingSpec) -> bool:
    """Whether the policy takes slots as tokens come."""
    return issubclass(POLICIES[serving.policy.name], OnDemand)


LAYOUT = Cause(
    "layout", "KV layout", "memory.fidelity: analytic",
    lambda s: s.memory.fidelity != "analytic", _analytic,
)  # fmt: skip
BETWEEN = (
    Cause("copies", "copies of migration and compaction", "free: [copies]",
          lambda s: s.policy.name == "odma" or getattr(s.policy, "compaction", "") == "copied",
          lambda s: _free(s, "copies")),
    Cause("prediction", "mispredicted lengths", "predictor: {kind: oracle}",
          lambda s: s.policy.name in PREDICTING and s.predictor.kind != "oracle", _predicted),
    Cause("reservation", "reservations beyond the length", "policy: oracle",
          lambda s: _contiguous(s.policy) and s.policy.name != "oracle", _exact),
    Cause("holes", "holes", "compaction: free",
          lambda s: _contiguous(s.policy) and getattr(s.policy, "compaction", "") != "free",
          _compacted),
)  # fmt: skip
"""In the order in which they are removed. With exact lengths nothing is predicted or outgrown."""
TO_CEILING = (
    Cause("line", "head-of-line blocking", "policy: {name: ideal, reserve: output}",
          lambda s: not on_demand(s), lambda s: _ideal(s, admit_on="input")),
    Cause("held", "memory reserved for tokens not yet generated", "policy: ideal",
          lambda s: not on_demand(s), lambda s: _ideal(s, reserve="stored")),
)  # fmt: skip
"""Of a policy that reserves, with exact lengths and no holes. Without the line the head is admitted
as soon as its input fits and completes its reservation before the next; without slots held early it
waits for all its slots but holds only what it has filled."""
RECOMPUTE = Cause("recompute", "preemption, recompute and blocks", "policy: ideal", on_demand,
                  lambda s: _ideal(s, reserve="stored", admit_on="input"))  # fmt: skip
CAUSES = {cause.name: cause for cause in (LAYOUT, *BETWEEN, *TO_CEILING, RECOMPUTE)}
HARDWARE = {"weights": "reading the weights", "compute": "FLOPs"}
"""What no allocator changes, and what is removed from both sides to see how it scales the gap."""


class State(NamedTuple):
    """A side with causes removed, in their order of removal."""

    removed: tuple[str, ...]
    experiment: ExperimentSpec


def chain(experiment: ExperimentSpec, reverse: bool = False) -> list[State]:
    """The side as described, then with one more cause removed each; the ceiling last."""
    serving, order = experiment.serving, -1 if reverse else 1
    names = [LAYOUT.name] * LAYOUT.applies(serving)
    for group in (BETWEEN, TO_CEILING, (RECOMPUTE,)):
        names += [cause.name for cause in group if cause.applies(serving)][::order]
    return [without(experiment, names[:n]) for n in range(len(names) + 1)]


def without(experiment: ExperimentSpec, names: Iterable[str]) -> State:
    """A side without these causes, or without a cost of the hardware. However it came about, a set
    of causes gives one experiment."""
    names = tuple(names)
    serving = experiment.serving
    for cause in CAUSES.values():
        if cause.name in names:
            serving = cause.remove(serving)
    for cost in HARDWARE:
        if cost in names:
            serving = _free(serving, cost)
    return State(names, experiment.model_copy(update={"serving": serving}))


def key(experiment: ExperimentSpec, rate_per_s: float | None) -> str:
    """What decides a result of each replication, hashed."""
    data = experiment.model_dump(mode="json", exclude=_NOT_SIMULATED)
    text = json.dumps([data, rate_per_s], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
