"""Values of the objective that a search has so far: by place, parameter, value and competitor."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from hwmodel.description.description import DescriptionError
from sweeps.analyse.figures import BACKLOG, GROWING, OVERLOADED
from sweeps.analyse.label import label
from sweeps.analyse.rows import Record, at
from sweeps.analyse.statistics import Interval, interval
from sweeps.analyse.variants import CASE, with_role
from sweeps.plan.measures import objective_of

PARAMETER, VALUE = "parameter", "value"
"""The keys of a result's overrides that name what is changed, and its value."""
Value = Any
"""What stands under VALUE: a number, a quantity as text, the name of a variant, or None."""
Place = dict[str, Any]
"""Values of the axes that are not compared, and the case where there are cases."""
Rates = Mapping[int, float]
"""Replication -> what competitors are compared by."""


class Evaluations:
    """The results of a run, by its config, and which of its points do not fit. A rate counts when
    all its replications are there and above zero."""

    def __init__(self, config: Mapping[str, Any], records: Iterable[Record]) -> None:
        objective = objective_of(config)
        assert objective is not None
        self.objective = objective
        self.compare: str = config["compare"]
        self.names = [label(value) for value in config["axes"][self.compare]]
        self.replications = int(config["base"]["replications"])
        self._rates: dict[tuple[str, str], dict[Value, dict[str, dict[int, float]]]] = {}
        self._unfit: set[tuple[str, str, Value, str]] = set()
        for record in records:
            given = record["overrides"]
            rest = {k: v for k, v in given.items() if k not in (PARAMETER, VALUE, self.compare)}
            key = key_of(rest), str(given.get(PARAMETER))
            values = self._rates.setdefault(key, {}).setdefault(given.get(VALUE), {})
            name = label(given.get(self.compare))
            mine = values.setdefault(name, {})
            if "metrics" in record:
                mine[record["replication"]] = self._value(record["metrics"])
            else:
                self._unfit.add((*key, given.get(VALUE), name))

    def _value(self, metrics: Mapping[str, Any]) -> float:
        """The objective; zero where there is none, or it grows with the run."""
        keys = self.objective.metric.split(".")
        grows = keys[0] in GROWING and (metrics.get(BACKLOG) or 0.0) >= OVERLOADED
        return 0.0 if grows else at(metrics, *keys) or 0.0

    def refuse_unmeasured(self) -> None:
        """Raise DescriptionError for a point that a search asked for and that is done without a
        value: it would be asked for again for ever."""
        points = (
            (name, f"{parameter} {value}", found)
            for (_, parameter), values in self._rates.items()
            for value, by_name in values.items()
            if value is not None
            for name, found in by_name.items()
        )
        for name, where, found in points:
            if len(found) == self.replications and min(found.values()) <= 0:
                raise DescriptionError(
                    f"{name} has no {self.objective.noun} with {where}: its load is above capacity,"
                    " or nothing was served"
                )

    def fits(self, place: Place, name: str, parameter: str, value: Value = None) -> bool:
        """Whether a competitor has room there, as far as is known."""
        return (key_of(place), parameter, value, name) not in self._unfit

    def begun(self, place: Place, parameter: str) -> list[Value]:
        """Values of which anything is there, also that it does not fit, in the order of the
        results."""
        return list(self._rates.get((key_of(place), parameter), {}))

    def rates(self, place: Place, name: str, parameter: str, value: Value = None) -> Rates:
        """A competitor's rates; empty where some replications are not there, or came to nothing."""
        known = self._rates.get((key_of(place), parameter), {}).get(value, {}).get(name, {})
        whole = len(known) == self.replications and min(known.values()) > 0
        return known if whole else {}

    def advantage(self, ours: Rates, theirs: Rates) -> Interval:
        """ln of how much better ours are, paired by replication: ours / theirs, or theirs / ours
        where less is better."""
        both = sorted(ours.keys() & theirs.keys())
        values = ([each[r] for r in both] for each in (ours, theirs))
        return interval(self.objective.advantages(*values))

    def mean_log(self, rates: Rates) -> float:
        """Mean logarithm of how good rates are."""
        mean = math.fsum(map(math.log, rates.values())) / len(rates)
        return -mean if self.objective.less else mean


def places(config: Mapping[str, Any]) -> list[Place]:
    """The combinations of the cases, where there are any, and the axes that are not compared."""
    axes = {path: values for path, values in config["axes"].items() if path != config["compare"]}
    others = {CASE: list(cases), **axes} if (cases := with_role(config, "case")) else axes
    return [dict(zip(others, each, strict=True)) for each in itertools.product(*others.values())]


def key_of(value: Any) -> str:
    """What a value or a place is told apart by."""
    return json.dumps(value, sort_keys=True, default=str)
