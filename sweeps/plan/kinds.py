"""The kinds of run, a line each: nothing else names one, and each is imported when it is asked for.

What a kind is: `sweeps.report.kind.Kind`. To add one: a file, and its line here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

MEASURES = {
    "serving": "sweeps.report.kind:Kind",
    "kv_read": "sweeps.report.kv_read:KvRead",
    "odma_paper": "sweeps.report.odma_kind:OdmaPaper",
    "atlas": "sweeps.report.atlas:Atlas",
}
"""By what a sweep measures at each point (`measure`); the first where it names none."""
DESIGNS = {
    "break_even": "sweeps.report.break_even_kind:BreakEvenKind",
    "kv_ratio": "sweeps.report.answer_kind:AnswerKind",
    "changes": "sweeps.report.what_if_kind:WhatIf",
}
"""By the key of a sweep that adds points to those of its axes, whatever it measures."""
SEARCHES = {"study": "sweeps.study.study_kind:StudyKind"}
"""By the `kind` of a description that is no sweep."""


@cache
def _made(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(module), name)()


def kind_of(config: Mapping[str, Any]) -> Any:
    """The `sweeps.report.kind.Kind` of a run's config."""
    if (kind := str(config.get("kind"))) in SEARCHES:
        return _made(SEARCHES[kind])
    for key, place in DESIGNS.items():
        if config.get(key):
            return _made(place)
    return measured(config)


def measured(config: Mapping[str, Any]) -> Any:
    """The kind that says what a point of a sweep is."""
    default = next(iter(MEASURES.values()))
    return _made(MEASURES.get(str(config.get("measure")), default))


def designs() -> Iterator[Any]:
    """The kinds that add points to a sweep's axes."""
    return map(_made, DESIGNS.values())


def searches() -> Iterator[Any]:
    """The kinds that are no sweep."""
    return map(_made, SEARCHES.values())
