"""A run of the ODMA paper's table: centre, band, whether the paper lies inside, and what moves each
figure most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sweeps.analyse.statistics import Interval
from sweeps.analyse.table import Group, Row, Table
from sweeps.report import odma_words
from sweeps.report.chart import Axis, Bar, Bars, Chart, Lines, Series
from sweeps.report.formats import bare
from sweeps.report.odma_facts import EDGE, INSIDE, OUTSIDE, DatasetResult, MapCell, Placement
from sweeps.report.odma_words import with_interval
from sweeps.report.trend import band

GAIN = "throughput_gain"
LOAD = 1.5
LIMIT = 2048
"""Where an assumption names none; see `sweeps.report.odma_paper.Assumption`."""
PAPER_FIGURES = {
    "utilization.odma": ("odma_utilization", "utilisation of odma"),
    "accuracy": ("odma_accuracy", "accuracy of odma"),
    GAIN: ("throughput_gain", "throughput of odma over static"),
}
"""Metric -> (its name in the paper's figures, in words); the gain last."""


@dataclass(frozen=True)
class Case:
    """One set of assumptions and its results."""

    assumption: dict[str, Any]
    row: Row

    @property
    def name(self) -> str:
        return str(self.assumption["name"])

    def mean(self, metric: str) -> float:
        return self.row.mean(metric) or 0.0

    def apart(self, centre: Case) -> list[str]:
        """What it differs in from the centre, option by option."""
        keys = sorted({*self.assumption, *centre.assumption} - {"name"})
        plain = {"limit": LIMIT, "load": LOAD}
        mine, its = ({**plain, **each.assumption} for each in (self, centre))
        return [key for key in keys if mine.get(key) != its.get(key)]


def paper_sentences(table: Table) -> list[str]:
    """What comes of it all, then the findings of each data set."""
    parts = ((given(table, group, "dataset"), _cases(table, group)) for group in table.groups)
    known = [
        dataset_result(dataset, cases, map_cells(table, cases))
        for dataset, cases in parts if dataset and cases
    ]  # fmt: skip
    told = [f"{each.name}: {text}" for each in known for text in odma_words.paper_dataset(each)]
    return [odma_words.paper_in_short(known), *told] if known else []


def paper_rows(table: Table) -> tuple[list[str], list[list[str]]]:
    """(headings, rows): every case of every data set."""
    heads = [
        "data set", "assumption", "static utilisation", "S3 accuracy", "utilisation", "accuracy",
        "final coverage", "migrations", "over static", "batch static", "batch odma",
    ]  # fmt: skip
    metrics = (
        "calibrated.static_utilization", "calibrated.s3_accuracy", "utilization.odma", "accuracy",
        "coverage_final", "migrations", "throughput_gain",
    )  # fmt: skip
    rows = []
    for group in table.groups:
        name = str(given(table, group, "dataset").get("name", group.title))
        for case in _cases(table, group):
            batches = [f"{case.mean(f'batch.{each}'):.0f}" for each in ("static", "odma")]
            figures = [bare(with_interval(case.row.interval(metric))) for metric in metrics]
            rows.append([name, case.name, *figures, *batches])
    return heads, rows


def paper_charts(table: Table) -> Iterator[Chart]:
    """Of each data set the paper's figures by assumption, and throughput by load where several
    are."""
    for group in table.groups:
        cases, dataset = _cases(table, group), given(table, group, "dataset")
        if not cases or not dataset:
            continue
        name, paper = dataset["name"], dataset["paper"]
        for metric, (key, words) in PAPER_FIGURES.items():
            shift = 1.0 if metric == GAIN else 0.0  # a gain as a ratio: bars begin at zero
            bars = [Bar(case.name, _percents(found, shift)) for case in cases
                    if (found := case.row.interval(metric)) is not None]  # fmt: skip
            title = f"{name}: {words}, %" + (" of static's" if metric == GAIN else "")
            yield Bars(title, bars, f"The paper: {100 * (paper[key] + shift):g} %.")
        known = [(load, _percents(gain, 1.0)) for load, case in _by_load(cases)
                 if (gain := case.row.interval(GAIN)) is not None]  # fmt: skip
        yield from _map_charts(table, cases, dataset)
        if len(known) > 1:
            series = band("centre", [load for load, _ in known], [ratio for _, ratio in known])
            x, y = Axis("load, of the best's capacity"), Axis("output tokens/s, % of static's")
            note = f"The paper: {100 * (paper[GAIN] + 1):g} %."
            yield Lines(f"{name}: odma over static by load", x, y, [series], note)


def map_cells(table: Table, cases: list[Case]) -> list[tuple[float, int, Case]]:
    """(log-sd of the lengths, limit, case) of the cases that differ from the centre in no more."""
    shapes = table.config["base"].get("shapes", {})
    cells = [
        (float(sigma), int(case.assumption.get("limit", LIMIT)), case)
        for case in cases
        if set(case.apart(cases[0])) <= {"shape", "limit"}
        and (sigma := shapes.get(case.assumption.get("shape"), {}).get("sigma")) is not None
    ]
    return sorted(cells, key=lambda cell: cell[:2])


def _map_charts(table: Table, cases: list[Case], dataset: dict[str, Any]) -> Iterator[Chart]:
    """Gain and utilisation over the log-sd of the lengths, a line a limit, beside the paper's."""
    cells = map_cells(table, cases)
    sigmas = sorted({sigma for sigma, _, _ in cells})
    if len(sigmas) < 2:
        return
    for metric in (GAIN, "utilization.odma"):
        key, words = PAPER_FIGURES[metric]
        series = []
        for limit in sorted({limit for _, limit, _ in cells}):
            row = [(s, f) for s, its, case in cells
                   if its == limit and (f := case.row.interval(metric)) is not None]  # fmt: skip
            found = [_percents(interval, 0.0) for _, interval in row]
            series.append(band(f"limit {limit}", [sigma for sigma, _ in row], found))
        paper = 100 * dataset["paper"][key]
        series.append(Series("the paper", sigmas, [paper] * len(sigmas)))
        axes = Axis("log-sd of output lengths"), Axis(f"{words}, %")
        yield Lines(f"{dataset['name']}: {words} by length shape and limit", *axes, series)


def _percents(found: Interval, shift: float) -> Interval:
    return found.mapped(lambda share: 100 * (share + shift))


def given(table: Table, group: Group, key: str) -> dict[str, Any]:
    """What a group has of `dataset` or `assumption`; empty where nothing says."""
    found = group.others.get(key, table.config["base"].get(key))
    return found if isinstance(found, dict) else {}


def _cases(table: Table, group: Group) -> list[Case]:
    """The cases that have results, as the sweep lists them."""
    rows = [row for row in group.main() if row.replications]
    base = given(table, group, "assumption")
    return [Case(row.overrides.get("assumption", base), row) for row in rows]


def dataset_result(
    dataset: dict[str, Any], cases: list[Case], cells: list[tuple[float, int, Case]]
) -> DatasetResult:
    """What is found on a data set; the first case is the centre, and `cells` are the map's."""
    paper, centre = dataset["paper"], cases[0]
    grid = [case for case in cases if "load" not in case.apart(centre)]
    most = max(grid, key=lambda case: case.mean("migrations"))
    return DatasetResult(
        dataset["name"], paper[GAIN], paper["static_utilization"], paper["s3_accuracy"], len(cases),
        [case.name for case in cases if case.row.mean("calibrated.reached") != 1.0],
        centre.mean("scale"), centre.mean("spread"),
        [placement(paper[key], metric, words, grid)
         for metric, (key, words) in PAPER_FIGURES.items()],
        (most.name, most.mean("migrations")),
        [(load, case.mean(GAIN)) for load, case in _by_load(cases)],
        {case.name: case.mean(GAIN) for case in grid},
        [MapCell(sigma, limit, {metric: case.row.interval(metric) for metric in PAPER_FIGURES})
         for sigma, limit, case in cells],
        {metric: paper[key] for metric, (key, _) in PAPER_FIGURES.items()},
    )  # fmt: skip


def placement(paper: float, metric: str, words: str, grid: list[Case]) -> Placement:
    """Where a figure of the paper lies; the first of the grid is the centre."""
    means, centre = {case.name: case.mean(metric) for case in grid}, grid[0]
    low, high = min(means.values()), max(means.values())
    intervals = (case.row.interval(metric) for case in grid)
    touched = any(i and i.count > 1 and i.low <= paper <= i.high for i in intervals)
    place = INSIDE if low <= paper <= high else EDGE if touched else OUTSIDE
    moved = {case.name: means[case.name] - means[centre.name]
             for case in grid if len(case.apart(centre)) == 1}  # fmt: skip
    most = max(moved.items(), key=lambda item: abs(item[1]), default=None)
    interval = centre.row.interval(metric)
    return Placement(words, paper, interval, low, high, len(grid), place, most)


def _by_load(cases: list[Case]) -> list[tuple[float, Case]]:
    """(load, case) of the centre and of those that differ from it in load alone, by load."""
    alike = [case for case in cases if case.apart(cases[0]) in ([], ["load"])]
    loads = [(float(case.assumption.get("load", LOAD)), case) for case in alike]
    return sorted(loads, key=lambda item: item[0])
