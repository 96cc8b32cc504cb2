"""A run of the ODMA paper's table: centre, band, whether the paper lies inside, and what moves each
figure most."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.analyse.statistics import Interval
from sweeps.plan.paper_findings import GAIN, PAPER_FIGURES, DatasetResult
from sweeps.sections.chart import Axis, Bar, Bars, Chart, Lines, Series, band
from sweeps.sections.formats import NONE, effect, hundred, percent, share
from sweeps.sections.section import Grid


def placement_grid(datasets: list[DatasetResult]) -> Grid:
    """The paper's figures against what follows from its baselines, a row each."""
    heads = ["data set", "figure", "the paper", "centre", "band of means", "assumptions",
             "the paper lies", "changed most by"]  # fmt: skip
    rows = []
    for each in datasets:
        for p in each.placements:
            moved = NONE if p.moved is None else f"{p.moved[0]} ({100 * p.moved[1]:+.1f} points)"
            rows.append([
                each.name, p.words, share(p.paper, 2), _tenths(p.centre),
                f"{share(p.low, 1)} to {share(p.high, 1)}", str(p.count), p.place, moved,
            ])  # fmt: skip
    return Grid("The paper's figures", heads, rows)


def map_grid(datasets: list[DatasetResult]) -> Grid:
    """The paper's figures by length shape and limit, and which are met."""
    heads = ["data set", "log-sd", "limit", *(words for _, words in PAPER_FIGURES.values()), "met"]
    rows = [
        [each.name, f"{cell.sigma:g}", str(cell.limit), *map(_tenths, cell.figures.values()),
         str(len(cell.meets(each.paper))) if cell.is_known else NONE]
        for each in datasets for cell in each.cells
    ]  # fmt: skip
    return Grid("Length shapes and limits", heads, rows)


def _tenths(found: Interval | None) -> str:
    """A share in tenths with its interval, where that is wider than what is written."""
    if found is None:
        return NONE
    same = hundred(found.low, 1) == hundred(found.high, 1)
    return share(found.mean, 1) if found.count < 2 or same else percent(found, digits=1)


def cases_grid(datasets: list[DatasetResult]) -> Grid:
    """Every case of every data set."""
    heads = [
        "data set", "assumption", "static utilisation", "S3 accuracy", "utilisation", "accuracy",
        "final coverage", "migrations", "over static", "batch static", "batch odma",
    ]  # fmt: skip
    rows = [
        [each.name, case.name, *map(_tenths, case.figures.values()),
         *(f"{mean:.0f}" for mean in case.batch.values())]
        for each in datasets for case in each.cases
    ]  # fmt: skip
    return Grid("All assumptions", heads, rows)


def others_grid(datasets: list[DatasetResult]) -> Grid:
    """Policies beside the paper's two, over its own; none where a run has no others."""
    names = list(
        dict.fromkeys(n for each in datasets for case in each.cases for n in case.over_odma)
    )
    rows = [
        [each.name, case.name, *(effect(case.over_odma.get(name)) for name in names)]
        for each in datasets for case in each.cases if case.over_odma
    ]  # fmt: skip
    return Grid("Output tokens/s over odma", ["data set", "assumption", *names], rows)


def paper_charts(datasets: list[DatasetResult]) -> Iterator[Chart]:
    """Of each data set the paper's figures by assumption, and throughput by load where several
    are."""
    for each in datasets:
        for metric, (_, words) in PAPER_FIGURES.items():
            shift = 1.0 if metric == GAIN else 0.0  # a gain as a ratio: bars begin at zero
            bars = [Bar(case.name, _percents(known, shift)) for case in each.cases
                    if (known := case.figures[metric]) is not None]  # fmt: skip
            title = f"{each.name}: {words}, %" + (" of static's" if metric == GAIN else "")
            yield Bars(title, bars, f"The paper: {100 * (each.paper[metric] + shift):g} %.")
        yield from _map_charts(each)
        if len(each.gain_by_load) > 1:
            loads = [load for load, _ in each.gain_by_load]
            series = band("centre", loads, [_percents(g, 1.0) for _, g in each.gain_by_load])
            x, y = Axis("load, of the best's capacity"), Axis("output tokens/s, % of static's")
            note = f"The paper: {100 * (each.gain + 1):g} %."
            yield Lines(f"{each.name}: odma over static by load", x, y, [series], note)


def _map_charts(found: DatasetResult) -> Iterator[Chart]:
    """Gain and utilisation over the log-sd of the lengths, a line a limit, beside the paper's."""
    sigmas = sorted({cell.sigma for cell in found.cells})
    if len(sigmas) < 2:
        return
    for metric in (GAIN, "utilization.odma"):
        _, words = PAPER_FIGURES[metric]
        series = []
        for limit in sorted({cell.limit for cell in found.cells}):
            own = [cell for cell in found.cells if cell.limit == limit]
            row = [(cell.sigma, f) for cell in own if (f := cell.figures[metric]) is not None]
            drawn = [_percents(interval, 0.0) for _, interval in row]
            series.append(band(f"limit {limit}", [sigma for sigma, _ in row], drawn))
        paper = 100 * found.paper[metric]
        series.append(Series("the paper", sigmas, [paper] * len(sigmas)))
        axes = Axis("log-sd of output lengths"), Axis(f"{words}, %")
        yield Lines(f"{found.name}: {words} by length shape and limit", *axes, series)


def _percents(found: Interval, shift: float) -> Interval:
    return found.mapped(lambda share: 100 * (share + shift))
