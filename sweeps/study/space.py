"""The space of a study: parameters of a fixed number, and the overrides that their values mean.

A parameter is a range of numbers, a choice of values, or the quantiles of buckets. Levels that
increase strictly cannot be drawn one by one without throwing draws away, so they are drawn as
breaks, one a level, free of one another: `levels_of` makes B uniform breaks into B sorted uniform
numbers (David and Nagaraja 2003, "Order Statistics", 2.5), so that every draw counts and every set
of levels is as likely as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from hwmodel.description.description import Strict, checked
from hwmodel.description.yaml_writer import to_yaml_flow
from policies.allocators.buckets import Balance

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Number = int | float
Params = Mapping[str, Any]
Overrides = dict[str, Any]

LEAST, MOST = 0.001, 0.999
"""Breaks lie between these (assumed), so that neighbouring levels are never the same number."""
MOST_BUCKETS = 64
_DIGITS = 7
"""Of a share of the memory."""
FREE = "levels"
"""Where the levels of buckets are drawn, not set by a balance."""
DRAWN = "range"
"""Where a number of the range is drawn, not one of those beside it."""
QUARTER = "quarter_request"


class Outside(Exception):
    """An experiment is no point of a space; the message is why."""


class ParameterSpec(Strict):
    """One parameter: a `range`, a `choice` or `quantiles`."""

    range: list[Number] = []
    """Least and most, both included; whole numbers for a whole parameter."""
    log: bool = False
    """Draw the logarithm evenly."""
    step: Annotated[int, Field(ge=1)] | Literal["quarter_request"] = 1
    """Of a whole range. `quarter_request`: of a range of shares of the KV memory, which are then
    drawn as whole quarters of the largest reservation of a request; at least one."""
    unit: str | None = None
    """Written behind the number: `KiB`, `ns`."""
    also: list[Number] = []
    """Numbers beside the range that are drawn by themselves, such as none at all."""
    choice: list[Any] = []
    """One of these."""
    quantiles: list[Annotated[int, Field(ge=1, le=MOST_BUCKETS)]] = []
    """Fewest and most buckets. For `levels`: the count goes to `buckets` beside it."""
    balance: list[Balance] = []
    """With `quantiles`: what may set the levels instead of draws; it goes to `balance` beside."""
    when: dict[str, Any] = {}
    """Path of a choice -> the value, or values, with which this one has a meaning."""
    otherwise: Any = None
    """What it is with others."""

    @classmethod
    def meant(cls, data: Any) -> str:
        values = data if isinstance(data, list) else [data]
        return f"; did you mean {{choice: {to_yaml_flow(values)}}}?"

    @checked
    def _one_of_three(self) -> None:
        if sum(map(bool, (self.range, self.choice, self.quantiles))) != 1:
            raise ValueError("expected one of range, choice and quantiles, not empty")
        for name in ("range", "quantiles"):
            ends = getattr(self, name)
            if ends and (len(ends) != 2 or ends[0] > ends[1]):
                raise ValueError(f"{name}: expected [least, most]; got {ends}")
        if not self.range and (self.log or self.unit or self.also or self.step != 1):
            raise ValueError("log, step, unit and also belong to range")
        if self.balance and not self.quantiles:
            raise ValueError("balance belongs to quantiles")
        if self.otherwise is not None and not self.when:
            raise ValueError("otherwise belongs to when")
        self._range_is_drawable()

    def _range_is_drawable(self) -> None:
        if self.log and self.range[0] <= 0:
            raise ValueError(f"log needs a range above zero; got {self.range}")
        if self.step == QUARTER:
            if self.whole or self.log or self.unit or not 0 <= self.range[0] <= self.range[1] < 1:
                raise ValueError(f"step: {QUARTER} belongs to a range of shares, [0.0, 0.5]")
        elif self.step != 1 and (self.log or not self.whole):
            raise ValueError("step belongs to a whole range without log")

    @property
    def whole_step(self) -> int:
        """Of a whole range."""
        return self.step if isinstance(self.step, int) else 1

    @property
    def whole(self) -> bool:
        """Whether the range is of whole numbers."""
        return bool(self.range) and all(isinstance(end, int) for end in self.range)

    def value(self, drawn: Number) -> Any:
        """What a number of the range stands for."""
        return drawn if self.unit is None else f"{to_yaml_flow(drawn)}{self.unit}"

    def choices(self) -> dict[Any, Any]:
        """Name -> value; a value that is no plain word or number is named by its text."""
        plain = (bool, int, float, str)
        return {v if isinstance(v, plain) else to_yaml_flow(v): v for v in self.choice}


@dataclass(frozen=True)
class Space:
    """Parameters by dotted path of the experiment."""

    parameters: dict[str, ParameterSpec]
    quarter: float = 1.0
    """What a quarter of the largest reservation of a request is of the KV memory, a share."""

    def quarters(self, spec: ParameterSpec) -> tuple[int, int]:
        """The fewest and the most quarters of the largest reservation that a range of shares
        stands for."""
        low, high = spec.range
        return max(ceil(low / self.quarter - 1e-9), 1), floor(high / self.quarter + 1e-9)

    def distributions(self) -> dict[str, BaseDistribution]:
        """What Optuna draws from: the same names whatever is drawn."""
        from optuna.distributions import (  # heavy
            CategoricalDistribution,
            FloatDistribution,
            IntDistribution,
        )

        found: dict[str, BaseDistribution] = {}
        for path, spec in self.parameters.items():
            if spec.choice:
                found[path] = CategoricalDistribution(list(spec.choices()))
            elif spec.quantiles:
                if spec.balance:
                    found[f"{path}.by"] = CategoricalDistribution([FREE, *spec.balance])
                found[f"{path}.count"] = IntDistribution(spec.quantiles[0], spec.quantiles[1])
                for i in range(spec.quantiles[1]):
                    found[f"{path}.{i}"] = FloatDistribution(LEAST, MOST)
            elif spec.also:
                found[f"{path}.by"] = CategoricalDistribution([DRAWN, *spec.also])
            if spec.step == QUARTER:
                found[path] = IntDistribution(*self.quarters(spec))
            elif spec.range and spec.whole:
                low, high = map(int, spec.range)
                found[path] = IntDistribution(low, high, log=spec.log, step=spec.whole_step)
            elif spec.range:
                low_end, high_end = map(float, spec.range)
                found[path] = FloatDistribution(low_end, high_end, log=spec.log)
        return found

    def overrides(self, params: Params) -> Overrides:
        """What drawn `params` change of the base experiment, by dotted path."""
        found: Overrides = {}
        for path, spec in self.parameters.items():
            if spec.choice:
                found[path] = spec.choices()[params[path]]
            elif spec.quantiles:
                count = params[f"{path}.count"]
                found[_beside(path, "buckets")] = count
                found[path] = levels_of([params[f"{path}.{i}"] for i in range(count)])
                if (by := params.get(f"{path}.by", FREE)) != FREE:
                    found |= {path: [], _beside(path, "balance"): by}
            else:
                by = params.get(f"{path}.by", DRAWN)
                found[path] = self._valued(spec, params[path]) if by == DRAWN else spec.value(by)
        return self.meant(found)

    def meant(self, overrides: Overrides) -> Overrides:
        """The overrides, without what has no meaning beside the others."""
        for path, spec in self.parameters.items():
            if any(p in overrides and not meets(overrides[p], w) for p, w in spec.when.items()):
                overrides[path] = spec.otherwise
        return overrides

    def nearest(self, overrides: Overrides) -> Overrides:
        """The overrides, with shares of the memory at the nearest that the space has."""
        found = dict(overrides)
        for path, spec in self.parameters.items():
            if spec.step == QUARTER and found.get(path) and found[path] not in spec.also:
                fewest, most = self.quarters(spec)
                count = min(max(round(found[path] / self.quarter), fewest), most)
                found[path] = self._valued(spec, count)
        return found

    def _valued(self, spec: ParameterSpec, drawn: Any) -> Any:
        """What a number that is drawn of a range stands for."""
        return round(drawn * self.quarter, _DIGITS) if spec.step == QUARTER else spec.value(drawn)

    def params(self, valued: Callable[[str], Any], levels: Sequence[float]) -> dict[str, Any]:
        """What is to be drawn for the point with these values, by path; the inverse of `overrides`.

        Where a balance sets the levels, the draws beside it are those of `levels`, so that a
        sampler learns where they are. Raises Outside.
        """
        found: dict[str, Any] = {}
        for path, spec in self.parameters.items():
            value = valued(path)
            if spec.quantiles:
                by = FREE if value else valued(_beside(path, "balance"))
                found |= _breaks(path, spec, by, value or levels)
            else:
                if spec.when and value == spec.otherwise and value not in spec.choice:  # no meaning
                    value = spec.choice[0] if spec.choice else self._first(spec)
                if spec.also:
                    beside = next((each for each in spec.also if spec.value(each) == value), None)
                    found[f"{path}.by"] = DRAWN if beside is None else beside
                    value = value if beside is None else self._first(spec)
                found[path] = self._drawn(path, spec, value)
        return found

    def corners(self) -> Iterable[tuple[str, Overrides]]:
        """(path, overrides) with each parameter alone at its ends, or at each of its choices."""
        for path, spec in self.parameters.items():
            if spec.choice:
                values: Iterable[Overrides] = ({path: value} for value in spec.choice)
            elif spec.quantiles:
                counts = sorted(set(spec.quantiles))
                many = _beside(path, "buckets")
                values = ({many: n, path: levels_of([0.5] * n)} for n in counts)
            else:
                ends = self.quarters(spec) if spec.step == QUARTER else spec.range
                values = [{path: self._valued(spec, end)} for end in ends]
                values += [{path: spec.value(each)} for each in spec.also]
            beside = {p: w[0] if isinstance(w, list) else w for p, w in spec.when.items()}
            for overrides in values:
                yield path, self.meant({**beside, **overrides})

    def _first(self, spec: ParameterSpec) -> Any:
        """The least of a range."""
        return self._valued(spec, self.quarters(spec)[0] if spec.step == QUARTER else spec.range[0])

    def _drawn(self, path: str, spec: ParameterSpec, value: Any) -> Any:
        """What is drawn for this value. Raises Outside."""
        if spec.step != QUARTER:
            return _drawn(path, spec, value)
        fewest, most = self.quarters(spec)
        count = round(value / self.quarter) if isinstance(value, Number) else 0
        if not (fewest <= count <= most and self._valued(spec, count) == value):
            raise Outside(f"{path} is {to_yaml_flow(value)}, not whole quarters of a request")
        return count


def meets(value: Any, wanted: Any) -> bool:
    """Whether a value is the one that is wanted, or one of them."""
    return value in wanted if isinstance(wanted, list) else bool(value == wanted)


def levels_of(breaks: Sequence[float]) -> list[float]:
    """Strictly increasing levels in (0, 1) of `breaks`, each of which is in [LEAST, MOST].

    The share above level i is that above the one before times breaks[i] ** (1 / (B - i)).
    """
    above, levels = 1.0, []
    for i, part in enumerate(breaks):
        above *= part ** (1 / (len(breaks) - i))
        levels.append(1 - above)
    return levels


def breaks_of(levels: Sequence[float]) -> list[float]:
    """The breaks that `levels_of` makes these levels of, or the nearest allowed."""
    count, above = len(levels), [1.0, *(1 - level for level in levels)]
    breaks = [(b / a if a else 0.0) ** (count - i) for i, (a, b) in enumerate(pairwise(above))]
    return [min(max(part, LEAST), MOST) for part in breaks]


def _breaks(path: str, spec: ParameterSpec, by: str, levels: Sequence[float]) -> dict[str, Any]:
    """What is drawn for these levels, or for a balance that comes to them. Raises Outside."""
    fewest, most = spec.quantiles
    if by not in (FREE, *spec.balance):
        raise Outside(f"expected {path} with balance: [{', '.join([*spec.balance, by])}]")
    if not fewest <= len(levels) <= most:
        raise Outside(f"{len(levels)} buckets are not among {path} of {fewest} to {most}")
    breaks = [*breaks_of(levels), *[0.5] * (most - len(levels))]
    drawn = {f"{path}.{i}": part for i, part in enumerate(breaks)}
    return {**({f"{path}.by": by} if spec.balance else {}), f"{path}.count": len(levels), **drawn}


def _drawn(path: str, spec: ParameterSpec, value: Any) -> Any:
    """What is drawn for this value. Raises Outside."""
    if spec.choice:
        for name, choice in spec.choices().items():
            if choice == value:
                return name
    else:
        if spec.unit is not None and isinstance(value, str):
            value = float(value.removesuffix(spec.unit)) if value.endswith(spec.unit) else None
        low, high = spec.range
        if isinstance(value, Number) and low <= value <= high:
            drawn = int(value) if spec.whole else float(value)
            if drawn == value and not (spec.whole and (drawn - low) % spec.whole_step):
                return drawn
    raise Outside(f"{path} is {to_yaml_flow(value)}, which is not in the space")


def _beside(path: str, name: str) -> str:
    return ".".join([*path.split(".")[:-1], name])
