"""What the groups of a run say together: on what the winner depends, and what is open.

Along a device, a model or a workload another winner is a finding. Along any other axis, or in a
control, it is a number that somebody chose: then the answer hangs on that number and is open.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from sweeps.experiments.sweep import DESCRIBED, label
from sweeps.reports.gap import CONTROL
from sweeps.reports.table import Group, Row, Table
from sweeps.reports.verdict import Verdict, judge
from sweeps.results.figures import THROUGHPUT

_ASKED = (*DESCRIBED, "load", "slo", "requests")
"""Axes that begin so are questions, not assumptions."""


def sentences(table: Table) -> list[str]:
    """What a run found, in the words of its kind."""
    found: list[str] = table.kind.sentences(table)
    return found


def sweep_sentences(table: Table) -> list[str]:
    """What the groups say together, then the verdict of each."""
    verdicts = [judge(group) for group in table.groups]
    return [*conclusions(table, verdicts), *(verdict.sentence for verdict in verdicts)]


def conclusions(table: Table, verdicts: list[Verdict]) -> list[str]:
    """Sentences on all groups; none where there is one alone and no control turns it."""
    known = {id(group): v for group, v in zip(table.groups, verdicts, strict=True)}
    found: list[str] = []
    for axis in table.config["axes"]:
        for title, groups in _along(table, axis):
            found += _axis(table, axis, title, groups, known)
    return [*found, *_controls(table, verdicts)]


def _along(table: Table, axis: str) -> Iterator[tuple[str, list[Group]]]:
    """Groups that differ in this axis alone, and what they have in common."""
    parts: dict[str, list[Group]] = {}
    titles = {}
    for group in table.groups:
        if axis in group.others:
            rest = {path: value for path, value in group.others.items() if path != axis}
            key = json.dumps(rest, sort_keys=True, default=str)
            parts.setdefault(key, []).append(group)
            titles[key] = ", ".join(map(label, rest.values()))
    yield from ((titles[key], groups) for key, groups in parts.items() if len(groups) > 1)


def _axis(
    table: Table, axis: str, title: str, groups: list[Group], known: dict[int, Verdict]
) -> Iterator[str]:
    where = f"{title}: " if title else ""
    outcomes = [(label(group.others[axis]), known[id(group)]) for group in groups]
    winners = list(dict.fromkeys(v.best for _, v in outcomes if v.outcome == "won"))
    if not winners:
        return
    told = "; ".join(f"{value}: {verdict.short}" for value, verdict in outcomes)
    serves = "serves the most" if any(map(_top, groups)) else "reads fastest"
    same = len(winners) == 1 and all(v.outcome == "won" for _, v in outcomes)
    if same:
        values = ", ".join(value for value, _ in outcomes)
        yield f"{where}{winners[0]} {serves} whatever the {_word(axis)} ({values})."
    elif axis.split(".")[0] in _ASKED:
        what = f"{where}Which {table.compared} {serves}"
        yield f"{what} depends on the {_word(axis)} ({told})."
    elif len(winners) > 1:
        yield f"{where}undecided: the answer changes with {axis} ({told})."
    if axis == "device":
        yield from _devices(where, groups)


def _devices(where: str, groups: list[Group]) -> Iterator[str]:
    """How the best of each device compare: offered loads differ, so this is what they served."""
    tops = [(label(group.others["device"]), top) for group in groups if (top := _top(group))]
    tops.sort(key=lambda item: -(item[1].mean(THROUGHPUT) or 0.0))
    if len(tops) > 1:
        (first, best), *rest = tops
        most = best.mean(THROUGHPUT) or 0.0
        told = ", ".join(
            f"{most / (row.mean(THROUGHPUT) or 1.0):.1f} times as many as {name} with {row.name}"
            for name, row in rest
        )
        yield f"{where}{first} with {best.name} serves {most:,.1f} output tokens/s, {told}."


def _top(group: Group) -> Row | None:
    rows = [row for row in group.main() if row.mean(THROUGHPUT)]
    return max(rows, key=lambda row: row.mean(THROUGHPUT) or 0.0, default=None)


def _controls(table: Table, verdicts: list[Verdict]) -> Iterator[str]:
    """Controls, but the one that takes memory's banks away, in which somebody else wins."""
    for name, changed in (table.config.get("controls") or {}).items():
        if name == CONTROL:
            continue
        for group, verdict in zip(table.groups, verdicts, strict=True):
            rows = [Row(r.name, "", r.replications) for r in group.rows if r.control == name]
            there = judge(Group(group.title, rows))
            if {verdict.outcome, there.outcome} == {"won"} and verdict.best != there.best:
                what = ", ".join(f"{path}={label(value)}" for path, value in changed.items())
                yield (
                    f"{group.title}: undecided: the answer changes with {what or name} "
                    f"({verdict.short} without, {there.short} with it)."
                )


def _word(axis: str) -> str:
    return axis if axis.split(".")[0] not in DESCRIBED or "." in axis else axis.replace("_", " ")
