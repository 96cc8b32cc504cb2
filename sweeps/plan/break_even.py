"""Break-evens: the value of a number at which the answer between two competitors changes.

At each value the answer is the paired log ratio of the first competitor's rate over the second's,
with its 95 % interval. Where the mean changes sign is the break-even, and between the values at
which either is surely ahead lies its interval. Where the signs at both ends agree there is none, as
far as the answer rises or falls all along the range. Variants are tried one by one.

What is to be simulated next follows from the results alone, so a search that was interrupted goes
on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hwmodel.description.description import Document
from hwmodel.specs.device import load_device
from sweeps.analyse.label import titled
from sweeps.analyse.rows import Record
from sweeps.analyse.statistics import Interval
from sweeps.analyse.table import Table
from sweeps.analyse.variants import CASE
from sweeps.plan.evaluations import (
    PARAMETER,
    VALUE,
    Evaluations,
    Place,
    Value,
    places,
)
from sweeps.plan.parameter import PLAUSIBLE, Answers, Parameter, ahead, ahead_surely, not_behind
from sweeps.plan.place import Override
from sweeps.plan.sweep_spec import SweepSpec
from sweeps.plan.variant import AS_DESCRIBED, Change, Layer

DEVICE_KEYS = ("device", "device_set")
"""Of an experiment: what is compared shares them, but for the number that is sought."""


class BreakEvenSpec(SweepSpec):
    """A sweep that seeks the values at which its answer changes."""

    roles = ("case",)

    break_even: dict[str, Parameter]
    """Name -> a number, whose value is sought at which the answer changes."""

    def refuse_inconsistent(self) -> None:
        self.refuse_without_objective()
        if len(self.competitors) != 2:
            count = len(self.competitors)
            raise ValueError(f"compare: break_even is between two competitors; got {count}")
        for name, parameter in self.break_even.items():
            where = f"break_even: {name!r}"
            if name == AS_DESCRIBED:
                raise ValueError(f"{where} is what the base is called; take another name")
            if parameter.of is not None:
                self.refuse_competitor(f"{where}: of", parameter.of)
                if device := [p for p in parameter.set if p.split(".")[0] in DEVICE_KEYS]:
                    raise ValueError(
                        f"{where}: set: {device[0]} would be of {parameter.of} alone, as `of` takes"
                        " `set` with it; give the device of both in base, or in a case"
                    )
            each = [variant.set for variant in parameter.variants.values()]
            for path in (parameter.path, *parameter.set, *(p for own in each for p in own)):
                if path in self.axes:
                    raise ValueError(f"{where}: {path} is an axis already")

    @classmethod
    def overrides(cls, data: Mapping[str, Any]) -> Iterator[Override]:
        yield from super().overrides(data)
        for name, parameter in data["break_even"].items():
            at = ("break_even", name)
            if path := parameter.get("path"):
                yield Override(path, (*at, "path"), [])
            inner: list[tuple[str, ...]] = [("set", path) for path in parameter.get("set") or ()]
            variants = parameter.get("variants")
            for variant, each in variants.items() if isinstance(variants, dict) else ():
                inner += [("variants", variant, "set", path) for path in each["set"]]
            for keys in inner:
                yield Override(keys[-1], (*at, *keys), [(*at, *keys)])

    @classmethod
    def complete(cls, document: Document) -> bool:
        places = [
            ("break_even", name, "variants")
            for name, parameter in document.data["break_even"].items()
            if parameter.get("variants") == PLAUSIBLE
        ]
        for place in places:
            document.put(place, _plausible(document, place), document.mark(place))
        return bool(places)

    @classmethod
    def found(cls, table: Table) -> list[Search]:
        return searches(table)

    @classmethod
    def total(cls, config: Mapping[str, Any], records: Sequence[Record]) -> int:
        known = Evaluations(config, records)
        where = places(config)
        values = len(where)  # the base, as it is described
        for place in where:
            for name, parameter in parameters(config).items():
                asked = parameter.asked(answers(known, place, name))
                values += len({*known.begun(place, name), *asked})
        return 2 * known.replications * values

    def layers(self, document: Document) -> list[Layer]:
        return [
            each._replace(head={**each.head, PARAMETER: AS_DESCRIBED})
            for each in super().layers(document)
        ]

    def asked(
        self, records: Iterable[Record], replications: int, document: Document
    ) -> list[Layer]:
        """What is to be simulated next, a layer for each value."""
        config = self.known_config(document, replications)
        known = Evaluations(config, records)
        known.refuse_unmeasured()
        return [
            self._layer(document, place, name, value)
            for place in places(config)
            for name, parameter in self.break_even.items()
            for value in parameter.asked(answers(known, place, name))
        ]

    def _layer(self, document: Document, place: Place, name: str, value: Value) -> Layer:
        """One value at a place; what `of` has alone goes to that competitor."""
        parameter, case = self.break_even[name], place.get(CASE)
        head = {k: v for k, v in (*place.items(), (PARAMETER, name), (VALUE, value))
                if k not in self.axes}  # fmt: skip
        changes = _changes(name, parameter, value, document)
        if parameter.of is None:
            return Layer(head, [*self.case_changes(document, case), *changes], within=place)
        own = {parameter.of: changes}
        return Layer(head, self.case_changes(document, case), within=place, own=own)


def parameters(config: Mapping[str, Any]) -> dict[str, Parameter]:
    """The parameters that a run has by its config."""
    return {name: Parameter.model_validate(each) for name, each in config["break_even"].items()}


def answers(known: Evaluations, place: Place, name: str) -> dict[Value, Interval]:
    """The answer at each value of a parameter that is whole, in the order of the results."""
    pair = known.names
    by_value = (
        (value, [known.rates(place, competitor, name, value) for competitor in pair])
        for value in known.begun(place, name)
    )
    return {value: known.advantage(*both) for value, both in by_value if all(both)}


def _changes(name: str, parameter: Parameter, value: Value, document: Document) -> list[Change]:
    at = ("break_even", name)
    inner = ("variants", value, "set") if parameter.variants else ("path",)
    return [
        *((path, v, document.mark((*at, "set", path))) for path, v in parameter.set.items()),
        *((path, v, document.mark((*at, *inner))) for path, v in parameter.sets(value).items()),
    ]


def _plausible(document: Document, place: tuple[str, ...]) -> dict[str, Any]:
    """The plausible variants of the base's device, by name: what each sets."""
    base = document.data["base"]
    if not isinstance(base.get("device"), str):
        raise document.error(f"{PLAUSIBLE} needs one device, in base", place)
    variants = load_device(base["device"]).plausible
    if not variants:
        raise document.error(f"{base['device']} lists no plausible variants", place)
    return {
        name: {"set": {f"device_set.{path}": value for path, value in variant.set.items()}}
        for name, variant in variants.items()
    }


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
    found: Answers
    """Value -> the log ratio, in the order of the values."""
    base: Interval | None
    """The log ratio as described, where that is a value of this parameter."""
    crossing: Crossing | None = None
    edge: Edge | None = None

    @property
    def ends(self) -> dict[str, Interval]:
        """The log ratios that decide whether it crosses, by where they are."""
        parameter = self.parameter
        if parameter.variants:
            named = {f"with {value}": answer for value, answer in self.found.items()}
        else:
            named = {f"at {end}": self.found[end] for end in (parameter.at(0), parameter.at(1))}
        return named if self.base is None else {AS_DESCRIBED: self.base, **named}

    @property
    def outcome(self) -> Literal["crosses", "no crossing", "undecided", "unfinished"]:
        if self.parameter.asked(self.found):
            return "unfinished"
        signs = {self.parameter.against(answer).sign for answer in self.ends.values()}
        if self.crossing or {1, -1} <= signs:
            return "crosses"
        return "undecided" if 0 in signs else "no crossing"


@dataclass(frozen=True)
class Search:
    """What is found of every parameter at one combination of the axes that are not compared."""

    place: Place
    pair: list[str]
    """The two competitors."""
    now: Interval | None
    """As described: the log ratio of the first over the second."""
    found: list[BreakEven]
    less: bool = False
    """Less of the objective is better, so that the ratio is that of the second over the first."""

    @property
    def where(self) -> str:
        return ", ".join(titled(*item) for item in self.place.items())

    @property
    def ratio(self) -> str:
        return " / ".join(reversed(self.pair) if self.less else self.pair)


def searches(table: Table) -> list[Search]:
    """A search for each place."""
    config = table.config
    known = Evaluations(config, table.records())
    pair = known.names
    found = []
    for place in places(config):
        now = answers(known, place, AS_DESCRIBED).get(None)
        each = [
            _break_even(name, parameter, answers(known, place, name), now)
            for name, parameter in parameters(config).items()
        ]
        found.append(Search(place, pair, now, each, known.objective.less))
    return found


def _break_even(name: str, parameter: Parameter, found: Answers, now: Interval | None) -> BreakEven:
    base = None if parameter.set else now
    if parameter.asked(found):
        return BreakEven(name, parameter, found, base)
    if parameter.variants:
        return BreakEven(
            name, parameter, {value: found[value] for value in parameter.variants}, base
        )
    found = dict(sorted(found.items(), key=lambda item: _number(parameter, item[0])))
    crossing = _crossing(parameter, found)
    edge = None if crossing else _edge(parameter, found)
    return BreakEven(name, parameter, found, base, crossing, edge)


def _number(parameter: Parameter, value: Any) -> float:
    return float(str(value).removesuffix(parameter.unit or ""))


def _crossing(parameter: Parameter, found: Answers) -> Crossing | None:
    """By the mean; None where it has one sign at both ends."""

    def against(position: float) -> Interval:
        return parameter.against(found[parameter.at(position)])

    falls = ahead(against(0))
    if falls == ahead(against(1)):
        return None
    low, high = parameter.bracket(found, ahead)
    before, after = against(low).mean, against(high).mean
    share = before / (before - after) if before != after else 0.5
    # significant on one side of the begin, and on the other side of the end
    first, second = (ahead_surely, not_behind) if falls else (not_behind, ahead_surely)
    begin = parameter.bracket(found, first)[0]
    end = parameter.bracket(found, second)[1]
    low_is_open = first(against(0)) == first(against(1))
    high_is_open = second(against(0)) == second(against(1))
    return Crossing(
        parameter.at(low + share * (high - low)),
        None if low_is_open else parameter.at(begin),
        None if high_is_open else parameter.at(end),
        falls,
    )


def _edge(parameter: Parameter, found: Answers) -> Edge | None:
    """Where one end is significant and the other is not; None where both are, or neither."""
    for curve in (ahead_surely, not_behind):
        least, most = (curve(parameter.against(found[parameter.at(end)])) for end in (0, 1))
        if least != most:
            sure = curve is ahead_surely
            above = most == sure
            low, high = parameter.bracket(found, curve)
            return Edge(parameter.at(high if above else low), above, sure)
    return None
