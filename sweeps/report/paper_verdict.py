"""A run of the ODMA paper's table: centre, band, whether the paper lies inside, and what moves each
figure most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweeps.analyse.statistics import Interval
from sweeps.analyse.table import Table
from sweeps.plan.paper_findings import (
    GAIN,
    PAPER_FIGURES,
    Case,
    _by_load,
    _cases,
    dataset_results,
    given,
    map_cells,
)
from sweeps.report.chart import Axis, Bar, Bars, Chart, Lines, Series
from sweeps.report.formats import NONE, hundred, percent, share
from sweeps.report.section import Grid
from sweeps.report.trend import band


def placement_grid(table: Table) -> Grid:
    """The paper's figures against what follows from its baselines, a row each."""
    heads = ["data set", "figure", "the paper", "centre", "band of means", "assumptions",
             "the paper lies", "changed most by"]  # fmt: skip
    rows = []
    for each in dataset_results(table):
        for p in each.placements:
            moved = NONE if p.moved is None else f"{p.moved[0]} ({100 * p.moved[1]:+.1f} points)"
            rows.append([
                each.name, p.words, share(p.paper, 2), _tenths(p.centre),
                f"{share(p.low, 1)} to {share(p.high, 1)}", str(p.count), p.place, moved,
            ])  # fmt: skip
    return Grid("The paper's figures", heads, rows)


def map_grid(table: Table) -> Grid:
    """The paper's figures by length shape and limit, and which are met."""
    heads = ["data set", "log-sd", "limit", *(words for _, words in PAPER_FIGURES.values()), "met"]
    rows = [
        [each.name, f"{cell.sigma:g}", str(cell.limit), *map(_tenths, cell.figures.values()),
         str(len(cell.meets(each.paper))) if cell.told else NONE]
        for each in dataset_results(table) for cell in each.cells
    ]  # fmt: skip
    return Grid("Length shapes and limits", heads, rows)


def _tenths(found: Interval | None) -> str:
    """A share in tenths with its interval, where that is wider than what is written."""
    if found is None:
        return NONE
    same = hundred(found.low, 1) == hundred(found.high, 1)
    return share(found.mean, 1) if found.count < 2 or same else percent(found, digits=1)


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
            figures = [_tenths(case.interval(metric)) for metric in metrics]
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
                    if (found := case.interval(metric)) is not None]  # fmt: skip
            title = f"{name}: {words}, %" + (" of static's" if metric == GAIN else "")
            yield Bars(title, bars, f"The paper: {100 * (paper[key] + shift):g} %.")
        known = [(load, _percents(gain, 1.0)) for load, case in _by_load(cases)
                 if (gain := case.interval(GAIN)) is not None]  # fmt: skip
        yield from _map_charts(table, cases, dataset)
        if len(known) > 1:
            series = band("centre", [load for load, _ in known], [ratio for _, ratio in known])
            x, y = Axis("load, of the best's capacity"), Axis("output tokens/s, % of static's")
            note = f"The paper: {100 * (paper[GAIN] + 1):g} %."
            yield Lines(f"{name}: odma over static by load", x, y, [series], note)


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
                   if its == limit and (f := case.interval(metric)) is not None]  # fmt: skip
            found = [_percents(interval, 0.0) for _, interval in row]
            series.append(band(f"limit {limit}", [sigma for sigma, _ in row], found))
        paper = 100 * dataset["paper"][key]
        series.append(Series("the paper", sigmas, [paper] * len(sigmas)))
        axes = Axis("log-sd of output lengths"), Axis(f"{words}, %")
        yield Lines(f"{dataset['name']}: {words} by length shape and limit", *axes, series)


def _percents(found: Interval, shift: float) -> Interval:
    return found.mapped(lambda share: 100 * (share + shift))
