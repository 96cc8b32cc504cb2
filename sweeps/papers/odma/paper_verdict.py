"""What a run of the ODMA paper's table says: centre, band, whether the paper lies inside, and what
moves each figure most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sweeps.render.chart import Axis, Bar, Bars, Chart, Lines, Series
from sweeps.reports.table import Group, Row, Table
from sweeps.reports.verdict import listed
from sweeps.results.statistics import Interval

GAIN = "throughput_gain"
LOAD = 1.5
"""Where an assumption names none; see `sweeps.papers.odma.odma_paper.Assumption`."""
FIGURES = {
    "utilization.odma": ("odma_utilization", "utilisation of odma"),
    "accuracy": ("odma_accuracy", "accuracy of odma"),
    GAIN: ("throughput_gain", "throughput of odma over static"),
}
"""Metric -> (its name in the paper's figures, in words)."""
PLACES = INSIDE, EDGE, OUTSIDE = (
    "inside the band", "at the edge of the band, within an interval of it", "outside the band"
)  # fmt: skip
"""Where a figure of the paper may lie; the band is of means over assumptions."""
MIGRATIONS = 0.005
"""The paper's bound on requests that migrate."""
REMARKS = (
    "The paper's S3 column is quoted from another system's evaluation; the spread of the errors is "
    "solved from it all the same.",
    "Two versions of the paper define utilisation differently; here it is prompt and output tokens "
    "over reserved ones, summed over requests.",
    "Alpaca does not drift: what odma gains there comes from bucket edges, not from adaptation.",
    "Utilisation counts requests alike, memory does not: long requests hold theirs longest, and "
    "those reserve about as much as under static reservation. What pools leave empty is not in it.",
)


@dataclass(frozen=True)
class Case:
    """One set of assumptions and its results."""

    assumption: dict[str, Any]
    row: Row

    @property
    def name(self) -> str:
        return str(self.assumption["name"])

    def at(self, metric: str) -> Interval | None:
        return self.row.interval(metric)

    def apart(self, centre: Case) -> list[str]:
        """What it differs in from the centre, option by option."""
        keys = sorted({*self.assumption, *centre.assumption} - {"name"})
        return [key for key in keys if self.assumption.get(key) != centre.assumption.get(key)]


def paper_sentences(table: Table) -> list[str]:
    """What comes of it all, the findings of each data set, then what belongs beside them."""
    parts = [(_dataset(table, group), _cases(table, group)) for group in table.groups]
    known = [(dataset, cases) for dataset, cases in parts if dataset and cases]
    if not known:
        return list(REMARKS)
    found = [_in_short(known)]
    for dataset, cases in known:
        found += list(_group(dataset, cases))
    return [*found, *REMARKS]


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
        for case in _cases(table, group):
            batches = [f"{case.row.mean(f'batch.{name}') or 0:.0f}" for name in ("static", "odma")]
            figures = [_figure(case.at(metric)) for metric in metrics]
            name = str(_dataset(table, group).get("name", group.title))
            rows.append([name, case.name, *figures, *batches])
    return heads, rows


def paper_charts(table: Table) -> Iterator[Chart]:
    """Of each data set the paper's figures by assumption, and throughput by load where several
    are."""
    for group in table.groups:
        cases, dataset = _cases(table, group), _dataset(table, group)
        if not cases or not dataset:
            continue
        name, paper = dataset["name"], dataset["paper"]
        for metric, (key, words) in FIGURES.items():
            shift = 1.0 if metric == GAIN else 0.0  # a gain as a ratio: bars begin at zero
            bars = [Bar(case.name, _percents(found, shift)) for case in cases
                    if (found := case.at(metric)) is not None]  # fmt: skip
            title = f"{name}: {words}, %" + (" of static's" if metric == GAIN else "")
            yield Bars(title, bars, f"The paper: {100 * (paper[key] + shift):g} %.")
        at = sorted(_by_load(cases[0], cases), key=lambda pair: pair[0])
        known = [(load, _percents(g, 1.0)) for load, case in at if (g := case.at(GAIN)) is not None]
        if len(known) > 1:
            series = Series(
                "centre", [load for load, _ in known], [ratio.mean for _, ratio in known],
                [ratio.low for _, ratio in known], [ratio.high for _, ratio in known],
            )  # fmt: skip
            x, y = Axis("load, of the best's capacity"), Axis("output tokens/s, % of static's")
            note = f"The paper: {100 * (paper[GAIN] + 1):g} %."
            yield Lines(f"{name}: odma over static by load", x, y, [series], note)


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


def _dataset(table: Table, group: Group) -> dict[str, Any]:
    return given(table, group, "dataset")


def _in_short(known: list[tuple[dict[str, Any], list[Case]]]) -> str:
    """How many of the paper's figures follow from its baselines, and which do not."""
    found: dict[str, list[str]] = {place: [] for place in PLACES}
    for dataset, cases in known:
        for metric, (key, words) in FIGURES.items():
            place = _place(dataset["paper"][key], metric, _grid(cases))
            found[place].append(f"{words} on {dataset['name']}")
    count = sum(map(len, found.values()))
    text = (
        f"{len(found[INSIDE])} of the paper's {count} figures lie inside the band that follows "
        "from its baselines over what it leaves open"
    )
    for place in (EDGE, OUTSIDE):
        if figures := found[place]:
            text += f"; {listed(figures)} {'is' if len(figures) == 1 else 'are'} {place}"
    gains = listed(
        f"{_figure(cases[0].at(GAIN))} on {dataset['name']} (the paper: "
        f"{100 * dataset['paper'][GAIN]:+.0f} %)"
        for dataset, cases in known
    )
    return f"{text}. At the centre the throughput of odma over static is {gains}."


def _grid(cases: list[Case]) -> list[Case]:
    """Those at the centre's load."""
    return [case for case in cases if "load" not in case.apart(cases[0])]


def _place(paper: float, metric: str, grid: list[Case]) -> str:
    """Where the paper's figure lies: one of `PLACES`."""
    low, high = _band(metric, grid)
    if low <= paper <= high:
        return INSIDE
    touched = any(found.low <= paper <= found.high for case in grid
                  if (found := case.at(metric)) is not None and found.count > 1)  # fmt: skip
    return EDGE if touched else OUTSIDE


def _band(metric: str, grid: list[Case]) -> tuple[float, float]:
    means = [case.row.mean(metric) or 0.0 for case in grid]
    return min(means), max(means)


def _by_load(centre: Case, cases: list[Case]) -> list[tuple[float, Case]]:
    """(load, case) of the centre and of those that differ from it in load alone."""
    alike = [case for case in cases if case.apart(centre) in ([], ["load"])]
    return [(float(case.assumption.get("load", LOAD)), case) for case in alike]


def _group(dataset: dict[str, Any], cases: list[Case]) -> Iterator[str]:
    name, paper, centre, grid = dataset["name"], dataset["paper"], cases[0], _grid(cases)
    yield f"{name}: {_solved(paper, centre, cases)}"
    for metric, (key, words) in FIGURES.items():
        yield f"{name}: {words}: {_against(paper[key], metric, centre, grid)}"
    yield f"{name}: {_migrations(grid)}"
    if len(loads := _by_load(centre, cases)) > 1:
        yield f"{name}: {_loads(paper['throughput_gain'], loads)}"
    yield f"{name}: {_reaching(paper['throughput_gain'], grid)}"


def _solved(paper: dict[str, Any], centre: Case, cases: list[Case]) -> str:
    reached = [case for case in cases if case.row.mean("calibrated.reached") == 1.0]
    missed = [case.name for case in cases if case not in reached]
    targets = (
        f"static utilisation {_share(paper['static_utilization'], 2)} and S3 accuracy "
        f"{_share(paper['s3_accuracy'], 2)}"
    )
    text = f"{targets} are reached under {len(reached)} of {len(cases)} assumptions"
    if missed:
        text += f", not under {', '.join(missed)}"
    scale, spread = centre.row.mean("scale") or 0.0, centre.row.mean("spread") or 0.0
    errors = f"exp({spread:.4f} z)"
    return f"{text}; at the centre outputs are {scale:.2f} times the shape's, errors {errors}."


def _against(paper: float, metric: str, centre: Case, grid: list[Case]) -> str:
    means = {case.name: case.row.mean(metric) or 0.0 for case in grid}
    low, high = _band(metric, grid)
    place = _place(paper, metric, grid)
    if place != INSIDE:
        place += f" ({100 * max(low - paper, paper - high):.1f} points away)"
    text = (
        f"paper {_share(paper, 2)}, centre {_figure(centre.at(metric))}, band {_share(low)} to "
        f"{_share(high)} over {len(grid)} assumptions: the paper is {place}"
    )
    single = [case for case in grid if len(case.apart(centre)) == 1]
    if not single:
        return text + "."
    moved = max(single, key=lambda case: abs(means[case.name] - means[centre.name]))
    points = 100 * (means[moved.name] - means[centre.name])
    return f"{text}. Of single changes '{moved.name}' moves it most ({points:+.1f} points)."


def _migrations(grid: list[Case]) -> str:
    most = max(grid, key=lambda case: case.row.mean("migrations") or 0.0)
    share = most.row.mean("migrations") or 0.0
    below = "below" if share < MIGRATIONS else "not below"
    return (
        f"requests that outgrow their reservation: {_share(share, 2)} at most ('{most.name}'), "
        f"{below} the paper's {_share(MIGRATIONS)}."
    )


def _loads(gain: float, loads: list[tuple[float, Case]]) -> str:
    """Gain against load at the centre, and the range in which it is at least the paper's."""
    means = sorted((load, case.row.mean(GAIN) or 0.0) for load, case in loads)
    text = ", ".join(f"{100 * mean:+.1f} % at {load:g}" for load, mean in means)
    inside = [load for load, mean in means if mean >= gain]
    where = f"from {min(inside):g} to {max(inside):g}" if inside else "at none of them"
    return (
        f"odma over static by load (in units of the best policy's capacity): {text}; the paper's "
        f"{100 * gain:+.0f} % or more {where}."
    )


def _reaching(gain: float, grid: list[Case]) -> str:
    means = {case.name: case.row.mean(GAIN) or 0.0 for case in grid}
    ahead = [name for name, mean in means.items() if mean >= gain]
    above = [name for name, mean in means.items() if 0 < mean < gain]
    text = (
        f"odma serves more than static under {len(ahead) + len(above)} of {len(grid)} assumptions"
    )
    if ahead:
        return f"{text}, and by the paper's {100 * gain:+.0f} % under {', '.join(ahead)}."
    best = max(means, key=lambda name: means[name])
    return (
        f"{text}, under none by the paper's {100 * gain:+.0f} %; the most is "
        f"{100 * means[best]:+.1f} %, under '{best}'."
    )


def _figure(found: Interval | None) -> str:
    """A share with its interval, where that is wider than what is written."""
    if found is None:
        return "–"
    mean, low, high = (_share(each) for each in (found.mean, found.low, found.high))
    if found.count < 2 or low == high:
        return mean
    return f"{mean} ({low.removesuffix(' %')} to {high.removesuffix(' %')})"


def _share(value: float, digits: int = 1) -> str:
    return f"{round(100 * value, digits) + 0.0:.{digits}f} %"  # no minus before zero
