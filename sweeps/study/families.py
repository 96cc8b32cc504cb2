"""Families of trials: those that share something a question is about, such as a pool kept apart.

A study names them by what is drawn. The best of each goes up every rung and into the finale, so
that what the family costs or brings has an answer with an interval, whoever wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeps.study.space import DRAWN, FREE, meets

Families = Mapping[str, Mapping[str, Any]]
"""Name -> path of the space -> what makes a trial one of the family."""
OWN = "drawn"
"""Any number of the range, or levels of a trial's own, and none of what stands beside them."""


def families_of(families: Families, params: Mapping[str, Any]) -> list[str]:
    """The families that a trial with these drawn parameters is of."""
    return [
        name
        for name, wanted in families.items()
        if all(meets(drawn_as(path, params), value) for path, value in wanted.items())
    ]


def drawn_as(path: str, params: Mapping[str, Any]) -> Any:
    """What is drawn at a path: `drawn`, what stands beside the range or the levels, or a choice."""
    by = params.get(f"{path}.by", None)
    if by is None:
        return params.get(path, OWN)
    return OWN if by in (FREE, DRAWN) else by
