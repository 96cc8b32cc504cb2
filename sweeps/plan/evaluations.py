"""Rates that a search has so far: by place, parameter, value and competitor."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from sweeps.analyse.label import label
from sweeps.analyse.rows import Record
from sweeps.analyse.statistics import Interval, interval
from sweeps.analyse.variants import CASE, with_role
from sweeps.plan.measures import experiment_of

PARAMETER, VALUE = "parameter", "value"
"""The keys of a result's overrides that name what is changed, and its value."""
Value = Any
"""What stands under VALUE: a number, a quantity as text, the name of a variant, or None."""
Place = dict[str, Any]
"""Values of the axes that are not compared, and the case where there are cases."""
Rates = Mapping[int, float]
"""Replication -> what competitors are compared by."""


class Evaluations:
    """The results of a run, by its config. A rate counts when all its replications are there and
    above zero."""

    def __init__(self, config: Mapping[str, Any], records: Iterable[Record]) -> None:
        rate = experiment_of(config).rate
        assert rate is not None
        self.compare: str = config["compare"]
        self.names = [label(value) for value in config["axes"][self.compare]]
        self.replications = int(config["base"]["replications"])
        self._rates: dict[tuple[str, str], dict[Value, dict[str, dict[int, float]]]] = {}
        for record in records:
            given = record["overrides"]
            rest = {k: v for k, v in given.items() if k not in (PARAMETER, VALUE, self.compare)}
            key = key_of(rest), str(given.get(PARAMETER))
            values = self._rates.setdefault(key, {}).setdefault(given.get(VALUE), {})
            mine = values.setdefault(label(given.get(self.compare)), {})
            mine[record["replication"]] = record["metrics"].get(rate.metric) or 0.0

    def begun(self, place: Place, parameter: str) -> list[Value]:
        """Values of which anything is there, in the order of the results."""
        return list(self._rates.get((key_of(place), parameter), {}))

    def rates(self, place: Place, name: str, parameter: str, value: Value = None) -> Rates:
        """A competitor's rates; empty where some replications are not there, or came to nothing."""
        known = self._rates.get((key_of(place), parameter), {}).get(value, {}).get(name, {})
        whole = len(known) == self.replications and min(known.values()) > 0
        return known if whole else {}


def log_ratio(ours: Rates, theirs: Rates) -> Interval:
    """ln(ours / theirs), paired by replication."""
    return interval([math.log(ours[r] / theirs[r]) for r in sorted(ours.keys() & theirs.keys())])


def places(config: Mapping[str, Any]) -> list[Place]:
    """The combinations of the cases, where there are any, and the axes that are not compared."""
    axes = {path: values for path, values in config["axes"].items() if path != config["compare"]}
    others = {CASE: list(cases), **axes} if (cases := with_role(config, "case")) else axes
    return [dict(zip(others, each, strict=True)) for each in itertools.product(*others.values())]


def key_of(value: Any) -> str:
    """What a value or a place is told apart by."""
    return json.dumps(value, sort_keys=True, default=str)
