"""A run of the map of an answer: who serves the most in each cell, by how much, where paging ties
with the best contiguous policy, and which cells change hands when an objection is upheld."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from sweeps.analyse.gap import binds
from sweeps.analyse.label import label
from sweeps.analyse.rows import Record, at
from sweeps.analyse.statistics import LEVEL, Interval, interval
from sweeps.analyse.table import Table
from sweeps.plan.answer import LENGTHS, AnswerCell, AnswerMap, Answers, AnswerSpec, log_ratio
from sweeps.plan.break_even import PARAMETER, Place
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.report import change_phrases
from sweeps.report.chart import Region, Regions
from sweeps.report.formats import NONE, bare, effect
from sweeps.report.kind import Kind
from sweeps.report.section import Block, Grid, Say, Section

_STEPS = 24
"""Of the picture, in a decade of the ratio."""


def answer_map(table: Table) -> AnswerMap:
    """What a run found, as far as it is there."""
    known = Answers(table.config, table.records())
    base = table.config["base"]
    found = (_cell(table, known, place) for place in known.places)
    cells = [cell for cell in found if cell is not None]
    return AnswerMap(
        label(base["device"]), label(base["model"]), known.ratio.of, known.ratio.against, cells,
        len(known.places), known.replications,
        {name: (each.of, each.why) for name, each in known.objections.items()},
        {name: each.why for name, each in known.readings.items()},
    )  # fmt: skip


def _cell(table: Table, known: Answers, place: Place) -> AnswerCell | None:
    rates = known.described(place)
    scattered = known.lead(rates)
    if scattered is None:
        return None
    first, second = list(rates)[:2]
    references = [name for name in known.names if name not in rates]
    found = known.found(place)
    pleas = {name: known.described(place, name) for name in known.cases}
    return AnswerCell(
        ", ".join([*(label(v) for k, v in place.items() if k != LENGTHS), place[LENGTHS]]),
        {name: interval([*each.values()]) for name, each in rates.items()},
        log_ratio(rates[first], rates[second]), scattered, known.contiguous(rates) or "",
        {n: log_ratio(r, rates[first]) for n in references if (r := known.rates(place, n))},
        found, None if known.asked(place) else tie(found),
        {name: (next(iter(after)), log_ratio(*list(after.values())[:2]))
         for name, after in pleas.items() if len(after) == len(rates)},
        _bound(table, place, first),
    )  # fmt: skip


def _bound(table: Table, place: Place, name: str) -> bool:
    """Whether KV memory limits a policy, as described."""
    rows = (
        row
        for group in table.groups
        if group.others == {**place, PARAMETER: AS_DESCRIBED}
        for row in group.main()
    )
    return any(row.name == name and binds(row) for row in rows)


def tie(found: Mapping[float, Interval]) -> Interval | None:
    """The ratio at which the mean of the log ratio rises through zero, and between which ratios its
    interval holds zero, interpolated between logarithms; it ends where the range does. None where
    the mean has one sign."""
    middle = _rise({ratio: each.mean for ratio, each in found.items()})
    if middle is None:
        return None
    low = _rise({ratio: each.high for ratio, each in found.items()})
    high = _rise({ratio: each.low for ratio, each in found.items()})
    return Interval(
        middle, min(found) if low is None else low, max(found) if high is None else high,
        next(iter(found.values())).count,
    )  # fmt: skip


def _rise(values: Mapping[float, float]) -> float | None:
    """Where values over rising ratios come above zero for good; None where the last is not above,
    or the first is."""
    for (a, before), (b, after) in reversed(list(itertools.pairwise(values.items()))):
        if after <= 0:
            return None
        if before <= 0:
            share = before / (before - after)
            return math.exp(math.log(a) + share * (math.log(b) - math.log(a)))
    return None


def regions(found: AnswerMap) -> Regions:
    """The map: a row a cell over the ratio of bandwidths."""
    owners = [found.scattered, *found.contiguous]
    cases = {cell.name: _regions(cell, owners) for cell in found.cells if len(cell.found) > 1}
    return Regions(
        f"Who serves the most on {found.device}, {found.model}",
        "KV bandwidth, scattered over contiguous", owners, cases,
        {cell.name: cell.tied for cell in found.cells if cell.tied is not None},
        f"Colour: {found.scattered} or the best contiguous policy, whichever serves more; shade:"
        " by how much, interpolated between simulated ratios; line: tie with its"
        f" {100 * LEVEL:.0f} % interval. As described the ratio is 1. n = {found.replications}.",
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
            made.append(Region(low, high, owners.index(owner), math.expm1(abs(lead))))
    return made


def _rows(found: AnswerMap) -> list[list[str]]:
    return [
        [
            cell.name, cell.winner or f"{cell.order[0]}, {cell.order[1]}?",
            f"{bare(effect(cell.lead))} over {cell.order[1]}",
            *(f"{cell.rates[name].mean:,.1f}" for name in found.policies),
            bare(effect(cell.scattered)), bare(change_phrases.tie_text(found, cell)),
            "; ".join(f"{n} {bare(effect(each))}" for n, each in cell.references.items()) or NONE,
            "; ".join(cell.upheld) or NONE,
        ]
        for cell in found.cells
    ]  # fmt: skip


def _grid(found: AnswerMap) -> Grid:
    over = f"{found.scattered} over the best contiguous"
    heads = ["cell", "serves the most", "lead", *(f"{name} tok/s" for name in found.policies),
             over, "tie at", "reference over the first", "changes hands with"]  # fmt: skip
    return Grid("", heads, _rows(found), frozenset(
        i for i, cell in enumerate(found.cells) if cell.winner is None))  # fmt: skip


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


class AnswerKind(Kind):
    """Who wins where, and where that ties."""

    spec = AnswerSpec

    def total(self, config: dict[str, Any], records: list[Record]) -> int:
        return Answers(config, records).total()

    def sentences(self, table: Table) -> list[str]:
        """The answer over all cells with its conditions; the ties; the objections; each cell."""
        return list(change_phrases.answer(answer_map(table)))

    def results(self, table: Table) -> list[Block]:
        found = answer_map(table)
        note = Say(
            f"(a to b): {100 * LEVEL:.0f} % intervals of ratios paired by replication; the best"
            " contiguous policy is chosen by its mean. A tie is interpolated between simulated"
            " ratios. Pale: the first two do not differ significantly, or KV memory does not limit"
            " the first, so that there is no ranking."
        )
        blocks: list[Block] = (
            [regions(found)] if any(len(cell.found) > 1 for cell in found.cells) else []
        )
        blocks += [_grid(found), note, Section("Objections", [_pleas(found)])]
        if found.readings:
            blocks.append(Section("Under other readings", [_readings(found), Say(
                f"Of {len(found.cells)} cells, those that each policy wins significantly (none:"
                " no ranking), that another wins than as described, and whose lead is no longer"
                " significant."
            )]))  # fmt: skip
        return [Section("Map", blocks)]

    def sections(self, table: Table) -> list[Block]:
        return self.results(table)

    def grids(self, table: Table) -> list[Grid]:
        found = answer_map(table)
        return [_grid(found), *([_readings(found)] if found.readings else [])]

    def inputs(self, table: Table) -> list[list[str]]:
        rows = [*super().inputs(table), *self.named(table, "lengths", "lengths")]
        of = [
            [f"objection {name}", f"{each['why']} ({each['of']}: {label(each['set'])})"]
            for name, each in (table.config.get("objections") or {}).items()
        ]
        of += [
            [f"reading {name}", f"{each.why} ({label({**each.set, **each.of})})"]
            for name, each in Answers(table.config, []).readings.items()
        ]
        return [*rows, ["KV ratio", str(at(table.config, "kv_ratio", "why"))], *of]
