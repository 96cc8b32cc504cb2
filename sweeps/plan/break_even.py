"""Break-evens: the value of a number at which the answer between two competitors changes.

At each value the answer is the paired log ratio of the first competitor's rate over the second's,
with its 95 % interval. Over a range its mean and both ends of its interval are bisected, on one
grid of halvings, so that the three share what is simulated: where the mean changes sign is the
break-even, and between the values at which either is surely ahead lies its interval. Where the
signs at both ends agree there is none, as far as the answer rises or falls all along the range.
Choices are tried one by one.

What is to be simulated next follows from the results alone, so a search that was interrupted goes
on as if it had not been.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from hwmodel.description.description import Document, KeyPath, Strict, nearest
from hwmodel.description.written import Also
from hwmodel.description.yaml_writer import to_yaml_flow
from hwmodel.specs.device import load_device
from sweeps.analyse.rows import Record
from sweeps.analyse.statistics import Interval, interval
from sweeps.plan.place import Override
from sweeps.plan.sweep import SweepSpec, experiment_of
from sweeps.plan.variant import AS_DESCRIBED, Change, Variant

if TYPE_CHECKING:
    pass

PARAMETER, VALUE = "parameter", "value"
"""The keys of a result's overrides that name its parameter and the value of it."""
HALVINGS = 6
"""A bracket is halved until it is the range over 2 to this; a break-even is then interpolated."""
PLAUSIBLE = "plausible"
"""`choice: plausible` stands for the plausible variants of the device."""
DEVICE_SET = "device_set"
_DIGITS = 3
"""Significant digits of a value between the ends."""

Number = int | float
Value = Any
"""What stands under VALUE: a number, a quantity as text, or the name of a choice."""
Place = dict[str, Any]
"""Values of the axes that are not compared."""
Found = Mapping[Value, Interval]
"""Value -> the log ratio of the first competitor over the second."""
Curve = Callable[[Interval], bool]


def _short_form(choice: Any) -> Any:
    return {PLAUSIBLE: {}} if choice == PLAUSIBLE else choice


class Parameter(Strict):
    """A number that is assumed, with its plausible `range`, or a `choice` with its other values.

    At the path `device_set` a value is a mapping of overrides, laid over the device one by one.
    """

    path: str
    """Dotted path of the experiment."""
    why: str
    """Where the range comes from; `assumed` where none is given."""
    range: list[Number] = []
    """Least and most; whole numbers for a whole parameter."""
    log: bool = False
    """Bisect the logarithm."""
    unit: str | None = None
    """Written behind the number: `KiB`, `ns`."""
    choice: Annotated[
        dict[str, Any], BeforeValidator(_short_form), Also((("const", PLAUSIBLE),))
    ] = {}
    """Name -> value; `plausible`, at the path `device_set`: the device's plausible variants."""
    of: str | None = None
    """The competitor that has it; None: both."""
    given: dict[str, Any] = {}
    """Overrides that go with it, at every value."""
    even: Annotated[float, Field(gt=0)] = 1.0
    """The ratio of the first competitor over the second that is sought: 1 is where the answer
    turns, 0.9 is where the first has lost a tenth."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Parameter:
        if bool(self.range) == bool(self.choice):
            raise ValueError("expected one of range and choice, not empty")
        if self.range and (len(self.range) != 2 or self.range[0] >= self.range[1]):
            raise ValueError(f"range: expected [least, most]; got {self.range}")
        if self.path == DEVICE_SET and not all(isinstance(v, dict) for v in self.choice.values()):
            raise ValueError(f"choice: a value of {DEVICE_SET} is a mapping of overrides")
        if PLAUSIBLE in self.choice and self.path != DEVICE_SET:
            raise ValueError(f"choice: {PLAUSIBLE} goes with path: {DEVICE_SET}")
        if self.choice and (self.log or self.unit):
            raise ValueError("log and unit belong to range")
        if self.log and self.range[0] <= 0:
            raise ValueError(f"log needs a range above zero; got {self.range}")
        return self

    def number(self, position: float) -> Number:
        """The number at a position of the range, from 0 to 1."""
        low, high = self.range
        if position in (0, 1):
            return high if position else low
        if self.log:
            found = low * (high / low) ** position
        else:
            found = low + (high - low) * position
        whole = all(isinstance(end, int) for end in self.range)
        return round(found) if whole else float(f"{found:.{_DIGITS}g}")

    def at(self, position: float) -> Value:
        """The value at a position, as a result names it."""
        number = self.number(position)
        return number if self.unit is None else f"{to_yaml_flow(number)}{self.unit}"

    def meant(self, value: Value) -> Any:
        """What the experiment is given for a value."""
        return self.choice[value] if self.choice else value

    def against(self, answer: Interval) -> Interval:
        """An answer against the ratio that is sought: above zero where it is larger."""
        sought = math.log(self.even)
        return answer.mapped(lambda log: log - sought)

    def asked(self, found: Found) -> list[Value]:
        """Values to simulate next; none where what is found settles it."""
        ends = [*self.choice] or [self.at(0), self.at(1)]
        if missing := [value for value in ends if value not in found]:
            return missing
        if self.choice:
            return []
        needed = (self.bracket(found, curve)[2] for curve in CURVES)
        return list(dict.fromkeys(value for value in needed if value is not None))

    def bracket(
        self, found: Found, curve: Curve, halvings: int = HALVINGS
    ) -> tuple[float, float, Value | None]:
        """The positions between which a curve changes sign, as far as is found, and the value that
        halves them next (None: they are near enough). From 0 to 1 where its ends agree."""
        low, high = 0.0, 1.0
        last = curve(self.against(found[self.at(1)]))
        if curve(self.against(found[self.at(0)])) == last:
            return low, high, None
        for _ in range(halvings):
            middle = (low + high) / 2
            value = self.at(middle)
            if value not in found:
                return low, high, value
            if curve(self.against(found[value])) == last:
                high = middle
            else:
                low = middle
        return low, high, None


def ahead_surely(found: Interval) -> bool:
    """Whether the first competitor is ahead, its whole interval."""
    return found.low > 0


def ahead(found: Interval) -> bool:
    """Whether the first competitor's mean is ahead."""
    return found.mean > 0


def not_behind(found: Interval) -> bool:
    """Whether the first competitor may be ahead."""
    return found.high > 0


CURVES: tuple[Curve, ...] = (ahead, ahead_surely, not_behind)
"""The mean, and the ends of the interval."""


class Evaluations:
    """Results by place, parameter and value.

    metric: what competitors are compared by. compare: the axis whose two values compete, `pair`.
    A value counts when all `replications` of both are there.
    """

    def __init__(
        self, records: Iterable[Record], metric: str, compare: str, pair: list[Any],
        replications: int,
    ) -> None:  # fmt: skip
        self._pair = [key_of(value) for value in pair]
        self._replications = replications
        self._rates: dict[tuple[str, str], dict[Value, dict[str, dict[int, float]]]] = {}
        for record in records:
            overrides = record["overrides"]
            place = {
                path: value
                for path, value in overrides.items()
                if path not in (PARAMETER, VALUE, compare)
            }
            name = str(overrides.get(PARAMETER))
            values = self._rates.setdefault((key_of(place), name), {})
            rates = values.setdefault(overrides.get(VALUE), {})
            mine = rates.setdefault(key_of(overrides.get(compare)), {})
            mine[record["replication"]] = record["metrics"].get(metric) or 0.0

    def found(self, place: Place, name: str) -> dict[Value, Interval]:
        """The answer at each value of a parameter that is whole, in the order of the results."""
        known = self._rates.get((key_of(place), name), {})
        answers = ((value, self._answer(rates)) for value, rates in known.items())
        return {value: answer for value, answer in answers if answer is not None}

    def begun(self, place: Place, name: str) -> list[Value]:
        """Values of which anything is there."""
        return list(self._rates.get((key_of(place), name), {}))

    def _answer(self, rates: dict[str, dict[int, float]]) -> Interval | None:
        ours, theirs = (rates.get(competitor, {}) for competitor in self._pair)
        common = sorted(r for r in ours.keys() & theirs.keys() if min(ours[r], theirs[r]) > 0)
        if len(common) < self._replications:
            return None
        return interval([math.log(ours[r] / theirs[r]) for r in common])


def places(axes: Mapping[str, list[Any]], compare: str) -> list[Place]:
    """The combinations of the axes that are not compared."""
    others = {path: values for path, values in axes.items() if path != compare}
    return [dict(zip(others, each, strict=True)) for each in itertools.product(*others.values())]


class BreakEvenSpec(SweepSpec):
    """A sweep that seeks the values at which its answer changes."""

    break_even: dict[str, Parameter]
    """Name -> a number, whose value is sought at which the answer changes."""

    def refuse_inconsistent(self) -> None:
        if self.controls:
            raise ValueError("break_even: does not go with controls")
        self.refuse_without_rate()
        pair = self.competitors
        if len(pair) != 2:
            raise ValueError(f"compare: break_even is between two competitors; got {len(pair)}")
        for name, parameter in self.break_even.items():
            where = f"break_even: {name!r}"
            if name == AS_DESCRIBED:
                raise ValueError(f"{where} is what the base is called; take another name")
            if parameter.of is not None and parameter.of not in pair:
                hint = nearest(parameter.of, pair)
                raise ValueError(f"{where}: of: no competitor {parameter.of!r}; {hint}")
            for path in (parameter.path, *parameter.given):
                if path in self.axes:
                    raise ValueError(f"{where}: {path} is an axis already")

    @classmethod
    def overrides(cls, data: Mapping[str, Any]) -> Iterator[Override]:
        yield from super().overrides(data)
        for name, parameter in data["break_even"].items():
            at = ("break_even", name)
            choice = parameter.get("choice")
            choices = [(*at, "choice", e) for e in choice] if isinstance(choice, dict) else []
            yield Override(parameter["path"], (*at, "path"), choices)
            for path in parameter.get("given", ()):
                yield Override(path, (*at, "given", path), [(*at, "given", path)])

    @classmethod
    def complete(cls, document: Document) -> None:
        for name, parameter in document.data["break_even"].items():
            place = ("break_even", name, "choice")
            if parameter.get("choice") == PLAUSIBLE:
                document.put(place, _plausible(document, place), document.mark(place))

    def variants(self, document: Document) -> list[Variant]:
        return [Variant({PARAMETER: AS_DESCRIBED}, [])]

    def asked(
        self, records: Iterable[Record], replications: int, document: Document
    ) -> list[Variant]:
        """What is to be simulated next, a variant for each value."""
        data = {**self.model_dump(), "base": {"replications": replications}}
        known = evaluations(data, records)
        return [
            Variant({PARAMETER: name, VALUE: value}, _changes(name, parameter, value, document),
                    parameter.of, place)
            for place in places(self.axes, self.compare)
            for name, parameter in self.break_even.items()
            for value in parameter.asked(known.found(place, name))
        ]  # fmt: skip


def parameters(config: Mapping[str, Any]) -> dict[str, Parameter]:
    """The parameters that a run has by its config."""
    return {name: Parameter.model_validate(each) for name, each in config["break_even"].items()}


def evaluations(config: Mapping[str, Any], records: Iterable[Record]) -> Evaluations:
    """The answers that a run has, by its config."""
    compare, rate = config["compare"], experiment_of(config).rate
    assert rate is not None
    return Evaluations(
        records, rate.metric, compare, config["axes"][compare], int(config["base"]["replications"])
    )


def _changes(name: str, parameter: Parameter, value: Value, document: Document) -> list[Change]:
    at, meant = ("break_even", name), parameter.meant(value)
    mark = document.mark((*at, "path"))
    given = [
        (path, each, document.mark((*at, "given", path))) for path, each in parameter.given.items()
    ]
    if parameter.path == DEVICE_SET:
        return [*given, *((f"{DEVICE_SET}.{path}", each, mark) for path, each in meant.items())]
    return [*given, (parameter.path, meant, mark)]


def _plausible(document: Document, place: KeyPath) -> dict[str, Any]:
    """The plausible variants of the base's device, by name: what each sets."""
    base = document.data["base"]
    if not isinstance(base.get("device"), str):
        raise document.error(f"{PLAUSIBLE} needs one device, in base", place)
    variants = load_device(base["device"]).plausible
    if not variants:
        raise document.error(f"{base['device']} lists no plausible variants", place)
    return {name: variant.set for name, variant in variants.items()}


def total(
    parameters: Mapping[str, Parameter], known: Evaluations, where: list[Place], replications: int
) -> int:
    """Results that a run has when what it has begun, and what that asks for next, is done."""
    values = len(where)  # the base, as it is described
    for place in where:
        for name, parameter in parameters.items():
            asked = parameter.asked(known.found(place, name))
            values += len({*known.begun(place, name), *asked})
    return 2 * replications * values


def key_of(value: Any) -> str:
    """What a value or a place is told apart by."""
    return json.dumps(value, sort_keys=True, default=str)


@dataclass(frozen=True)
class Crossing:
    """Where the mean of the answer changes sign, and between which values it is undecided."""

    at: Any
    """Interpolated; in the parameter's unit."""
    low: Any
    """None: from the least value on."""
    high: Any
    """None: up to the most."""
    falls: bool
    """The first competitor is ahead below, the second above."""


@dataclass(frozen=True)
class Edge:
    """Where an answer that does not cross becomes significant."""

    at: Any
    above: bool
    """It is significant above, not below."""
    ahead: bool
    """The first competitor is ahead there (or the ratio larger than the one sought)."""


@dataclass(frozen=True)
class BreakEven:
    """One parameter's: where it changes which of two competitors leads."""

    name: str
    parameter: Parameter
    found: Found
    """Value -> the log ratio, in the order of the values."""
    base: Interval | None
    """The log ratio as described, where that is a value of this parameter."""
    crossing: Crossing | None = None
    edge: Edge | None = None

    @property
    def ends(self) -> dict[str, Interval]:
        """The log ratios that decide whether it crosses, by where they are."""
        parameter = self.parameter
        if parameter.choice:
            named = {f"with {value}": answer for value, answer in self.found.items()}
        else:
            named = {f"at {end}": self.found[end] for end in (parameter.at(0), parameter.at(1))}
        return named if self.base is None else {AS_DESCRIBED: self.base, **named}

    @property
    def undecided(self) -> list[str]:
        """Where among these the answer is not significant."""
        against = self.parameter.against
        return [where for where, answer in self.ends.items() if against(answer).sign == 0]

    @property
    def outcome(self) -> Literal["crosses", "no crossing", "undecided", "unfinished"]:
        if self.parameter.asked(self.found):
            return "unfinished"
        signs = {self.parameter.against(answer).sign for answer in self.ends.values()}
        if self.crossing or {1, -1} <= signs:
            return "crosses"
        return "undecided" if 0 in signs else "no crossing"
