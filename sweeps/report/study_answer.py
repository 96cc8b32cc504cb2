"""The answer of a study in two pictures: what its settings are worth, and how the search went."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.sections.chart import Axis, Bar, Bars, Lines, Series
from sweeps.sections.formats import between, gain
from sweeps.sections.section import Block, Grid, Section
from sweeps.study.family_findings import (
    FamilyFound,
    SettingAlone,
    on_first_rung,
    random_band,
)
from sweeps.study.study_findings import StudyFindings
from sweeps.study.trials import Trials

NONE = "–"


def answer_blocks(findings: StudyFindings) -> Iterator[Block]:
    """Along the study's profiles, and each setting alone; best so far over the trials; families."""
    trials = findings.trials
    blocks: list[Block] = [*_profiles(trials, findings.alone), *_alone(findings.alone)]
    if findings.families:
        blocks.append(_families(findings.families, trials.words))
    if blocks:
        yield Section("What its settings are worth", blocks)
    if drawn := search_chart(trials):
        yield drawn


def _profiles(trials: Trials, alone: list[SettingAlone]) -> Iterator[Lines]:
    """The objective along each path of numbers that is a profile."""
    as_it_is = [line["values"] for line in trials.profile if not line["path"]]
    own = sum(as_it_is[0]) / len(as_it_is[0]) if as_it_is else 0.0
    paths = dict.fromkeys(each.path for each in alone if not each.back and each.x is not None)
    for path in paths:
        points = sorted(
            (each for each in alone if each.path == path and not each.back),
            key=lambda each: each.x or 0.0,
        )
        xs = [each.x or 0.0 for each in points]
        low, mean, high = (
            [own * (1 + getattr(each.gain, part)) for each in points]
            for part in ("low", "mean", "high")
        )
        series = Series(trials.words, xs, mean, low, high)
        name = path.rpartition(".")[2]
        label = "number of buckets" if name == "levels" else f"{name}"
        yield Lines(
            f"{trials.words} over {label}", Axis(label), Axis(trials.words, zero=False), [series],
            "All else as the chosen trial has it, on replications that the search never saw,"
            " each served as on the first rung; intervals are of the change against the chosen"
            " trial, paired by replication.", "points", figure="profile",
        )  # fmt: skip


def _alone(alone: list[SettingAlone]) -> Iterator[Bars]:
    """Each setting of the chosen trial set back to the base's, alone."""
    bars = [
        Bar(f"{each.path.rpartition('.')[2]}: {each.label}", each.gain)
        for each in sorted((a for a in alone if a.back), key=lambda a: a.gain.mean)
    ]
    if bars:
        yield Bars(
            "Each setting set back to the base's, alone", bars,
            "Change of the objective against the chosen trial, paired by replication.",
            relative=True, figure="alone",
        )  # fmt: skip


def _families(found: list[FamilyFound], objective: str) -> Grid:
    """A row a family."""
    heads = [
        "family", "drawn", "served", "in full", "best", objective, "over the best outside of it",
    ]  # fmt: skip
    rows = [
        [
            each.name, str(each.drawn), str(each.served), str(each.whole), each.best or NONE,
            NONE if each.mean is None else between(each.mean, "{:,.4g}".format),
            NONE if each.gain is None else f"{gain(each.gain)}, {each.against}",
        ]
        for each in found
    ]  # fmt: skip
    return Grid("Families of trials", heads, rows)


def search_chart(trials: Trials) -> Lines | None:
    """Trials as all of them were served, the best so far, and what random draws would have."""
    served = on_first_rung(trials)
    if len(trials.objectives) > 1 or not served:
        return None
    best: float | None = None
    so_far = []
    for _, value in served:
        best = value if best is None else trials.sign * max(trials.sign * best, trials.sign * value)
        so_far.append(best)
    numbers = [record["trial"] for record, _ in served]
    series = [Series("best so far", numbers, so_far, steps=True)]
    for phase in ("first", "random", "tpe"):
        mine = [(r["trial"], value) for r, value in served if r.get("phase") == phase]
        if mine:
            series.append(Series(phase, *zip(*mine, strict=True)))  # type: ignore[arg-type]
    if band := random_band(trials):
        lows, highs = zip(*band, strict=True)
        xs = range(len(band))
        series.append(Series("random draws: best so far, 95 %", xs, lows, lows, highs, band=True))
    axis = Axis(trials.words, zero=False)
    return Lines(
        f"Search: {trials.words} on the first rung", Axis("trial"), axis, series,
        "The band is what the best of as many random draws would be, drawn again with replacement"
        " from those of the space-filling phase; beyond their number it ends at the best of them.",
        "points", figure="search",
    )  # fmt: skip
