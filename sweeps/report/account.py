"""What a kind of run has to say of its findings; `contents` frames it as a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sweeps.analyse.label import label
from sweeps.analyse.variants import overrides, with_role
from sweeps.run.findings import Findings
from sweeps.sections.section import Block, Grid


@dataclass(frozen=True)
class Account:
    """Of one run, finished or not.

    Args:
        sentences: what was found; the first is what a report begins with.
        sections: the tables and charts that show it.
        grids: the tables among them that answer, where these are not those of groups.
        inputs: what differs within the run, rows of (input, values).
        lacking: what these results cannot show, a sentence each.
        points: what differs within such a run, in a word.
    """

    sentences: Sequence[str]
    sections: Sequence[Block] = ()
    grids: Sequence[Grid] = ()
    inputs: Sequence[list[str]] = ()
    lacking: Sequence[str] = ()
    points: str = "points"


Page = Callable[[Findings[Any]], Account]


def page_at(place: str | Page) -> Page:
    """The function of a page, which a kind of run names or is."""
    if not isinstance(place, str):
        return place
    module, _, name = place.partition(":")
    found: Page = getattr(import_module(module), name)
    return found


def variant_rows(config: dict[str, Any], role: str) -> list[list[str]]:
    """Rows of `Account.inputs` for the variants of one role."""
    return [
        [f"{role} {name}", _in_short(variant)] for name, variant in with_role(config, role).items()
    ]


def _in_short(variant: dict[str, Any]) -> str:
    if parts := variant.get("parts"):
        return ", ".join(parts)
    of = variant.get("of")
    text = in_words(overrides(variant)) + (f" ({of})" if isinstance(of, str) else "")
    return f"{variant['why']} ({text})" if variant.get("why") else text


def in_words(value: Any) -> str:
    """A part of a description on one line."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {label(item)}" for key, item in value.items())
    return label(value)
