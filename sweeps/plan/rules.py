"""The verdict rules of sweeps, a line each: what is asked of results, and what they ask for next.

A kind of run is a rule, a measure (`sweeps.plan.measures`) under the rule of the best, or a study
(`sweeps.study`). To add a rule: a file in `sweeps.analyse` that judges, a spec built on `SweepSpec`
whose `findings` uses it and whose `page` shows that, and its line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeps.plan.experiment import ShownBy
from sweeps.plan.lazy_registry import Registry
from sweeps.plan.measures import MEASURES, SERVING, experiment_of
from sweeps.plan.sweep_spec import BEST, SweepSpec

RULES: Registry[type[SweepSpec]] = Registry({
    BEST: "sweeps.plan.sweep_spec:SweepSpec",
    "effects": "sweeps.plan.what_if:WhatIfSpec",
    "crossing": "sweeps.plan.crossing_sweep:CrossingSpec",
    "least": "sweeps.plan.least_sweep:LeastSpec",
})  # fmt: skip
"""By the `rule` of a sweep: who is best in each group; what changes do; where a lead changes sides;
the least value that meets an objective."""
STUDY = "study"
"""The kind of a description that is no sweep."""


def kind_of(config: Mapping[str, Any]) -> str:
    """The name of a run's kind: `study`, a rule, or what a sweep under the rule of the best
    measures."""
    if config.get("kind") == STUDY:
        return STUDY
    rule = config.get("rule", BEST)
    if rule != BEST and rule in RULES:
        return str(rule)
    measure = str(config.get("measure", SERVING))
    return measure if measure in MEASURES else SERVING


def spec_of(config: Mapping[str, Any]) -> type[SweepSpec]:
    """What a sweep's YAML may say, by its rule."""
    return RULES.get(str(config.get("rule", BEST)), SweepSpec)


def page_of(config: Mapping[str, Any]) -> ShownBy:
    """What shows a sweep: under the rule of the best its measure may name another page."""
    rule, measure = spec_of(config), experiment_of(config)
    return (config.get("rule", BEST) == BEST and measure.page) or rule.page


def sweep_specs() -> list[type[SweepSpec]]:
    """What describes a sweep, by rule."""
    return list(RULES.values())
