"""A variant of a sweep's base: changes beside the axes, and the keys that name them in results."""

from __future__ import annotations

from typing import Any, NamedTuple

from hwmodel.description.description import Mark

Change = tuple[str, Any, Mark]
"""A dotted path of an experiment, its new value, and where that was written."""
AS_DESCRIBED = "as described"
"""The name of the base where variants stand beside it."""


class Variant(NamedTuple):
    """What is laid over the base before the axes are crossed, or after them."""

    head: dict[str, Any]
    """What names it: goes before the values of the axes into a point's overrides."""
    changes: list[Change]
    competitor: str | None = None
    """The one of the compared values that is changed, by its label; None: all."""
    within: dict[str, Any] | None = None
    """Values of the axes that are not compared; None: all of them."""
