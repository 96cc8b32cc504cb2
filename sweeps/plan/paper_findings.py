"""What runs of the ODMA paper's table find, as records."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from sweeps.analyse.effects import less, logs_of, mean
from sweeps.analyse.statistics import Interval
from sweeps.analyse.table import Group, Row, Table

Place = Literal["inside", "edge", "outside", "not told by one replication"]
"""Where a figure of the paper may lie, as to the band of means over assumptions; at its edge where
an interval of one of these holds it."""


@dataclass(frozen=True)
class FigurePlacement:
    """One of the paper's figures against the band of means over the assumptions."""

    words: str
    paper: float
    centre: Interval | None
    low: float
    high: float
    count: int
    """Assumptions."""
    place: Place
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

    @property
    def is_known(self) -> bool:
        """Whether there are replications enough for an interval."""
        return any(found is not None and found.count > 1 for found in self.figures.values())

    def meets(self, paper: dict[str, float]) -> list[str]:
        """The metrics whose 95 % interval holds the paper's figure, or whose mean is it to a whole
        percentage point, as the paper's gain is given; none of one replication."""
        return [
            metric
            for metric, value in paper.items()
            if (found := self.figures.get(metric)) is not None
            and found.count > 1
            and (found.low <= value <= found.high or abs(found.mean - value) < 0.005)
        ]


@dataclass(frozen=True)
class CaseResult:
    """What is found under one set of assumptions."""

    name: str
    figures: dict[str, Interval | None]
    """By metric."""
    batch: dict[str, float]
    """Mean batch by policy."""
    over_odma: dict[str, Interval]
    """Log ratio of the output tokens/s of each policy but static to those of odma."""


@dataclass(frozen=True)
class DatasetResult:
    """What is found on one data set."""

    name: str
    gain: float
    """The paper's: throughput of odma over static, less 1."""
    placements: list[FigurePlacement]
    """The gain last."""
    cells: list[MapCell]
    """The map over length shape and limit."""
    paper: dict[str, float]
    """The paper's figures by metric."""
    cases: list[CaseResult] = field(default_factory=list)
    """Every set of assumptions, the centre first."""
    gain_by_load: list[tuple[float, Interval]] = field(default_factory=list)
    """Of the centre at each load that ran."""


RATE, GAIN = "throughput", "throughput_gain"
LOAD = 1.5
LIMIT = 2048
"""Where an assumption names none; see `sweeps.plan.odma_paper.Assumption`."""


PAPER_FIGURES = {
    "utilization.odma": ("odma_utilization", "utilisation of odma"),
    "accuracy": ("odma_accuracy", "accuracy of odma"),
    GAIN: ("throughput_gain", "throughput of odma over static"),
}
"""Metric -> (its name in the paper's figures, in words); the gain last."""
FIGURES = (
    "calibrated.static_utilization", "calibrated.s3_accuracy", "utilization.odma", "accuracy",
    "coverage_final", "migrations", GAIN,
)  # fmt: skip
"""Metrics of each set of assumptions."""


@dataclass(frozen=True)
class AssumptionCase:
    """One set of assumptions and its results."""

    assumption: dict[str, Any]
    row: Row

    @property
    def name(self) -> str:
        """Of the assumption, and of the competitor where a run compares others."""
        return ", ".join(dict.fromkeys((str(self.assumption["name"]), self.row.name)))

    def interval(self, metric: str) -> Interval | None:
        """Cut to where it can lie: all are shares, but a gain."""
        found, most = self.row.interval(metric), math.inf if metric == GAIN else 1.0
        return None if found is None else found.within(-1.0 if metric == GAIN else 0.0, most)

    def mean(self, metric: str) -> float:
        return self.row.mean(metric) or 0.0

    def over_odma(self) -> dict[str, Interval]:
        """Of each other policy, as a `CaseResult` has it."""
        served = next(iter(self.row.replications.values()))
        names = [key.split(".", 1)[1] for key in served if key.startswith(f"{RATE}.")]
        logs = {name: logs_of(self.row, f"{RATE}.{name}") for name in names}
        ratios = {name: mean(less(logs[name], logs["odma"])) for name in names
                  if name not in ("odma", "static")}  # fmt: skip
        return {name: ratio for name, ratio in ratios.items() if ratio is not None}

    def apart(self, centre: AssumptionCase) -> list[str]:
        """What it differs in from the centre, option by option."""
        keys = sorted({*self.assumption, *centre.assumption} - {"name"})
        plain = {"limit": LIMIT, "load": LOAD}
        mine, its = ({**plain, **each.assumption} for each in (self, centre))
        return [key for key in keys if mine.get(key) != its.get(key)]


def map_cells(table: Table, cases: list[AssumptionCase]) -> list[tuple[float, int, AssumptionCase]]:
    """(log-sd of the lengths, limit, case) of the cases that differ from the centre in no more."""
    shapes = table.config["base"].get("shapes", {})
    cells = [
        (float(sigma), int(case.assumption.get("limit", LIMIT)), case)
        for case in cases
        if set(case.apart(cases[0])) <= {"shape", "limit"}
        and (sigma := shapes.get(case.assumption.get("shape"), {}).get("sigma")) is not None
    ]
    return sorted(cells, key=lambda cell: cell[:2])


def given(table: Table, group: Group, key: str) -> dict[str, Any]:
    """What a group has of `dataset` or `assumption`; empty where nothing says."""
    found = group.others.get(key, table.config["base"].get(key))
    return found if isinstance(found, dict) else {}


def _cases(table: Table, group: Group) -> list[AssumptionCase]:
    """The cases that have results, as the sweep lists them."""
    rows = [row for row in group.main() if row.replications]
    base = given(table, group, "assumption")
    return [AssumptionCase(row.overrides.get("assumption", base), row) for row in rows]


def dataset_result(
    name: str,
    dataset: dict[str, Any],
    cases: list[AssumptionCase],
    cells: list[tuple[float, int, AssumptionCase]],
) -> DatasetResult:
    """What is found on a data set; the first case is the centre, and `cells` are the map's."""
    paper, centre = dataset["paper"], cases[0]
    grid = [case for case in cases if "load" not in case.apart(centre)]
    return DatasetResult(
        name, paper[GAIN],
        [placement(paper[key], metric, words, grid)
         for metric, (key, words) in PAPER_FIGURES.items()],
        [MapCell(sigma, limit, {metric: case.interval(metric) for metric in PAPER_FIGURES})
         for sigma, limit, case in cells],
        {metric: paper[key] for metric, (key, _) in PAPER_FIGURES.items()},
        [CaseResult(case.name, {metric: case.interval(metric) for metric in FIGURES},
                    {name: case.mean(f"batch.{name}") for name in ("static", "odma")},
                    case.over_odma())
         for case in cases],
        [(load, gain) for load, case in _by_load(cases)
         if (gain := case.interval(GAIN)) is not None],
    )  # fmt: skip


def dataset_results(table: Table) -> list[DatasetResult]:
    """What is found on each data set that has results, and under each assumption where these are
    not what is compared."""
    parts = [
        (group, given(table, group, "dataset"), _cases(table, group)) for group in table.groups
    ]
    return [
        dataset_result(_name(group, dataset), dataset, cases, map_cells(table, cases))
        for group, dataset, cases in parts if dataset and cases
    ]  # fmt: skip


def _name(group: Group, dataset: dict[str, Any]) -> str:
    assumption = group.others.get("assumption")
    names = [dataset["name"], assumption["name"] if isinstance(assumption, dict) else ""]
    return ", ".join(filter(None, names))


def placement(paper: float, metric: str, words: str, grid: list[AssumptionCase]) -> FigurePlacement:
    """Where a figure of the paper lies; the first of the grid is the centre."""
    means, centre = {case.name: case.mean(metric) for case in grid}, grid[0]
    low, high = min(means.values()), max(means.values())
    intervals = [case.row.interval(metric) for case in grid]
    touched = any(i and i.count > 1 and i.low <= paper <= i.high for i in intervals)
    told = any(i and i.count > 1 for i in intervals)
    place: Place = "outside" if told else "not told by one replication"
    place = "inside" if low <= paper <= high else "edge" if touched else place
    alone = [case.name for case in grid if len(case.apart(centre)) == 1]
    moved = {name: means[name] - means[centre.name] for name in alone}
    most = max(moved.items(), key=lambda item: abs(item[1]), default=None)
    if most is not None and not most[1]:
        most = None
    interval = centre.interval(metric)
    return FigurePlacement(words, paper, interval, low, high, len(grid), place, most)


def _by_load(cases: list[AssumptionCase]) -> list[tuple[float, AssumptionCase]]:
    """(load, case) of the centre and of those that differ from it in load alone, by load."""
    alike = [case for case in cases if case.apart(cases[0]) in ([], ["load"])]
    loads = [(float(case.assumption.get("load", LOAD)), case) for case in alike]
    return sorted(loads, key=lambda item: item[0])
