"""The sections of a study's report: its finale, its best settings, how the search went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from hwmodel.description.yaml_writer import to_yaml_flow
from sweeps.analyse.figures import FIGURES
from sweeps.analyse.statistics import Interval, interval
from sweeps.report.group_sections import drawn, every_pair, grid
from sweeps.report.study_answer import answer_blocks
from sweeps.run.findings import Findings
from sweeps.sections.chart import Axis, Bar, Bars, Chart, Lines, Series
from sweeps.sections.formats import share
from sweeps.sections.section import Block, Grid, Section
from sweeps.study.study_findings import StudyFindings
from sweeps.study.trials import (
    BASE,
    LEAST,
    RESAMPLES,
    Trials,
    broken,
    importances,
    settings,
    unbeaten,
    words,
)

_SLICES = 16
_ENOUGH = 5
"""Trials from which on a setting that few of them have is drawn (assumed)."""


def study_blocks(findings: Findings[StudyFindings]) -> list[Block]:
    """The sections of a study: its finale, its best settings, its search."""
    trials, groups = findings.own.trials, findings.table.groups
    blocks: list[Block] = list(answer_blocks(findings.own))
    blocks += [
        Section(
            group.title,
            [grid(findings, group), *drawn(findings, group), *every_pair(findings, group)],
        )
        for group in groups
    ]
    if findings.own.trial is not None:
        rows = settings_rows(findings.own)
        marked = frozenset(i for i, row in enumerate(rows) if row[1] != row[2])
        heads = ["input", BASE, f"trial {findings.own.trial}"]
        grid_of = Grid("", heads, rows, marked=marked, text=True)
        blocks.append(Section("What it has instead of the base", [grid_of]))
    if trials.limit is not None:
        blocks.append(Section("Reservation of outputs that stays unused", [_unused(trials.limit)]))
    search: list[Block] = list(_search(trials))
    return [*blocks, Section("The search", [*search, _trials(trials)])]


def settings_rows(findings: StudyFindings) -> list[list[str]]:
    """Input, what the base has, what the chosen trial has."""
    return [[each.path, _written(each.base), _written(each.value)] for each in findings.settings]


def _unused(limit: dict[str, Any]) -> Grid:
    """What buckets leave unused over time: at least, with all lengths known, and as found; each
    with its own bounds."""
    words = {"least": "least, all lengths known", "chosen": "chosen trial", BASE: BASE}
    rows = [
        [
            text, ", ".join(map(str, dict.fromkeys(limit[key]["bounds"]))), limit[key]["of"],
            share(limit[key]["unused"], 1),
        ]
        for key, text in words.items() if key in limit
    ]  # fmt: skip
    return Grid("", ["", "bounds, tokens", "of", "unused"], rows)


def _written(value: object) -> str:
    if value == []:  # levels that a balance sets
        return "–"
    if isinstance(value, list):
        value = [round(item, 4) if isinstance(item, float) else item for item in value]
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else to_yaml_flow(value)


def _search(trials: Trials) -> Iterator[Chart]:
    kept = trials.kept()
    if not kept:
        return
    yield _history(trials)
    if len(trials.objectives) > 1:
        yield front_chart(trials)
    if len(trials.alike()) < LEAST:
        several = Counter(name for record in kept for name in settings(record))
        for name in [name for name, count in several.items() if count >= _ENOUGH][:_SLICES]:
            yield _slice(trials, name)
        return
    shares = importances(trials).items()
    bars = [
        Bar(name, Interval(100 * s.mean, 100 * s.low, 100 * s.high, s.count)) for name, s in shares
    ]
    yield Bars(
        f"Importance for {trials.words}, %", bars,
        "PED-ANOVA (Optuna): how far the best tenth of the trials differs from all trials in each"
        " setting alone. A sampler that has settled draws few poor values, so this describes the"
        f" region it searched. Intervals: 95 % of {RESAMPLES} bootstrap samples of the trials.",
        figure="importance",
    )  # fmt: skip
    for name, _ in list(shares)[:_SLICES]:
        yield _slice(trials, name)


def _history(trials: Trials) -> Lines:
    """Each trial's value, and the best so far."""
    axis, kept = trials.words, trials.kept()
    found, best = [], None
    for record in kept:
        value = trials.first(record)
        best = value if best is None else trials.sign * max(trials.sign * best, trials.sign * value)
        found.append(best)
    numbers = [record["trial"] for record in kept]
    bad = [r for r in trials.records if trials.values(r) is not None and broken(r)]
    series = [
        Series("best so far", numbers, found, steps=True),
        Series("trials", numbers, [trials.first(r) for r in kept]),
    ]
    if bad:
        places = [r["trial"] for r in bad]
        series.append(Series("breaks a constraint", places, [trials.first(r) for r in bad]))
    return Lines(f"History: {axis}", Axis("trial"), Axis(axis, zero=False), series, "", "points",
                 figure="history")  # fmt: skip


def front_chart(trials: Trials) -> Lines:
    """The first two objectives of every trial; those that no other beats apart."""
    x, y = (words(str(o.get("metric"))) for o in trials.objectives[:2])
    ahead = {record["trial"] for record in unbeaten(trials)}
    series = []
    for name, chosen in (("no other is better in all", True), ("others", False)):
        mine = [r for r in trials.kept() if (r["trial"] in ahead) is chosen]
        points = sorted(
            (*values[:2], f"{r['trial']}") for r in mine if (values := trials.values(r))
        )
        if points:
            xs, ys, names = zip(*points, strict=True)
            if chosen and len(points) > 1 and len(trials.objectives) == 2:
                series.append(_attained(xs, ys, trials.sign > 0))
            series.append(Series(name, xs, ys, names=names if chosen else ()))
    note = "Numbers: trials." + " The first two of the objectives." * (len(trials.objectives) > 2)
    return Lines(
        f"Pareto front: {y} against {x}", Axis(x, zero=False), Axis(y, zero=False), series, note,
        "points", figure="front",
    )  # fmt: skip


def _attained(xs: Sequence[float], ys: Sequence[float], more: bool) -> Series:
    """The second objective that is reached at each value of the first, of which `more` is better:
    that of the nearest trial that is as good or better in the first."""
    if not more:
        return Series("front", xs, ys, steps=True)
    turns = [(x, y) for x, pair in zip(xs, pairwise(ys), strict=False) for y in pair]
    turns.append((xs[-1], ys[-1]))
    return Series("front", [x for x, _ in turns], [y for _, y in turns], steps=True)


def _slice(trials: Trials, name: str) -> Chart:
    """The first objective against one setting."""
    found = [(settings(record).get(name), trials.first(record)) for record in trials.kept()]
    pairs = [(value, result) for value, result in found if value is not None]
    title = f"{trials.words} against {name}"
    if all(isinstance(value, (int, float)) for value, _ in pairs):
        pairs.sort()
        log = bool((trials.space.get(name) or {}).get("log"))
        axis = Axis(name, "log" if log else "linear", zero=False)
        series = [Series("trials", [p for p, _ in pairs], [v for _, v in pairs])]
        y = Axis(trials.words, zero=False)
        return Lines(title, axis, y, series, "", "points", figure="against")
    choices: dict[str, list[float]] = {}
    for choice, value in pairs:
        choices.setdefault(str(choice), []).append(value)
    bars = [Bar(f"{c} (n = {len(v)})", interval(v)) for c, v in choices.items()]
    bars.sort(key=lambda bar: -trials.sign * bar.value.mean)
    return Bars(title, bars, "Mean of the trials with each choice.", figure="against")


def _trials(trials: Trials) -> Section:
    """Every trial."""
    names = list(dict.fromkeys(name for record in trials.records for name in record["params"]))
    wanted = [str(o.get("metric")) for o in trials.objectives]
    objectives = [words(metric) for metric in wanted]
    shown = [figure for figure in FIGURES if figure.metric not in wanted]
    columns = ["trial", "proposed by", "state", "on the first rung", *objectives, "constraints",
               *(f.heading for f in shown), *names]  # fmt: skip
    rows = []
    for record in trials.records:
        values = trials.values(record)
        cells = ["–"] * len(objectives) if values is None else [f"{v:,.4g}" for v in values]
        metrics = record.get("metrics") or {}
        told = [f.text(metrics.get(f.metric)) for f in shown]
        params = [_written(record["params"].get(name)) for name in names]
        state, kept = record.get("state", "complete"), "broken" if broken(record) else "kept"
        phase = record.get("first") or record.get("phase") or "–"
        short = (record.get("short") or {}).get(wanted[0])
        rung = "–" if short is None else f"{short:,.4g}"
        head = [str(record["trial"]), phase, state, rung]
        rows.append([*head, *cells, kept, *told, *params])
    return Section(f"All {len(rows)} trials", [Grid("", columns, rows)], folded=True)
