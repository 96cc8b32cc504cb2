"""What a sweep can measure at its points: a line each. Nothing else names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweeps.analyse.objective import Objective, named_objective
from sweeps.plan.experiment import Described
from sweeps.plan.lazy_registry import Registry

MEASURES: Registry[type[Described]] = Registry({
    "serving": "sweeps.plan.experiment:ExperimentSpec",
    "kv_read": "sweeps.plan.kv_read:KvReadSpec",
    "odma_paper": "sweeps.plan.odma_paper:OdmaPaperSpec",
})  # fmt: skip
"""By `measure`."""
SERVING = "serving"
"""Where a sweep names none."""


def experiment_of(data: Mapping[str, Any]) -> type[Described]:
    """What each point of a sweep is; of the first where it measures none that is known."""
    name = str(data.get("measure", SERVING))
    return MEASURES[name if name in MEASURES else SERVING]


def objective_of(data: Mapping[str, Any]) -> Objective | None:
    """What a sweep compares its competitors by: what it names, else that of its measure; None where
    there is no one metric."""
    return named_objective(data) or experiment_of(data).objective
