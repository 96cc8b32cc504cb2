"""All relations, by name."""

from __future__ import annotations

from tests.answers import bounds, invariant, monotone, paths
from tests.answers.relation import RELATIONS

__all__ = ["RELATIONS", "bounds", "invariant", "monotone", "paths"]
