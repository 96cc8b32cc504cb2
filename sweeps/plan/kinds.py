"""The designs of sweeps, a line each: specs that add points to those of the axes.

A kind of run is a measure (`sweeps.plan.measures`), a design, or a study (`sweeps.study`). To add a
design: a file with its spec and findings, its line here, and its presenter in
`sweeps.report.presenters`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeps.plan.answer import AnswerSpec
from sweeps.plan.break_even import BreakEvenSpec
from sweeps.plan.measures import MEASURES, SERVING
from sweeps.plan.sweep_spec import SweepSpec
from sweeps.plan.what_if import WhatIfSpec

DESIGNS: dict[str, type[SweepSpec]] = {
    "break_even": BreakEvenSpec,
    "answer": AnswerSpec,
    "what_if": WhatIfSpec,
}
"""By the `design` of a sweep."""
STUDY = "study"
"""The kind of a description that is no sweep."""


def kind_of(config: Mapping[str, Any]) -> str:
    """The name of a run's kind: `study`, a design, or what a sweep measures."""
    if config.get("kind") == STUDY:
        return STUDY
    if config.get("design") in DESIGNS:
        return str(config["design"])
    measure = str(config.get("measure", SERVING))
    return measure if measure in MEASURES else SERVING


def spec_of(config: Mapping[str, Any]) -> type[SweepSpec]:
    """What a sweep's YAML may say; that of a sweep without a design where it names none."""
    return DESIGNS.get(str(config.get("design")), SweepSpec)


def sweep_specs() -> list[type[SweepSpec]]:
    """What describes a sweep: its own spec, and those of the designs."""
    return [SweepSpec, *DESIGNS.values()]
