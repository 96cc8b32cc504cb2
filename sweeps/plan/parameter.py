"""A number that is assumed, and the values of it that a search asks for.

Over a range the mean of the answer, and both ends of its interval where these are bisected too, are
bisected on one grid of halvings, so that they share what is simulated. Variants are tried one by
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hwmodel.description.description import Strict, checked
from hwmodel.description.written import Also
from hwmodel.description.yaml_writer import to_yaml_flow
from sweeps.analyse.statistics import Interval
from sweeps.plan.bisection import halvings, pending
from sweeps.plan.evaluations import Value

PLAUSIBLE = "plausible"
"""`variants: plausible` stands for the plausible variants of the device."""
_DIGITS = 3
"""Significant digits of a value between the ends."""

Number = int | float
Answers = Mapping[Value, Interval]
"""Value -> the log ratio of the first competitor over the second."""
Curve = Callable[[Interval], bool]


def ahead_surely(answer: Interval) -> bool:
    """Whether the first competitor is ahead, its whole interval."""
    return answer.low > 0


def ahead(answer: Interval) -> bool:
    """Whether the first competitor's mean is ahead."""
    return answer.mean > 0


def not_behind(answer: Interval) -> bool:
    """Whether the first competitor may be ahead."""
    return answer.high > 0


CURVES: tuple[Curve, ...] = (ahead, ahead_surely, not_behind)
"""The mean, and the ends of the interval."""


class ParameterVariant(Strict):
    """One other reading of a parameter that is no number."""

    set: Annotated[dict[str, Any], Field(min_length=1)]
    """Dotted path of the experiment -> value."""


def _short_form(variants: Any) -> Any:
    return {PLAUSIBLE: {"set": {PLAUSIBLE: True}}} if variants == PLAUSIBLE else variants


class Parameter(Strict):
    """A number that is assumed, with its plausible `range`; or `variants`, tried one by one."""

    path: str = ""
    """Dotted path of the experiment, of a number."""
    why: str
    """Where the range comes from; `assumed` where none is given."""
    range: list[Number] = []
    """Least and most; whole numbers for a whole parameter."""
    log: bool = False
    """Bisect the logarithm."""
    unit: str | None = None
    """Written behind the number: `KiB`, `ns`."""
    variants: Annotated[
        dict[str, ParameterVariant], BeforeValidator(_short_form), Also((("const", PLAUSIBLE),))
    ] = {}
    """Name -> what it sets; `plausible`: the plausible variants of the device."""
    of: str | None = None
    """The competitor that has it; None: both."""
    against: list[str] = []
    """The competitors of which the best, as described, is what `of` is held against; without, the
    other one of two."""
    inverse: bool = False
    """The experiment is given one over the number."""
    halvings: Annotated[int, Field(ge=1, le=12)] = 6
    """A bracket is halved until it is the range over 2 to this; the crossing is interpolated."""
    bisect: Literal["interval", "mean"] = "interval"
    """Whether the ends of the interval are bisected too; else they are interpolated between the
    values that the mean asks for."""
    set: dict[str, Any] = {}
    """Overrides that go with it, at every value."""
    ratio: Annotated[float, Field(gt=0)] = 1.0
    """The ratio of the first competitor over the second that is sought: 1 is where the answer
    turns, 0.9 is where the first has lost a tenth."""

    @checked
    def _one_of_two(self) -> None:
        if bool(self.range) == bool(self.variants):
            raise ValueError("expected one of range and variants, not empty")
        if bool(self.range) != bool(self.path):
            raise ValueError("path: goes with range; variants name theirs in set")
        if self.range and (len(self.range) != 2 or self.range[0] >= self.range[1]):
            raise ValueError(f"range: expected [least, most]; got {self.range}")
        if self.variants and (self.log or self.unit):
            raise ValueError("log and unit belong to range")
        if self.log and self.range[0] <= 0:
            raise ValueError(f"log needs a range above zero; got {self.range}")
        if self.against and self.of is None:
            raise ValueError("against: needs `of`, who is held against these")
        if self.inverse and (self.variants or self.unit or self.range[0] <= 0):
            raise ValueError("inverse: expected a range above zero, without unit")

    def number(self, position: float) -> Number:
        """The number at a position of the range, from 0 to 1."""
        low, high = self.range
        if position in (0, 1):
            return high if position else low
        if self.log:
            between = low * (high / low) ** position
        else:
            between = low + (high - low) * position
        return self._rounded(between)

    def _rounded(self, number: float) -> Number:
        whole = all(isinstance(end, int) for end in self.range)
        return round(number) if whole else float(f"{number:.{_DIGITS}g}")

    def at(self, position: float) -> Value:
        """The value at a position, as a result names it."""
        return self._written(self.number(position))

    def text(self, number: float) -> str:
        """A number of the range that was not simulated, in its unit."""
        return str(self._written(self._rounded(number)))

    def _written(self, number: Number) -> Value:
        return number if self.unit is None else f"{to_yaml_flow(number)}{self.unit}"

    def number_of(self, value: Value) -> float:
        """The number that a result names."""
        return float(str(value).removesuffix(self.unit or ""))

    def sets(self, value: Value) -> dict[str, Any]:
        """Dotted path -> what the experiment is given for a value."""
        if self.variants:
            return self.variants[value].set
        return {self.path: float(f"{1 / value:.6g}") if self.inverse else value}

    def beyond(self, answer: Interval) -> Interval:
        """An answer less the ratio that is sought: above zero where it is larger."""
        sought = math.log(self.ratio)
        return answer.mapped(lambda log: log - sought)

    def leads(self, known: Answers) -> dict[float, Interval]:
        """What is known over the range, by the number, less the ratio that is sought."""
        return {self.number_of(value): self.beyond(each) for value, each in known.items()}

    def sought(self, known: Answers, unfit: Collection[Value] = ()) -> list[Value]:
        """Values to simulate next; none where what is known settles it, or where one of a range is
        among those that do not fit, `unfit`."""
        ends = [*self.variants] or [self.at(0), self.at(1)]
        if missing := [value for value in ends if value not in known and value not in unfit]:
            return missing
        if self.variants or unfit:
            return []
        curves = CURVES if self.bisect == "interval" else (ahead,)
        needed = (self._next(known, curve) for curve in curves)
        return list(dict.fromkeys(value for value in needed if value is not None))

    def _next(self, known: Answers, curve: Curve) -> Value | None:
        """The value that halves the bracket of a curve's change next; None where it is found."""

        def answer(position: float) -> bool | None:
            value = self.at(position)
            return curve(self.beyond(known[value])) if value in known else None

        step = pending(halvings(self.halvings), answer)
        return None if isinstance(step, tuple) else self.at(step)
