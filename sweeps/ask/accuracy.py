"""How far times of steps and servers are from measured ones, by class of kernels: median, nine in
ten, and how many lie in the interval that `bankwise fit` prints; and the rule that sets it.

A mechanism has *seen* the times of a machine and model of which one cell set it (`sets`, or an
input of a description). Times of all others, and of whole servers, are unseen.

The interval of a class (`spread_low` and `spread_high` of `yaml/kernels`) holds what its own unseen
times do and what those of all classes do, from the 2.5th to the 97.5th of a hundred, a machine and
model counting once however many cells they have; widened at both ends by one factor for all, the
least at which 95 % of each class left out in turn lie inside the interval that the other classes
give. So a class that nobody has measured has the interval of a class left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from hwmodel.specs.device import load_device
from policies.memory.measured_cells import ComparedCell
from sweeps.analyse.statistics import nine_in_ten
from sweeps.ask.published_servers import ServersBeside

COVERED = 0.95
STEP = 0.05
"""Intervals are in steps of it, outwards."""
RISE, RISE_SHARE = 0.01, 0.1
"""By how much an error may rise from release to release: by a point, or by a tenth of it."""
_WIDER = [1 + n / 100 for n in range(201)]


class MeasuredTime(NamedTuple):
    """A measured time beside the model's."""

    kind: str
    """decode, prefill, TPOT or TTFT."""
    kernels: str
    """The class."""
    machine: str
    """With its model and program, what one group has in common."""
    ratio: float
    """Time measured over time modelled."""
    error: float
    """Of the figure, as a share of what was measured."""
    inside: bool | None
    """Of its interval; None: it has none, as rates of KV and first tokens of servers."""
    seen: bool

    @property
    def label(self) -> str:
        """The row of a table that it counts in."""
        return f"{self.kind}, {self.kernels}" if self.kind in ("decode", "prefill") else self.kind


def steps(compared: Iterable[ComparedCell]) -> list[MeasuredTime]:
    """Steps and prompts among cells that are measured, without limits; a machine and model are seen
    where one of all these cells set a mechanism or was an input."""
    cells = [one for one in compared if one.by is not None]
    given = {
        (one.by.device, one.by.model)
        for one in cells
        if one.by and (one.cell.sets or one.cell.stands == "input")
    }
    timed = []
    for one in cells:
        if one.by is None or one.cell.measured is None or one.cell.stands != "measured":
            continue
        by, is_step, ratio = one.by, one.cell.stated.unit == "ms", 1 + one.error
        timed.append(MeasuredTime(
            one.cell.kind, by.kernels, f"{by.device}, {by.model}", 1 / ratio if is_step else ratio,
            abs(one.error), one.inside if is_step else None, (by.device, by.model) in given,
        ))  # fmt: skip
    return timed


def of_servers(servers: Iterable[ServersBeside]) -> list[MeasuredTime]:
    """TPOT and TTFT of whole servers."""
    timed = []
    for one in servers:
        accelerator = load_device(one.row.device).accelerator
        assert accelerator is not None
        where = f"{one.row.device}, {one.row.model}, {one.row.server}"
        law = accelerator.kernels.of
        for name, off, inside in (("TTFT", one.off[0], None), ("TPOT", one.off[1], one.inside)):
            timed.append(MeasuredTime(name, law, where, 1 / (1 + off), abs(off), inside, False))
    return timed


def by_label(every: Iterable[MeasuredTime]) -> dict[str, dict[str, float]]:
    """Label -> cells, median and nine in ten of errors, and the share inside its interval."""
    groups: dict[str, list[MeasuredTime]] = {}
    for one in every:
        groups.setdefault(one.label, []).append(one)
    return {label: errors(groups[label]) for label in sorted(groups)}


def errors(group: Sequence[MeasuredTime]) -> dict[str, float]:
    """Cells, median and nine in ten of errors, and the share inside its interval."""
    off = sorted(one.error for one in group)
    held = [one.inside for one in group if one.inside is not None]
    return {
        "cells": len(off), "median": median(off),
        "nine in ten": nine_in_ten(off),
    } | ({"inside": sum(held) / len(held)} if held else {})  # fmt: skip


def seen_and_not(every: Sequence[MeasuredTime]) -> dict[str, dict[str, float | str]]:
    """Label -> the same of cells that a mechanism has seen, and beside it of the others."""
    table: dict[str, dict[str, float | str]] = {}
    for label in by_label(every):
        row: dict[str, float | str] = {}
        for name, seen in (("seen", True), ("unseen", False)):
            group = [one for one in every if one.label == label and one.seen == seen]
            known: Mapping[str, float | str] = errors(group) if group else {}
            for column in ("cells", "median", "nine in ten", *["inside"] * (not seen)):
                row[f"{name}: {column}"] = known.get(column, "–")
        table[label] = row
    return table


def compared_with(
    every: Sequence[MeasuredTime], version: str, last: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """A table a figure, of labels: the last release's, what is now, and what it may be at most."""
    now = by_label(every)
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for name in ("median", "nine in ten", "inside"):
        for label, figures_now in now.items():
            if name not in figures_now:
                continue
            former = last[label]
            row = {
                "cells": figures_now["cells"], version: former[name], "now": figures_now[name]
            }  # fmt: skip
            if name != "inside":
                row["at most"] = most(former[name])
            tables.setdefault(name, {})[label] = row
    return {"beside": tables}


def most(last: float) -> float:
    """What an error may be where the last release had this."""
    return last + max(RISE, RISE_SHARE * last)


def risen(
    now: Mapping[str, Mapping[str, float]], last: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """The errors that are above what they may be, a sentence each."""
    return [
        f"{label}: {name} {now[label][name]:.1%}, at most {most(figures[name]):.1%}"
        for label, figures in last.items()
        for name in ("median", "nine in ten")
        if label in now and name in figures and now[label][name] > most(figures[name])
    ]


Groups = dict[str, list[list[float]]]
"""Class -> logarithms of the ratios of each machine and model."""


def unseen_groups(every: Iterable[MeasuredTime], classes: Iterable[str]) -> Groups:
    """Decode steps and TPOTs that no mechanism has seen."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in classes}
    for one in every:
        if one.kind in ("decode", "TPOT") and one.inside is not None and not one.seen:
            found[one.kernels].setdefault(one.machine, []).append(math.log(one.ratio))
    return {name: list(groups.values()) for name, groups in found.items()}


def spreads(groups: Groups) -> tuple[float, dict[str, tuple[float, float]]]:
    """(the factor by which all are widened, class -> its interval)."""
    wider = next((each for each in _WIDER if left_out(groups, each) >= COVERED), _WIDER[-1])
    every = [one for several in groups.values() for one in several]
    found = {}
    for name, own in groups.items():
        ends = [_ends(each) for each in (own, every) if each]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        found[name] = (
            round(STEP * math.floor(math.exp(low) / wider / STEP), 2),
            round(STEP * math.ceil(math.exp(high) * wider / STEP), 2),
        )
    return wider, found


def left_out(groups: Groups, wider: float = 1.0) -> float:
    """Share of the times of classes left out in turn that lie in the interval of the others, a
    machine and model counting once."""
    shares: list[float] = []
    for name, own in groups.items():
        others = [one for other, several in groups.items() if other != name for one in several]
        low, high = _ends(others)
        low, high = low - math.log(wider), high + math.log(wider)
        shares += [sum(low <= one <= high for one in group) / len(group) for group in own]
    return float(np.mean(shares))


def _ends(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """From the 2.5th to the 97.5th of a hundred, each group counting once, and no more than 0 or
    less."""
    values = np.array([one for group in groups for one in group])
    weights = np.array([1 / len(group) for group in groups for _ in group])
    order = np.argsort(values)
    at = np.cumsum(weights[order]) - weights[order] / 2
    low, high = np.interp(np.array((0.025, 0.975)) * weights.sum(), at, values[order])
    return min(float(low), 0.0), max(float(high), 0.0)


def figures(every: Sequence[MeasuredTime], classes: Iterable[str]) -> dict[str, Any]:
    """What the release run takes."""
    groups = unseen_groups(every, classes)
    wider, found = spreads(groups)
    bounds = {
        name: {"machines and models": len(groups[name]), "low": low, "high": high}
        for name, (low, high) in found.items()
    }
    unseen = [one.inside for one in every if not one.seen and one.inside is not None]
    return {
        "now": by_label(every), "seen and not": seen_and_not(every), "spread": bounds,
        "widened by": wider, "left out, inside": left_out(groups, wider),
        "left out, inside unwidened": left_out(groups),
        "unseen": len(unseen), "unseen, inside": sum(unseen) / len(unseen),
    }  # fmt: skip
