"""What a finale compares: contenders with their metrics on the same replications."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sweeps.study.space import Overrides

Metrics = dict[str, Any]


@dataclass
class Contender:
    """Who is compared: overrides of the base, and metrics by replication."""

    name: str
    overrides: Overrides
    metrics: dict[int, Metrics] = field(default_factory=dict)
    trial: int | None = None
    """Whose settings it has, where it was searched for."""
    rival: str | None = None
    """Of a study of fleets, where it has them as another rival than the trial's own."""

    def values(self, metric: str, among: range) -> list[float]:
        """A metric of these replications."""
        return [float(self.metrics[r][metric]) for r in among]

    def mean(self, metric: str, among: range) -> float:
        """Its mean over these replications."""
        return float(np.mean(self.values(metric, among)))


@dataclass
class Finale:
    """What came of it; `best` is the chosen trial."""

    best: Contender
    others: list[Contender]
    tried: list[Contender]
    choosing: range
    judging: range
