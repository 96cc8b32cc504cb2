"""What a run of the ODMA paper's table says: centre, band, whether the paper lies inside, and what
moves each figure most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sweeps.statistics import Interval
from sweeps.sweep import label
from sweeps.table import Group, Row, Table

FIGURES = {
    "utilization.odma": ("odma_utilization", "utilisation of odma"),
    "accuracy": ("odma_accuracy", "accuracy of odma"),
    "throughput_gain": ("throughput_gain", "throughput of odma over static"),
}
"""Metric -> (its name in the paper's figures, in words)."""
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
    """The findings of each data set, then what belongs beside them."""
    found = []
    for group in table.groups:
        found += list(_group(group, _cases(table, group)))
    return [*found, *REMARKS]


def paper_rows(table: Table) -> tuple[list[str], list[list[str]]]:
    """(headings, rows): every case of every data set."""
    heads = [
        "data set", "assumption", "static utilisation", "S3 accuracy", "utilisation", "accuracy",
        "final coverage", "over static", "batch static", "batch odma",
    ]  # fmt: skip
    metrics = (
        "calibrated.static_utilization", "calibrated.s3_accuracy", "utilization.odma", "accuracy",
        "coverage_final", "throughput_gain",
    )  # fmt: skip
    rows = []
    for group in table.groups:
        for case in _cases(table, group):
            batches = [f"{case.row.mean(f'batch.{name}') or 0:.0f}" for name in ("static", "odma")]
            figures = [_figure(case.at(metric)) for metric in metrics]
            rows.append([_dataset(group)["name"], case.name, *figures, *batches])
    return heads, rows


def _cases(table: Table, group: Group) -> list[Case]:
    """The cases that have results, as the sweep lists them."""
    given = {label(value): value for value in table.config["axes"]["assumption"]}
    return [
        Case(given[row.name], row) for row in group.main() if row.name in given and row.replications
    ]


def _dataset(group: Group) -> dict[str, Any]:
    dataset: dict[str, Any] = group.others["dataset"]
    return dataset


def _group(group: Group, cases: list[Case]) -> Iterator[str]:
    if not cases:
        return
    dataset, centre = _dataset(group), cases[0]
    name, paper = dataset["name"], dataset["paper"]
    yield f"{name}: {_solved(paper, centre, cases)}"
    grid = [case for case in cases if "load" not in case.apart(centre)]
    for metric, (key, words) in FIGURES.items():
        yield f"{name}: {words}: {_against(paper[key], metric, centre, grid)}"
    yield f"{name}: {_migrations(grid)}"
    if loads := [case for case in cases if case.apart(centre) == ["load"]]:
        yield f"{name}: {_loads(paper['throughput_gain'], centre, loads)}"
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
    low, high = min(means.values()), max(means.values())
    if low <= paper <= high:
        place = "inside the band"
    else:
        place = f"outside the band, by {100 * max(low - paper, paper - high):.1f} points"
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


def _loads(gain: float, centre: Case, loads: list[Case]) -> str:
    """Gain against load at the centre, and the range in which it is at least the paper's."""
    each = sorted(
        [(float(case.assumption.get("load", 1.5)), case) for case in [*loads, centre]],
        key=lambda pair: pair[0],
    )
    means = [(load, case.row.mean("throughput_gain") or 0.0) for load, case in each]
    text = ", ".join(f"{100 * mean:+.1f} % at {load:g}" for load, mean in means)
    inside = [load for load, mean in means if mean >= gain]
    where = f"from {min(inside):g} to {max(inside):g}" if inside else "at none of them"
    return (
        f"odma over static by load (in units of the best policy's capacity): {text}; the paper's "
        f"{100 * gain:+.0f} % or more {where}."
    )


def _reaching(gain: float, grid: list[Case]) -> str:
    means = {case.name: case.row.mean("throughput_gain") or 0.0 for case in grid}
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
    if found is None:
        return "–"
    if found.count < 2:
        return _share(found.mean)
    return f"{_share(found.mean)} ({100 * found.low:.1f} to {100 * found.high:.1f})"


def _share(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"
