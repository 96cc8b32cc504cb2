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


def shared(values: Iterable[Any], first: int = 0) -> list[Any]:
    """Every second value, from the place `first` (0 or 1), runs in `make test`; the others in the
    long suite alone."""
    return [
        pytest.param(value, marks=() if turn % 2 == first else pytest.mark.long)
        for turn, value in enumerate(values)
    ]


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
