"""An explanation of a gap: what each cause makes of it, in two orders of removal.

A cause makes of the gap what its removal does for the one that serves less, less what it does for
the other: a difference of log ratios, paired by replication, so that causes add up to the gap in
either order. Where the orders differ, the cause interacts with others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.description.yaml_writer import plain
from sweeps.analyse.effects import Logs, less, weighted
from sweeps.analyse.figures import BACKLOG, OVERLOADED, THROUGHPUT
from sweeps.analyse.statistics import Interval, interval
from sweeps.plan.counterfactual import (
    CAUSES,
    HARDWARE,
    RECOMPUTE,
    RemovedState,
    chain,
    key,
    without,
)
from sweeps.plan.experiment import ExperimentSpec
from sweeps.run.store import RunDirectory

FOLDER, FILE = "explain", "explanation.json"
"""In a run directory: the simulations of explanations, a run of their own, and what they show."""


UNSATURATED = 10.0
"""A side that is saturated is offered so many times more where a cost of the hardware is removed,
which may make it faster than its load (assumed)."""


Rates = dict[int, float | None]
"""Offered requests a second by replication; None where the load names none."""


Known = dict[str, dict[int, dict[str, Any]]]
"""Key of a state at a rate -> metrics by replication."""


@dataclass(frozen=True)
class CausePart:
    """What one cause makes of a gap: log ratios of the gap with it over the gap without."""

    cause: str
    of: str
    """Whose it is; nothing where both have it."""
    forward: Interval
    reverse: Interval
    interaction: Interval
    """Forward less reverse."""

    @property
    def words(self) -> str:
        words = CAUSES[self.cause].words
        return f"{words} ({self.of})" if self.of else words


@dataclass(frozen=True)
class Explanation:
    """Why one serves more than another. Intervals are of log ratios."""

    group: str
    winner: str
    loser: str
    total: Interval
    parts: list[CausePart]
    unexplained: Interval
    """The gap that is left where every cause is removed from both."""
    hardware: dict[str, Interval]
    """Cost -> the gap, with analytic memory, where it takes no time; "" -> where all do."""
    unsaturated: list[str]
    """States whose load no longer saturates: a removal may do more than is shown."""


@dataclass(frozen=True)
class RivalPair:
    """Two points of a group, the one that serves more first, and the rate that both are offered, by
    replication."""

    group: str
    names: tuple[str, str]
    sides: tuple[ExperimentSpec, ExperimentSpec]
    rates: Rates
    saturated: bool
    points: tuple[int, int] = (0, 1)
    """Their numbers in the sweep."""

    def states(self) -> Iterator[tuple[RemovedState, Rates]]:
        """Everything to simulate, and its rates; some of it more than once."""
        for side in self.sides:
            for reverse in (False, True):
                yield from ((state, self.rates) for state in chain(side, reverse))
            yield from ((self.hardware(side, cost), self.pushed) for cost in ("", *HARDWARE))

    @property
    def pushed(self) -> Rates:
        """The rates where a cost of the hardware is removed."""
        many = UNSATURATED if self.saturated else 1.0
        return {r: None if rate is None else many * rate for r, rate in self.rates.items()}

    def hardware(self, side: ExperimentSpec, cost: str) -> RemovedState:
        """A side with analytic memory, where a cost takes no time."""
        return without(side, [name for name in ("layout", cost) if name])


def explain(pair: RivalPair, known: Known) -> Explanation:
    """The explanation of a pair whose states are all known, in the replications common to all.
    Raises DescriptionError where none is."""
    served = (_served(known, state, rates) for state, rates in pair.states())
    common = sorted(set.intersection(*served))
    if not common:
        names = " and ".join(pair.names)
        raise DescriptionError(f"{pair.group}: {names} have no replication without a failure")

    def logs(state: RemovedState, rates: Rates) -> Logs:
        found = results(known, state, rates)
        return {r: math.log(found[r][THROUGHPUT]) for r in common}

    def gap(cost: str) -> Interval:
        ours, theirs = (logs(pair.hardware(side, cost), pair.pushed) for side in pair.sides)
        return _mean(less(ours, theirs))

    orders = []
    for reverse in (False, True):
        parts: dict[tuple[str, str], Logs] = {}
        for side, name, sign in zip(pair.sides, pair.names, (-1, 1), strict=True):
            states = chain(side, reverse)
            levels = [logs(state, pair.rates) for state in states]
            for state, before, after in zip(states[1:], levels[:-1], levels[1:], strict=True):
                cause = state.removed[-1]
                own = name if cause == RECOMPUTE.name else ""
                so_far = parts.setdefault((cause, own), dict.fromkeys(common, 0.0))
                parts[cause, own] = weighted([(1, so_far), (sign, after), (-sign, before)])
        orders.append(parts)
    forward, reverse_ = orders
    ends = [[logs(state, pair.rates) for state in chain(side)] for side in pair.sides]
    return Explanation(
        pair.group, *pair.names, _mean(less(ends[0][0], ends[1][0])),
        [
            CausePart(*each, _mean(forward[each]), _mean(reverse_[each]),
                 _mean(less(forward[each], reverse_[each])))
            for each in sorted(forward, key=lambda part: [*CAUSES].index(part[0]))
        ],
        _mean(less(ends[0][-1], ends[1][-1])),
        {cost: gap(cost) for cost in ("", *HARDWARE)},
        sorted(set(_unsaturated(pair, known, common))),
    )  # fmt: skip


def results(known: Known, state: RemovedState, rates: Rates) -> dict[int, dict[str, Any]]:
    """What is known of a state at these rates, by replication."""
    found = ((r, known.get(key(state.experiment, rate), {}).get(r)) for r, rate in rates.items())
    return {r: metrics for r, metrics in found if metrics is not None}


def _served(known: Known, state: RemovedState, rates: Rates) -> set[int]:
    found = results(known, state, rates)
    return {r for r, metrics in found.items() if (metrics.get(THROUGHPUT) or 0.0) > 0}


def _mean(logs: Logs) -> Interval:
    return interval([*logs.values()])


def _unsaturated(pair: RivalPair, known: Known, common: list[int]) -> Iterator[str]:
    if not pair.saturated:
        return
    for side, name in zip(pair.sides, pair.names, strict=True):
        for state in (*chain(side), *chain(side, reverse=True)):
            found = results(known, state, pair.rates)
            backlog = math.fsum(found[r].get(BACKLOG) or 0.0 for r in common) / len(common)
            if backlog < OVERLOADED:
                without_ = ", ".join(CAUSES[cause].words for cause in state.removed)
                yield f"{name} without {without_}" if state.removed else name


def record(explanations: list[Explanation], origin: dict[str, Any]) -> dict[str, Any]:
    """Explanations in JSON's types, with where they come from."""
    pairs = [asdict(each) for each in explanations]
    return {"explanations": plain(pairs), **origin}


def read(directory: Path) -> list[Explanation]:
    """The explanations in a run directory, none where there are none, or of another version."""
    try:
        data = RunDirectory(directory / FOLDER).read_json(FILE)
        return [_read(each) for each in data["explanations"]] if data else []
    except (DescriptionError, KeyError, TypeError):
        return []


def interval_of(data: dict[str, Any]) -> Interval:
    """An interval from JSON, whose infinite ends are None."""
    low, high = data["low"], data["high"]
    return Interval(data["mean"], -math.inf if low is None else low,
                    math.inf if high is None else high, data["count"])  # fmt: skip


def _read(data: dict[str, Any]) -> Explanation:
    orders = ("forward", "reverse", "interaction")
    parts = [CausePart(**{**each, **{name: interval_of(each[name]) for name in orders}})
             for each in data["parts"]]  # fmt: skip
    hardware = {name: interval_of(each) for name, each in data["hardware"].items()}
    ends = {name: interval_of(data[name]) for name in ("total", "unexplained")}
    return Explanation(**{**data, **ends, "parts": parts, "hardware": hardware})
