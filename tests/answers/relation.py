"""Relations that hold whatever the model of the hardware is, each over something drawn at random.

A relation takes a `Draw` and yields what does not hold, in words. `RELATIONS` has them by name,
with their kind: monotone, invariant, equal by two paths, or bound. A DescriptionError says that
what was drawn does not go together; then nothing was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.requests.requests import Requests
from policies.serving.serving import ServingResult
from sweeps.ask.fit import Fit, FitQuestion, fit
from tests.answers.draws import Draw, at_once, device_of

EXACT, NEAR, CLOSE = 1e-12, 1e-6, 0.02
"""Relative differences: of sums in another order; of a constant added to times; of a closed form
that takes the mean of a stretch for all of it."""

Breaches = Iterator[str]


class Relation(NamedTuple):
    kind: str
    holds: Callable[[Draw], Breaches]


RELATIONS: dict[str, Relation] = {}


def relation(kind: str) -> Callable[[Callable[[Draw], Breaches]], Callable[[Draw], Breaches]]:
    def named(holds: Callable[[Draw], Breaches]) -> Callable[[Draw], Breaches]:
        RELATIONS[holds.__name__.replace("_", " ")] = Relation(kind, holds)
        return holds

    return named


monotone, invariant, two_paths, bound = map(relation, ("monotone", "invariant", "paths", "bound"))


def same(one: ServingResult, other: ServingResult, rel: float = EXACT) -> Breaches:
    for name in ("first_token_s", "finish_s"):
        ours, theirs = getattr(one, name), getattr(other, name)
        if not np.allclose(ours, theirs, rtol=rel, atol=0, equal_nan=True):
            worst = np.nanmax(np.abs(ours / theirs - 1))
            yield f"{name} differs by up to {worst:.2g}"


def equal(what: str, one: float, other: float, rel: float = EXACT) -> Breaches:
    if abs(one - other) > rel * max(abs(one), abs(other)):
        yield f"{what}: {one:.12g} and {other:.12g}"


def not_longer(shorter: ServingResult, longer: ServingResult, rel: float = EXACT) -> Breaches:
    ours, theirs = shorter.metrics["makespan_s"], longer.metrics["makespan_s"]
    if ours > theirs * (1 + rel):
        yield f"all requests took {ours:.9g} s, and {theirs:.9g} s without"


def all_at_once(draw: Draw) -> Draw:
    return draw.but(requests=at_once(draw.requests))


def alone_with(draw: Draw, prompt: int, output: int) -> Draw:
    return draw.but(requests=Requests(np.zeros(1), np.array([prompt]), np.array([output])))


def fitted(draw: Draw, *sets: str, **question: Any) -> Fit:
    asked = FitQuestion.model_validate({"weights": draw.changes.get("weights"), **question})
    found = fit(device_of(draw.device, sets), draw.model, asked)
    if not isinstance(found, Fit):
        raise DescriptionError(found.why)
    return found
