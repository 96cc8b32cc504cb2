"""What does not fit: which points, why, and with what they would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sweeps.analyse.label import named
from sweeps.analyse.table import Table, group_title
from sweeps.plan.experiment import assignments
from sweeps.sections.formats import NONE, listed
from sweeps.sections.section import Grid, Say, Section


class _Unfit(NamedTuple):
    """Points of a group that do not fit for the same reason."""

    points: str
    names: str
    """Of the competitors, or `all`."""
    why: str
    change: str


def sections(table: Table) -> list[Section]:
    """A row for those of a group that do not fit for the same reason."""
    found = list(_unfit(table))
    rows = [[each.points, each.names, each.change or NONE] for each in found]
    why = [Say(f"{text}.") for text in dict.fromkeys(each.why for each in found)]
    grid = Grid("", ["points", table.compared, "would fit with"], rows)
    return [Section("Does not fit", [grid, *why])] if rows else []


def sentences(table: Table) -> list[str]:
    """One on all of them."""
    said = [
        each.points + f" with {each.names}" * (each.names != "all")
        + f" (would with {each.change})" * bool(each.change)
        for each in _unfit(table)
    ]  # fmt: skip
    return [f"Does not fit: {'; '.join(dict.fromkeys(said))}."] if said else []


def _unfit(table: Table) -> Iterator[_Unfit]:
    compared = table.config["compare"]
    every = [named(compared, value) for value in table.config["axes"].get(compared, ())]
    found: dict[tuple[str, str, str], list[str]] = {}
    for each in table.misfits:
        others = {path: value for path, value in each.overrides.items() if path != compared}
        title = group_title(others, table.config) + f" ({each.control})" * bool(each.control)
        change = ", ".join(assignments(each.fits_with or {}))
        names = found.setdefault((title, each.why, change), [])
        names.append(named(compared, each.overrides.get(compared, "")))
    for (title, why, change), names in found.items():
        whole = len(every) > 1 and set(every) <= set(names)
        yield _Unfit(title, "all" if whole else listed(names), why, change)
