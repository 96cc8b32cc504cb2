"""What runs of the ODMA paper's table find, as records."""

from __future__ import annotations

from dataclasses import dataclass

from sweeps.analyse.statistics import Interval

INSIDE, EDGE, OUTSIDE = "inside the band", "within a 95 % CI of the band", "outside the band"
"""Where a figure of the paper may lie; the band is of means over assumptions."""


@dataclass(frozen=True)
class Placement:
    """One of the paper's figures against the band of means over the assumptions."""

    words: str
    paper: float
    centre: Interval | None
    low: float
    high: float
    count: int
    """Assumptions."""
    place: str
    """INSIDE, EDGE or OUTSIDE."""
    moved: tuple[str, float] | None
    """The single change that moves it most, and by how much."""


@dataclass(frozen=True)
class MapCell:
    """A length shape and a limit, with what follows."""

    sigma: float
    """Of the logarithm of the output lengths."""
    limit: int
    figures: dict[str, Interval | None]
    """By metric."""

    def meets(self, paper: dict[str, float]) -> list[str]:
        """The metrics whose 95 % interval holds the paper's figure, or whose mean is it to a whole
        percentage point, as the paper's gain is given."""
        return [
            metric
            for metric, value in paper.items()
            if (found := self.figures.get(metric)) is not None
            and (found.low <= value <= found.high or abs(found.mean - value) < 0.005)
        ]


@dataclass(frozen=True)
class DatasetResult:
    """What is found on one data set."""

    name: str
    gain: float
    """The paper's: throughput of odma over static, less 1."""
    static_utilization: float
    s3_accuracy: float
    count: int
    """Assumptions, of which `missed` do not reach the two targets."""
    missed: list[str]
    scale: float
    spread: float
    placements: list[Placement]
    migrations: tuple[str, float]
    """The assumption with most, and its share of requests."""
    loads: list[tuple[float, float]]
    """(load, gain) of the centre."""
    means: dict[str, float]
    """Gain by assumption, at the centre's load."""
    cells: list[MapCell]
    """The map over length shape and limit."""
    paper: dict[str, float]
    """The paper's figures by metric."""

    @property
    def goal(self) -> str:
        """The paper's gain, written."""
        return f"{100 * self.gain:+.0f} %"


@dataclass(frozen=True)
class Effects:
    """Of paged over one other policy on one card; None where a run of it is missing."""

    other: str
    gap: Interval
    capacity: Interval | None
    layout: Interval | None
    kv: Interval
    bandwidth: Interval | None
    """None on the first card."""


@dataclass(frozen=True)
class CardEffects:
    """One card instead of another."""

    change: str
    """Which."""
    faster: dict[str, Interval]
    """By policy."""
    gaps: dict[str, Interval]
    """Of paged's gap, by other policy."""
    compute_bound: dict[str, float]
    """Policy -> share of its step time on the card, where that is not small."""
    assumed: list[str]
    """The assumed numbers that say how fast FLOPs are."""


@dataclass(frozen=True)
class OtherControl:
    """Capacity under a control besides the analytic one."""

    control: str
    changed: list[str]
    """What it changes, in words."""
    capacities: list[tuple[str, str, Interval, Interval]]
    """(card, other policy, capacity under the analytic control, under this one)."""
