"""A run of the map of an answer: who serves the most in each cell, by how much, where paging ties
with the best contiguous policy, and which cells change hands when an objection is upheld."""

from __future__ import annotations

import itertools
import math

from hwmodel.measure.student import LEVEL
from sweeps.analyse.facts import Verdict
from sweeps.analyse.rows import at
from sweeps.analyse.table import Table
from sweeps.plan.answer import (
    AnswerCell,
    AnswerMap,
)
from sweeps.report import sentences
from sweeps.report.chart import Region, Regions
from sweeps.report.formats import NONE, at_most, between, effect, gain
from sweeps.report.presenter import Presenter
from sweeps.report.section import Block, Grid, Say, Section
from sweeps.run.findings import Findings

_STEPS = 24
"""Of the picture, in a decade of the ratio."""


def regions(found: AnswerMap) -> Regions:
    """The map: a row a cell over the ratio of bandwidths."""
    owners = [found.scattered, *found.contiguous]
    cases = {cell.name: _regions(cell, owners) for cell in found.cells if len(cell.found) > 1}
    return Regions(
        f"Who {found.objective.wins} on {found.device}, {found.model}",
        "KV bandwidth, scattered over contiguous", owners, cases,
        {cell.name: cell.tied for cell in found.cells if cell.tied is not None},
        f"Colour: {found.scattered} or the best contiguous policy, whichever is better; shade:"
        " by how much, interpolated between simulated ratios, palest where that is not"
        " significant by itself; line: tie with its"
        f" {100 * LEVEL:.0f} % interval. As described the ratio is 1. n = {found.replications}.",
        figure="map",
    )  # fmt: skip


def _regions(cell: AnswerCell, owners: list[str]) -> list[Region]:
    """Between neighbouring ratios in steps, interpolated between logarithms; cut at the tie."""
    points = {ratio: each.mean for ratio, each in cell.found.items()}
    if cell.tied is not None:
        points = dict(sorted({**points, cell.tied.mean: 0.0}.items()))
    made = []
    for (a, before), (b, after) in itertools.pairwise(points.items()):
        steps = math.ceil(_STEPS * math.log10(b / a))
        for k in range(steps):
            low, high = (a * (b / a) ** (step / steps) for step in (k, k + 1))
            lead = before + (after - before) * (k + 0.5) / steps
            owner = owners[0] if lead > 0 else cell.best_contiguous
            sure = _sure(cell, math.sqrt(low * high))
            made.append(Region(low, high, owners.index(owner), math.expm1(abs(lead)), sure))
    return made


def _sure(cell: AnswerCell, ratio: float) -> bool:
    """Whether the lead there is significant, by the intervals at the simulated ratios beside it."""
    if cell.tied is not None and cell.tied.low <= ratio <= cell.tied.high:
        return False
    a, b = next(ends for ends in itertools.pairwise(cell.found) if ends[0] <= ratio <= ends[1])
    part = math.log(ratio / a) / math.log(b / a)
    before, after = cell.found[a], cell.found[b]
    low = before.low + (after.low - before.low) * part  # nan of one replication
    high = before.high + (after.high - before.high) * part
    return low > 0 or high < 0


def _rows(found: AnswerMap) -> list[list[str]]:
    return [
        [
            cell.name, _first(cell), _lead(cell.verdict),
            *(found.objective.text(cell.rates[name].mean) for name in found.policies),
            effect(cell.scattered), _tie(found, cell),
            "; ".join(f"{n} {effect(each)}" for n, each in cell.references.items()) or NONE,
            "; ".join(cell.upheld) or NONE,
        ]
        for cell in found.shown
    ]  # fmt: skip


def _first(cell: AnswerCell) -> str:
    """Who wins, or how far those that tie are apart at most."""
    verdict = cell.verdict
    text = cell.winner or f"{', '.join(verdict.ties)}: {at_most(verdict.within)} apart"
    return text if verdict.bound else f"{text} (KV memory not the limit)"


def _lead(verdict: Verdict) -> str:
    """Of the first over the second."""
    return f"{gain(verdict.gaps[0].total)} over {verdict.gaps[0].other}"


def _tie(found: AnswerMap, cell: AnswerCell) -> str:
    """Where a cell ties, or that it does not in the range."""
    if cell.tied is not None:
        return between(cell.tied, "{:.2f}".format)
    if cell.side is None:
        return "not found yet"
    side = "ahead" if cell.side > 0 else "behind"
    return f"none: {found.scattered} {side} from {min(cell.found):g} to {max(cell.found):g}"


def _grid(found: AnswerMap) -> Grid:
    over = f"{found.scattered} over the best contiguous"
    heads = ["cell", "best", "lead", *(f"{name} {found.objective.unit}" for name in found.policies),
             over, "tie at", "reference over the first", "changes hands with"]  # fmt: skip
    return Grid("", heads, _rows(found), frozenset(
        i for i, cell in enumerate(found.shown) if cell.winner is None), sides="<<>")  # fmt: skip


def _pleas(found: AnswerMap) -> Grid:
    """What each policy's lawyer would object, and what it changes."""
    rows = [
        [of, name, why, str(len(cells)), ", ".join(cell.name for cell in cells) or NONE]
        for name, (of, why) in found.objections.items()
        for cells in [[cell for cell in found.cells if name in cell.upheld]]
    ]
    return Grid("", ["for", "objection", "why", "cells", "change hands"], rows, text=True)


def _readings(found: AnswerMap) -> Grid:
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


class AnswerPage(Presenter):
    """Who wins where, and where that ties."""

    def sentences(self, found: Findings[AnswerMap]) -> list[str]:
        """The answer over all cells; the ties; the objections and readings."""
        return list(sentences.answer(found.own))

    def sections(self, findings: Findings[AnswerMap], grids: list[Grid]) -> list[Block]:
        found = findings.own
        note = Say(
            f"(a to b): {100 * LEVEL:.0f} % intervals of ratios paired by replication, each by"
            " itself; the best contiguous policy is chosen by its mean. Who wins is Holm over"
            f" {len(found.cells)} cells; how far some are apart at most holds for all that tie in a"
            " cell. A tie is interpolated between simulated ratios. Pale: no winner."
        )
        blocks: list[Block] = (
            [regions(found)] if any(len(cell.found) > 1 for cell in found.cells) else []
        )
        blocks += [grids[0], note, Section("Objections", [_pleas(found)])]
        if found.readings:
            blocks.append(Section("Under other readings", [grids[1], Say(
                f"Of {len(found.cells)} cells, those that each policy wins significantly (none: no"
                " winner), that another wins than as described, and whose lead is no longer"
                " significant: Holm over the cells of each reading; another winner over all"
                " readings and objections (Bonferroni)."
            )]))  # fmt: skip
        return [Section("Map", blocks)]

    def grids(self, found: Findings[AnswerMap]) -> list[Grid]:
        return [_grid(found.own), *([_readings(found.own)] if found.own.readings else [])]

    def inputs(self, table: Table) -> list[list[str]]:
        return [*super().inputs(table), ["KV ratio", str(at(table.config, "kv_ratio", "why"))]]
