"""The variants that a run's config names, by what they are for (`sweeps.plan.variant`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CASE = "case"
"""The key of a result's overrides that names its case."""
ANALYTIC = "analytic"
"""The control whose memory has no banks."""


def with_role(config: Mapping[str, Any], role: str) -> dict[str, dict[str, Any]]:
    """Name -> variant of one role; none where the run skips that role."""
    if role in (config.get("skip") or ()):
        return {}
    variants: Mapping[str, Any] = config.get("variants") or {}
    return {name: each for name, each in variants.items() if each.get("role") == role}


def overrides(variant: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path -> value of a variant, whichever competitor it is for."""
    of = variant.get("of")
    own = [each for each in of.values() if isinstance(each, dict)] if isinstance(of, dict) else []
    given = variant.get("set")
    return {
        **(given if isinstance(given, Mapping) else {}),
        **{k: v for each in own for k, v in each.items()},
    }
