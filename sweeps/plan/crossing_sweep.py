"""Crossings: the value of a number at which the lead of one competitor over another changes sides.

At each value the lead is the paired log ratio of the first competitor over the second, or of the
one that has the number over the best, as described, of those that it is held against. The range is
bisected where its ends disagree (`sweeps.analyse.crossing`); variants are tried one by one. An
objection is the other reading of a choice, for the competitor that would plead it; a reading is
that of a disputed choice, whoever it serves.

What is to be simulated next follows from the results alone, so a search that was interrupted goes
on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from hwmodel.description.description import Document
from hwmodel.specs.device import load_device
from sweeps.analyse.label import label
from sweeps.analyse.rows import Record
from sweeps.analyse.table import Table
from sweeps.analyse.variants import CASE
from sweeps.plan.crossing_findings import Crossings, crossings
from sweeps.plan.crossing_results import CrossingResults, sides, touched
from sweeps.plan.evaluations import PARAMETER, VALUE, Place, Value
from sweeps.plan.parameter import PLAUSIBLE, Parameter
from sweeps.plan.place import Override
from sweeps.plan.sweep_spec import SweepSpec
from sweeps.plan.variant import AS_DESCRIBED, Change, Layer

DEVICE_KEYS = ("device", "device_set")
"""Of an experiment: what is compared shares them, but for the number that is sought."""


class CrossingSpec(SweepSpec):
    """A sweep that seeks the values at which its answer changes."""

    roles = ("case", "objection", "reading")
    page = "sweeps.report.crossing_page:account"

    crossing: Annotated[dict[str, Parameter], Field(min_length=1)]
    """Name -> a number, whose value is sought at which the lead changes sides."""

    def refuse_inconsistent(self) -> None:
        self.refuse_without_objective()
        against = [each for each in self.crossing.values() if each.against]
        if len(self.competitors) != 2 and not against:
            count = len(self.competitors)
            raise ValueError(f"compare: a crossing is between two competitors, or of one `against`"
                             f" others; got {count}")  # fmt: skip
        if against and len(self.crossing) > 1:
            raise ValueError("crossing: a number with `against` stands alone")
        for name, parameter in self.crossing.items():
            self._refuse(f"crossing.{name}", name, parameter)
        for name, variant in self.with_role("objection").items():
            if not isinstance(variant.of, str):
                raise ValueError(f"variants.{name}.of: expected the competitor that would plead it")

    def _refuse(self, where: str, name: str, parameter: Parameter) -> None:
        if name == AS_DESCRIBED or name in self.variants:
            raise ValueError(f"{where}: this name is taken")
        if parameter.of is not None:
            self.refuse_competitor(f"{where}.of", parameter.of)
            if device := [p for p in parameter.set if p.split(".")[0] in DEVICE_KEYS]:
                raise ValueError(
                    f"{where}.set: {device[0]} would be of {parameter.of} alone, as `of` takes"
                    " `set` with it; give the device of both in base, or in a case"
                )
        for each in parameter.against:
            self.refuse_competitor(f"{where}.against", each)
            if each == parameter.of:
                raise ValueError(f"{where}.against: {each} is what they are held against")
        inner = [variant.set for variant in parameter.variants.values()]
        for path in (parameter.path, *parameter.set, *(p for own in inner for p in own)):
            if path in self.axes:
                raise ValueError(f"{where}: {path} is an axis already")

    @classmethod
    def overrides(cls, data: Mapping[str, Any]) -> Iterator[Override]:
        yield from super().overrides(data)
        for name, parameter in data["crossing"].items():
            at = ("crossing", name)
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
        found = [
            ("crossing", name, "variants")
            for name, parameter in document.data["crossing"].items()
            if parameter.get("variants") == PLAUSIBLE
        ]
        for place in found:
            document.put(place, _plausible(document, place), document.mark(place))
        return bool(found)

    @classmethod
    def findings(cls, table: Table) -> Crossings:
        return crossings(table)

    @classmethod
    def total(cls, config: Mapping[str, Any], records: Sequence[Record]) -> int:
        return CrossingResults(config, records).total()

    def layers(self, document: Document) -> list[Layer]:
        """All competitors in each case; with each objection, the one that pleads it, and with each
        reading those that it changes."""
        ours, theirs = sides(self.crossing, self.competitors)
        disputes = {**self.with_role("objection"), **self.with_role("reading")}
        layers = []
        cases: list[str | None] = [*self.with_role("case")]
        for case in cases or [None]:
            head = {} if case is None else {CASE: case}
            changes = self.case_changes(document, case)
            layers.append(Layer({**head, PARAMETER: AS_DESCRIBED}, changes))
            for name, variant in disputes.items():
                own = variant.own_changes(document, name)
                layers += [
                    Layer(
                        {**head, PARAMETER: name},
                        [*changes, *variant.changes(document, name), *own.get(of, ())],
                        within=self._only(of),
                    )
                    for of in touched(variant, (ours, *theirs))
                ]  # fmt: skip
        return layers

    def next_layers(
        self, records: Iterable[Record], replications: int, document: Document
    ) -> list[Layer]:
        """What is to be simulated next, a layer for each value."""
        known = CrossingResults(self.known_config(document, replications), records)
        known.refuse_unmeasured()
        return [
            self._layer(document, place, name, value)
            for place in known.places
            for name in self.crossing
            for value in known.sought(place, name)
        ]

    def _layer(self, document: Document, place: Place, name: str, value: Value) -> Layer:
        """One value at a place, of those competitors that have the number."""
        parameter, case = self.crossing[name], place.get(CASE)
        head = {k: v for k, v in (*place.items(), (PARAMETER, name), (VALUE, value))
                if k not in self.axes}  # fmt: skip
        within = {k: v for k, v in place.items() if k != CASE}
        if parameter.of is not None:
            within |= self._only(parameter.of)
        changes = _changes(name, parameter, value, document)
        return Layer(head, [*self.case_changes(document, case), *changes], within=within)

    def _only(self, competitor: str) -> dict[str, Any]:
        """The compared axis at one competitor."""
        values = self.axes[self.compare]
        return {self.compare: next(value for value in values if label(value) == competitor)}


def _changes(name: str, parameter: Parameter, value: Value, document: Document) -> list[Change]:
    at = ("crossing", name)
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
