"""The space of a study: parameters of a fixed number, and the overrides that their values mean.

A parameter is a range of numbers, a choice of values, or the quantiles of buckets. Levels that
increase strictly cannot be drawn one by one without throwing draws away, so they are drawn as
breaks, one a level, free of one another: `levels_of` makes B uniform breaks into B sorted uniform
numbers (David and Nagaraja 2003, "Order Statistics", 2.5), so that every draw counts and every set
of levels is as likely as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from hwmodel.description.description import Strict
from sweeps.results.store import to_yaml_flow

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Number = int | float
Params = Mapping[str, Any]
Overrides = dict[str, Any]

LEAST, MOST = 0.001, 0.999
"""Breaks lie between these (assumed), so that neighbouring levels are never the same number."""
MOST_BUCKETS = 64


class ParameterSpec(Strict):
    """One parameter: a `range`, a `choice` or `quantiles`."""

    range: list[Number] = []
    """Least and most, both included; whole numbers for a whole parameter."""
    log: bool = False
    """Draw the logarithm evenly."""
    step: Annotated[int, Field(ge=1)] = 1
    """Of a whole range."""
    unit: str | None = None
    """Written behind the number: `KiB`, `ns`."""
    choice: list[Any] = []
    quantiles: list[Annotated[int, Field(ge=1, le=MOST_BUCKETS)]] = []
    """Fewest and most buckets. For `levels`: the count goes to `buckets` beside it."""

    @model_validator(mode="after")
    def _one_of_three(self) -> ParameterSpec:
        if sum(map(bool, (self.range, self.choice, self.quantiles))) != 1:
            raise ValueError("expected one of range, choice and quantiles, not empty")
        for name in ("range", "quantiles"):
            ends = getattr(self, name)
            if ends and (len(ends) != 2 or ends[0] > ends[1]):
                raise ValueError(f"{name}: expected [least, most]; got {ends}")
        if not self.range and (self.log or self.unit or self.step != 1):
            raise ValueError("log, step and unit belong to range")
        self._range_is_drawable()
        return self

    def _range_is_drawable(self) -> None:
        if self.log and self.range[0] <= 0:
            raise ValueError(f"log needs a range above zero; got {self.range}")
        if self.step != 1 and (self.log or not self.whole):
            raise ValueError("step belongs to a whole range without log")

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
                found[f"{path}.count"] = IntDistribution(spec.quantiles[0], spec.quantiles[1])
                for i in range(spec.quantiles[1]):
                    found[f"{path}.{i}"] = FloatDistribution(LEAST, MOST)
            elif spec.whole:
                low, high = map(int, spec.range)
                found[path] = IntDistribution(low, high, log=spec.log, step=spec.step)
            else:
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
            else:
                found[path] = spec.value(params[path])
        return found

    def corners(self) -> Iterable[tuple[str, Overrides]]:
        """(path, overrides) with each parameter alone at its ends, or at each of its choices."""
        for path, spec in self.parameters.items():
            if spec.choice:
                values: Iterable[Overrides] = ({path: value} for value in spec.choice)
            elif spec.quantiles:
                counts = sorted(set(spec.quantiles))
                beside = _beside(path, "buckets")
                values = ({beside: n, path: levels_of([0.5] * n)} for n in counts)
            else:
                values = ({path: spec.value(end)} for end in spec.range)
            for overrides in values:
                yield path, overrides


def levels_of(breaks: Sequence[float]) -> list[float]:
    """Strictly increasing levels in (0, 1) of `breaks`, each of which is in [LEAST, MOST].

    The share above level i is that above the one before times breaks[i] ** (1 / (B - i)).
    """
    above, levels = 1.0, []
    for i, part in enumerate(breaks):
        above *= part ** (1 / (len(breaks) - i))
        levels.append(1 - above)
    return levels


def _beside(path: str, name: str) -> str:
    return ".".join([*path.split(".")[:-1], name])
