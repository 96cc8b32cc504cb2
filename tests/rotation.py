"""Combinations of parameters of which the short suite runs a share, and the long suite all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


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
