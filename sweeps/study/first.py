"""The first trials of a study: what one would try without a search, so that none loses to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from hwmodel.description.description import Document
from policies.allocators.capabilities import QuantileBuckets
from policies.allocators.registry import POLICIES, policy_class
from policies.requests.requests import IntArray
from sweeps.plan.experiment import ALL_AT_ONCE, ExperimentSpec, requests_of, workload_of
from sweeps.study.space import Outside, Overrides, Space

First = Literal["base", "paper", "tuned", "least_unused"]
_POLICY = "serving.policy"
LEVELS = f"{_POLICY}.levels"
PAPER = "paper"
"""Name of the trial with the numbers that the policy's paper has."""
_FEW = 4
"""Numbers of buckets that are all tried by arithmetic."""
Lengths = dict[str, IntArray]
"""`output`, and `total` with the prompt: int64 (n,), tokens."""


class FirstStudy(Protocol):
    """What of a study first trials are made of."""

    @property
    def spec(self) -> Any: ...
    @property
    def document(self) -> Document: ...
    @property
    def base(self) -> ExperimentSpec: ...
    @property
    def space(self) -> Space: ...
    def experiment(self, overrides: Overrides) -> ExperimentSpec: ...
    def space_of(self, rival: str | None) -> Space: ...
    def rival_set(self, rival: str | None) -> Overrides: ...


class FirstTrial(NamedTuple):
    """A trial before those of the sampler."""

    name: str
    params: dict[str, Any]
    counted: bool = False
    """Whether it is one of several, by the number of buckets."""


def first_trials(study: FirstStudy) -> list[FirstTrial]:
    """The points of the space that `first` names, in its order, each once. Raises DescriptionError
    where one is not in the space."""
    found: list[FirstTrial] = []
    for rival in study.spec.fleet.rivals if study.spec.fleet else ():
        try:
            params = _params(study, study.rival_set(rival), None, study.space_of(rival))
        except Outside as error:
            place = ("fleet", "rivals", rival)
            raise study.document.error(f"as it is set, it is no trial: {error}", place) from None
        found.append(FirstTrial(rival, params))
    buckets = isinstance(study.base.serving.policy, QuantileBuckets)
    asked = bool(study.spec.first or study.spec.known)
    lengths = known_lengths(study) if buckets and asked else None
    for i, kind in enumerate(study.spec.first):
        try:
            points = [(n, _params(study, o, lengths)) for n, o in _points(study, kind)]
        except Outside as error:
            raise study.document.error(f"{kind}: {error}", ("first", i)) from None
        found += [FirstTrial(name, params, kind == "least_unused") for name, params in points]
    for name, overrides in study.spec.known.items():
        try:
            wanted = study.space.meant(study.space.nearest(overrides))
            params = _nearest(study, wanted, lengths, study.space)
        except Outside as error:
            raise study.document.error(str(error), ("known", name)) from None
        found.append(FirstTrial(name, params))
    once = {repr(sorted(each.params.items())): each for each in reversed(found)}
    return [each for each in found if each is once[repr(sorted(each.params.items()))]]


def _points(study: FirstStudy, kind: First) -> Iterator[tuple[str, Overrides]]:
    """(name, overrides of the base)."""
    if kind == "base":
        yield "base", {}
    elif kind == "paper":
        policy = study.base.serving.policy
        published = policy_class(policy).published
        if not published:
            raise Outside(f"policy {policy.name} declares no published options")
        # what is not searched stays the base's
        numbers = {f"{_POLICY}.{name}": value for name, value in published.items()}
        levels = LEVELS in study.spec.space
        beside = [path for path in numbers if levels and path.endswith(("buckets", "balance"))]
        searched = [*study.spec.space, *beside]
        yield PAPER, {path: value for path, value in numbers.items() if path in searched}
    elif kind == "tuned":
        yield from _tuned(study)
    else:
        parameter = study.spec.space.get(LEVELS)
        if parameter is None or not parameter.quantiles:
            raise Outside(f"expected {LEVELS} with quantiles in the space")
        for count in counts_of(*parameter.quantiles):
            changes = {"buckets": count, "levels": [], "balance": "least_unused"}
            name = f"least unused, {count} buckets"
            yield name, {f"{_POLICY}.{key}": value for key, value in changes.items()}


def counts_of(fewest: int, most: int) -> list[int]:
    """All numbers of buckets where they are few, else the fewest, doubled, and the most."""
    if most - fewest < _FEW:
        return list(range(fewest, most + 1))
    counts = [fewest]
    while counts[-1] * 2 < most:
        counts.append(counts[-1] * 2)
    return [*counts, most]


def _tuned(study: FirstStudy) -> Iterator[tuple[str, Overrides]]:
    """What policies that are the base's with other defaults change, as far as it is searched."""
    base = study.base.serving.policy
    own = type(base)
    levels = study.spec.space.get(LEVELS)
    kinds = {n: k.Options for n, k in POLICIES.items() if k.Options.variant_of == base.name}
    if not kinds:
        raise Outside(f"no policy is {base.name} with other defaults")
    for name, options in kinds.items():
        plain, tuned = own(name=base.name).model_dump(), options(name=name).model_dump()
        changes = {key: tuned[key] for key in plain if tuned[key] != plain[key]}
        if levels is not None:
            changes |= {"levels": [], "buckets": min(tuned["buckets"], levels.quantiles[1])}
        beside = ("buckets", "balance") if levels else ()
        searched = [*study.spec.space, *(f"{_POLICY}.{key}" for key in beside)]
        wanted = {f"{_POLICY}.{key}": value for key, value in changes.items()}
        found = {path: value for path, value in wanted.items() if path in searched}
        yield name, study.space.meant(found)


def _params(
    study: FirstStudy, overrides: Overrides, lengths: Lengths | None, space: Space | None = None
) -> dict[str, Any]:
    """Of the study's space, or of one around what the overrides make."""
    made, space = ({}, study.space) if space is None else (overrides, space)
    wanted = study.experiment(overrides)
    params = _nearest(study, overrides, lengths, space)
    drawn = space.overrides(params)
    if study.experiment({**made, **drawn}) != wanted:
        values = {path: _value(study, overrides, wanted, path) for path in space.parameters}
        at = [f"{path} is {v!r}" for path, v in values.items() if drawn.get(path, v) != v]
        raise Outside("; ".join(["no point of the space is this experiment", *at]))
    return params


def _nearest(
    study: FirstStudy, overrides: Overrides, lengths: Lengths | None, space: Space
) -> dict[str, Any]:
    """The point of a space that is nearest to these overrides. Raises Outside."""
    wanted = study.experiment(overrides)
    levels: list[float] = []
    if lengths is not None:
        policy = wanted.serving.policy
        assert isinstance(policy, QuantileBuckets)
        among = bounded(policy, lengths)
        levels = [float((among <= bound).mean()) for bound in policy.bounds_for(among)]
    return space.params(lambda path: _value(study, overrides, wanted, path), levels)


def bounded(policy: Any, lengths: Lengths) -> IntArray:
    """The lengths that a policy's buckets bound."""
    return lengths[getattr(policy, "bucket_on", "output")]


def _value(study: FirstStudy, overrides: Overrides, experiment: ExperimentSpec, path: str) -> Any:
    """What an experiment has at a path, as it was written if it was; None where it has nothing."""
    keys = path.split(".")
    written = overrides.get(path, study.document.get(("base", *keys)))
    if written is not None:
        return written
    found: Any = experiment
    for part in keys:
        found = found.get(part) if isinstance(found, dict) else getattr(found, part, None)
    return found


def known_lengths(study: FirstStudy) -> Lengths:
    """Tokens of the requests that trials were measured on, as the engine cuts them."""
    experiment = study.base
    workload = workload_of(experiment.model_copy(update={"arrivals": ALL_AT_ONCE}))
    most = experiment.serving.engine.max_tokens or np.iinfo(np.int64).max
    served = [
        requests_of(experiment, replication, None, workload)
        for replication in range(1, experiment.replications + 1)
    ]
    counted = slice(experiment.warmup_requests, None)
    prompt = np.concatenate([each.prompt_tokens[counted] for each in served])
    output = np.minimum(np.concatenate([each.output_tokens[counted] for each in served]), most)
    return {"output": output, "total": prompt + output}
