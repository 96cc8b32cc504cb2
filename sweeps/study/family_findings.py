"""What a study shows of its families of trials, of each setting alone, and of random draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.analyse.rows import Record
from sweeps.analyse.statistics import Interval, interval, relative_gap
from sweeps.analyse.table import Row
from sweeps.study.families import families_of
from sweeps.study.trials import BASE, BEST, Trials, judged

_BAND = (0.025, 0.975)


@dataclass(frozen=True)
class FamilyFound:
    """A family: how many of its trials were drawn, had a value on the first rung, were served in
    full, and what its best has in the finale."""

    name: str
    drawn: int
    served: int
    whole: int
    best: str | None
    """Of the finale, by its name there; None where none is in it."""
    trial: int | None
    mean: Interval | None
    against: str | None
    """The best of the finale's trials that are not of the family."""
    gain: Interval | None
    """Over that."""


@dataclass(frozen=True)
class SettingAlone:
    """The best with one setting changed."""

    path: str
    label: str
    x: float | None
    back: bool
    """Whether it is the base's; else a point along the setting."""
    chosen: bool
    """Whether it is what the best has."""
    mean: Interval
    gain: Interval
    """Over the best as it is, paired."""


def best_of_families(trials: Trials) -> list[FamilyFound]:
    """Of each family of the study, in its order."""
    of = {r["trial"]: families_of(trials.families, r["params"]) for r in trials.records}
    rows = _rows_by_trial(trials)
    found = []
    for name in trials.families:
        mine = [r for r in trials.records if name in of[r["trial"]]]
        inside = _first_of(trials, rows, lambda n, name=name: name in of[n])
        outside = _first_of(trials, rows, lambda n, name=name: name not in of[n])
        found.append(FamilyFound(
            name, len(mine), sum(_is_served(r) for r in mine),
            sum(trials.values(r) is not None for r in mine),
            inside and _named(trials, inside[1]), inside and inside[0],
            inside and inside[1].interval(trials.metric),
            outside and _named(trials, outside[1]),
            _gap(trials, inside[1], outside[1]) if inside and outside else None,
        ))  # fmt: skip
    return found


def _named(trials: Trials, row: Row) -> str:
    return trials.chosen if row.name == BEST else row.name


def _rows_by_trial(trials: Trials) -> dict[int, Row]:
    """The finale's contenders that are trials; the best first."""
    firsts = {r.get("first"): r["trial"] for r in trials.records}
    found: dict[int, Row] = {}
    for row in trials.contenders:
        number = trials.trial if row.name == BEST else trials.trial_of.get(row.name)
        if row.name == BASE:
            number = firsts.get(BASE)
        if number is not None:
            found.setdefault(number, row)
    return found


def _first_of(trials: Trials, rows: dict[int, Row], meets: Any) -> tuple[int, Row] | None:
    """The best in the finale where it is one of them, else the one that did best in the search."""
    ranked = sorted(
        (r for r in trials.kept() if r["trial"] in rows and meets(r["trial"])),
        key=lambda r: (r["trial"] != trials.trial, -trials.sign * trials.first(r), r["trial"]),
    )
    return (ranked[0]["trial"], rows[ranked[0]["trial"]]) if ranked else None


def _gap(trials: Trials, ours: Row, theirs: Row) -> Interval | None:
    among = [r for r in ours.replications if r in theirs.replications]
    pairs = ours.values(trials.metric, among), theirs.values(trials.metric, among)
    return relative_gap(*pairs) if among and min(*pairs[0], *pairs[1]) > 0 else None


def _is_served(record: Record) -> bool:
    return bool(record.get("short")) or isinstance(record.get("values"), dict)


def settings_alone(trials: Trials) -> list[SettingAlone]:
    """Of each point of the profile; none where there is none."""
    as_it_is = next((line for line in trials.profile if not line["path"]), None)
    if as_it_is is None or min(as_it_is["values"]) <= 0:
        return []
    own = as_it_is["values"]
    return [
        SettingAlone(
            line["path"], line["label"], line["x"], line["back"], line["values"] == own,
            interval(line["values"]), relative_gap(line["values"], own),
        )
        for line in trials.profile
        if line["path"] and min(line["values"]) > 0
    ]  # fmt: skip


def alone_signs(alone: Sequence[SettingAlone]) -> dict[int, int]:
    """1 or -1 at each place where a setting of the best that is set back to the base's changes
    something, all of these one family (Holm), and by more than what counts as none."""
    back = {str(i): each.gain for i, each in enumerate(alone) if each.back}
    return {int(place): sign for place, sign in judged(back).items()}


def on_first_rung(trials: Trials) -> list[tuple[Record, float]]:
    """Trials and what they have of the first objective: on the first rung, where there is one."""
    return sorted(trials.alike(), key=lambda pair: int(pair[0]["trial"]))


def random_band(trials: Trials) -> list[tuple[float, float]]:
    """Between which values the best of k random draws lies, k from 1 to the number of trials: 95 %
    of the draws with replacement from the values of the space-filling phase. Empty without one."""
    values = sorted(
        trials.sign * value for r, value in on_first_rung(trials) if r.get("phase") == "random"
    )
    if len(values) < 2:
        return []
    count = len(values)
    return [
        tuple(sorted(trials.sign * _quantile(values, count, k, q) for q in _BAND))  # type: ignore[misc]
        for k in range(1, len(trials.records) + 1)
    ]


def _quantile(values: list[float], count: int, draws: int, share: float) -> float:
    """The least value that the best of so many draws stays below with this probability."""
    return next(v for i, v in enumerate(values, 1) if (i / count) ** draws >= share - 1e-12)
