"""One page in which a reader moves what runs have varied: values between simulated points are
interpolated, with the error that this makes, and nothing is said outside of them.

Between the values of axes of numbers it is linear, in logarithms where they span a factor of
`_LOGARITHMIC`; other axes are chosen from. The error is of leaving out one simulated point that has
neighbours on both sides along an axis, and telling it from these; the mean where several axes have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from sweeps.analyse.label import named
from sweeps.report.contents import Report
from sweeps.report.page import rendered
from sweeps.report.palette import colours
from sweeps.report.trend import numbers_along

_LOGARITHMIC = 8.0
Place = tuple[float, ...]


def explorer(reports: Sequence[Report]) -> str:
    """The page of these runs, one file that needs no network."""
    return rendered("explore.html", runs=[explored(report) for report in reports])


def explored(report: Report) -> dict[str, Any]:
    """A run in JSON's types. axes: those of numbers, with the coordinates that were simulated;
    points: of each competitor, a value of the objective with its interval at each place."""
    table = report.table
    others = list(dict.fromkeys(path for group in table.groups for path in group.others))
    along = {
        path: numbers_along(table, path)
        for path in others
        if path in table.config["axes"] and path.split(".")[0] != "load"
    }
    axes = {path: each for path, each in along.items() if each is not None}
    choices = [path for path in others if path not in axes]
    objective = table.groups[0].objective if table.groups else None
    points: list[dict[str, Any]] = []
    for row in (row for group in table.groups for row in group.main()):
        place = [each.of(row) for each in axes.values()]
        found = None if objective is None else row.interval(objective.metric)
        if found is not None and None not in place:
            ends = [v if math.isfinite(v) else None for v in (found.low, found.high)]
            picked = [named(path, row.overrides.get(path)) or "as described" for path in choices]
            points.append({"name": row.name, "at": place, "of": picked,
                           "value": [found.mean, *ends]})  # fmt: skip
    drawn = colours(list(dict.fromkeys(point["name"] for point in points)))
    short = _without_what_all_say(list(drawn))
    points = [{**point, "name": short[point["name"]]} for point in points]
    names = list(short.values())
    spans = [sorted({point["at"][i] for point in points}) for i in range(len(axes))]
    logs = [bool(s) and s[0] > 0 and s[-1] >= _LOGARITHMIC * s[0] for s in spans]
    return {
        "name": table.name, "question": table.question or str(table.config.get("summary", "")),
        "sentences": report.sentences,
        "objective": None if objective is None else {
            "words": objective.words, "scale": objective.scale, "digits": objective.digits,
            "less": objective.less},
        "axes": [{"label": each.drawn.label, "values": span, "log": log,
                  "bytes": each.drawn.scale == "bytes"}
                 for each, span, log in zip(axes.values(), spans, logs, strict=True)],
        "choices": [{"label": path, "values": [*dict.fromkeys(each["of"][i] for each in points)]}
                    for i, path in enumerate(choices)],
        "points": points, "names": names,
        "colours": {short[name]: colour for name, colour in drawn.items()},
        "error": {name: _error([p for p in points if p["name"] == name], logs) for name in names},
    }  # fmt: skip


def _without_what_all_say(names: Sequence[str]) -> dict[str, str]:
    """A short name of each: the words that not all have, where those tell all apart."""
    words = [name.split(" ") for name in names]
    common = set.intersection(*map(set, words)) if len(names) > 1 else set()
    short = [" ".join(word for word in each if word not in common) for each in words]
    apart = all(short) and len({*short}) == len(names)
    return dict(zip(names, short if apart else names, strict=True))


def _error(points: list[dict[str, Any]], logs: Sequence[bool]) -> dict[str, float] | None:
    """Median and worst relative error over the points of a competitor that can be left out; None
    where none can."""
    by_choice: dict[tuple[str, ...], dict[Place, float]] = {}
    for point in points:
        place = tuple(math.log(x) if log else x for x, log in zip(point["at"], logs, strict=True))
        by_choice.setdefault(tuple(point["of"]), {})[place] = point["value"][0]
    found = [
        abs(told / value - 1)
        for known in by_choice.values()
        for place, value in known.items()
        if value and (told := left_out(known, place)) is not None
    ]
    if not found:
        return None
    return {"median": median(found), "worst": max(found), "count": len(found)}


def left_out(known: Mapping[Place, float], place: Place) -> float | None:
    """What the neighbours of a place say of it, linear along each axis, the mean of axes; None
    where it has none on both sides."""
    told = []
    for axis, x in enumerate(place):
        line = {p[axis]: v for p, v in known.items()
                if p[:axis] + p[axis + 1 :] == place[:axis] + place[axis + 1 :]}  # fmt: skip
        below, above = [p for p in line if p < x], [p for p in line if p > x]
        if below and above:
            a, b = max(below), min(above)
            told.append(line[a] + (line[b] - line[a]) * (x - a) / (b - a))
    return fmean(told) if told else None
