"""The map of crossings with several others: who serves the most in each cell, by how much, where
the first ties with the best of the others, and which cells change hands with an objection."""

from __future__ import annotations

import itertools
import math

from hwmodel.measure.student import LEVEL
from sweeps.analyse.crossing import sure
from sweeps.analyse.facts import Verdict
from sweeps.analyse.table import DOES_NOT_FIT
from sweeps.plan.crossing_findings import Crossed, Crossings, Search
from sweeps.sections.chart import Axis, RowSpan, Spans
from sweeps.sections.formats import NONE, at_most, between, effect, gain
from sweeps.sections.section import Block, Grid, Say, Section

_STEPS = 24
"""Of the picture, in a decade of the ratio."""


def regions(crossings: Crossings) -> Spans:
    """The map: a row a cell over the number."""
    owners = [crossings.ours, *crossings.theirs]
    cells = [cell for cell in crossings.cells if len(_number(cell).answers) > 1]
    return Spans(
        f"Who {crossings.objective.wins} on {crossings.device}, {crossings.model}",
        Axis(_number(crossings.cells[0]).name, "log"), [cell.name for cell in cells],
        [span for cell in cells for span in _spans(cell)], dict.fromkeys(owners, ""),
        ties={cell.name: at for cell in cells if (at := _number(cell).at) is not None},
        note=f"Colour: {crossings.ours} or the best of the others, whichever is better; shade:"
        " by how much, interpolated between simulated values, palest where that is not"
        " significant by itself; line: tie with its"
        f" {100 * LEVEL:.0f} % interval. n = {crossings.replications}.",
        figure="map",
    )  # fmt: skip


def _number(cell: Search) -> Crossed:
    """The one number of a map."""
    return cell.numbers[0]


def _spans(cell: Search) -> list[RowSpan]:
    """Between neighbouring values in steps, interpolated between logarithms; cut at the tie."""
    number = _number(cell)
    leads = number.parameter.leads(number.answers)
    points, tie = {value: each.mean for value, each in leads.items()}, number.at
    if tie is not None:
        points[tie.mean] = 0.0
    made = []
    for (a, before), (b, after) in itertools.pairwise(sorted(points.items())):
        steps = math.ceil(_STEPS * math.log10(b / a))
        for k in range(steps):
            low, high = (a * (b / a) ** (step / steps) for step in (k, k + 1))
            lead = before + (after - before) * (k + 0.5) / steps
            owner, middle = cell.pair[0 if lead > 0 else 1], math.sqrt(low * high)
            tied = tie is not None and tie.low <= middle <= tie.high
            told = not tied and sure(leads, middle, number.parameter.log)
            made.append(RowSpan(cell.name, low, high, owner, lead=math.expm1(abs(lead)), sure=told))
    return made


def _rows(found: Crossings) -> list[list[str]]:
    return [
        [
            cell.name, _first(cell), _lead(cell.verdict),
            *(_rate(found, cell, name) for name in found.policies),
            effect(cell.now), _tie(found, cell),
            "; ".join(f"{n} {effect(each)}" for n, each in cell.references.items()) or NONE,
            "; ".join(cell.upheld) or NONE,
        ]
        for cell in found.shown
    ]  # fmt: skip


def _rate(found: Crossings, cell: Search, name: str) -> str:
    """What one that competes comes to."""
    fits = name in cell.rates
    return found.objective.text(cell.rates[name].mean) if fits else DOES_NOT_FIT


def _first(cell: Search) -> str:
    """Who wins, or how far those that tie are apart at most."""
    verdict = cell.verdict
    assert verdict is not None
    text = cell.winner or f"{', '.join(verdict.ties)}: {at_most(verdict.within)} apart"
    return text if verdict.bound else f"{text} (KV memory not the limit)"


def _lead(verdict: Verdict | None) -> str:
    """Of the first over the second."""
    assert verdict is not None
    return f"{gain(verdict.gaps[0].total)} over {verdict.gaps[0].other}"


def _tie(found: Crossings, cell: Search) -> str:
    """Where a cell ties, or that it does not in the range."""
    number = _number(cell)
    if number.at is not None:
        return between(number.at, "{:.2f}".format)
    if number.side is None:
        return DOES_NOT_FIT if number.outcome == DOES_NOT_FIT else "not found yet"
    low, high = (number.parameter.number(end) for end in (0, 1))
    return f"none: {found.ours} {'ahead' if number.side > 0 else 'behind'} from {low:g} to {high:g}"


def _grid(found: Crossings) -> Grid:
    over = f"{found.ours} over the best of the others"
    heads = ["cell", "best", "lead", *(f"{name} {found.objective.unit}" for name in found.policies),
             over, "tie at", "reference over the first", "changes hands with"]  # fmt: skip
    return Grid("", heads, _rows(found), frozenset(
        i for i, cell in enumerate(found.shown) if cell.winner is None))  # fmt: skip


def _pleas(found: Crossings) -> Grid:
    """What each policy's lawyer would object, and what it changes."""
    rows = [
        [of, name, why, str(len(cells)), ", ".join(cell.name for cell in cells) or NONE]
        for name, (of, why) in found.objections.items()
        for cells in [[cell for cell in found.cells if name in cell.upheld]]
    ]
    return Grid("", ["for", "objection", "why", "cells", "change hands"], rows, text=True)


def _readings(found: Crossings) -> Grid:
    """Who wins how many cells under each reading, and which change hands."""
    rows = []
    for name, why in found.readings.items():
        known, won = found.under(name), found.won(name)
        hands = [cell.name for cell in known if name in cell.upheld]
        rows.append([
            name, why, *(str(won[policy]) for policy in (*found.policies, "")), str(len(hands)),
            "; ".join(hands) or NONE, str(sum(name in cell.opened for cell in known)),
        ])  # fmt: skip
    heads = ["reading", "why", *found.policies, "none", "change hands", "which", "lead lost"]
    return Grid("", heads, rows, text=True)


def blocks(crossings: Crossings, grids: list[Grid]) -> list[Block]:
    """The map, its tables, and what disputes change."""
    note = Say(
        f"(a to b): {100 * LEVEL:.0f} % intervals of ratios paired by replication, each by"
        " itself; the best of the others is chosen by its mean. Who wins is corrected for"
        f" {len(crossings.cells)} cells (Holm); how far some are apart at most holds for all that"
        " tie in a cell. A tie is interpolated between simulated values. Pale: no winner."
    )
    drawn = any(len(_number(cell).answers) > 1 for cell in crossings.cells)
    made: list[Block] = [regions(crossings)] if drawn else []
    made += [grids[0], note, Section("Objections", [_pleas(crossings)])]
    if crossings.readings:
        made.append(Section("Under other readings", [grids[1], Say(
            f"Of {len(crossings.cells)} cells, those that each policy wins significantly (none: no"
            " winner), that another wins than as described, and whose lead is no longer"
            " significant: corrected for the cells of each reading (Holm); another winner over all"
            " readings and objections (Bonferroni)."
        )]))  # fmt: skip
    return [Section("Map", made)]


def grids(crossings: Crossings) -> list[Grid]:
    """The cells, and who wins how many under each reading."""
    return [_grid(crossings), *([_readings(crossings)] if crossings.readings else [])]
