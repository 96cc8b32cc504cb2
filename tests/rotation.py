"""Parameters of which `make test` runs a share, and `make test-long` all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
"""Whether this is `make test-long`."""


def long(*values: Any) -> list[Any]:
    """These values of one parameter run in the long suite alone."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]


def shared(values: Iterable[Any], first: int = 0, every: int = 2) -> list[Any]:
    """Each `every`-th value, from the place `first`, runs in `make test`; the others in the long
    suite alone."""
    return spread(values, first=first, every=every)


def spread(*axes: Iterable[Any], first: int = 0, every: int = 2) -> list[Any]:
    """Parameter sets for all combinations of `axes`, of which each `every`-th runs in `make test`,
    where the places on all axes add up to `first`; the others in the long suite alone."""
    found = []
    for each in product(*map(enumerate, axes)):
        places, values = zip(*each, strict=True)
        quick = sum(places) % every == first
        found.append(pytest.param(*values, marks=() if quick else pytest.mark.long))
    return found


def rotated(*axes: Sequence[Any]) -> list[Any]:
    """Parameter sets for all combinations of `axes`. Of those that differ in the last axis alone,
    one runs in `make test`, each in its turn; the others are marked `long`."""
    *others, last = axes
    return [
        pytest.param(
            *combination, value, marks=() if turn % len(last) == place else pytest.mark.long
        )
        for turn, combination in enumerate(product(*others))
        for place, value in enumerate(last)
    ]
