"""The results of a run of crossings so far, and what they ask for next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweeps.analyse.label import titled
from sweeps.analyse.rows import Record
from sweeps.analyse.statistics import Interval
from sweeps.analyse.variants import CASE, with_role
from sweeps.plan.evaluations import Evaluations, Place, Rates, Value, places
from sweeps.plan.parameter import Parameter
from sweeps.plan.variant import AS_DESCRIBED, VariantSpec


def sides(parameters: Mapping[str, Parameter], names: Sequence[str]) -> tuple[str, list[str]]:
    """Whose lead is sought, and over the best of whom."""
    for each in parameters.values():
        if each.against:
            assert each.of is not None
            return each.of, each.against
    return names[0], [*names[1:]]


def touched(variant: VariantSpec, competing: Sequence[str]) -> list[str]:
    """Those that compete and that an objection or a reading changes."""
    if isinstance(variant.of, str):
        return [variant.of]
    return [name for name in competing if variant.set or variant.of.get(name)]


class CrossingResults(Evaluations):
    """What such a run has found, by its config and results."""

    def __init__(self, config: Mapping[str, Any], records: Iterable[Record]) -> None:
        super().__init__(config, records)
        given = config["crossing"].items()
        self.parameters = {name: Parameter.model_validate(each) for name, each in given}
        self.ours, self.theirs = sides(self.parameters, self.names)
        self.objections, self.readings = (
            {
                name: VariantSpec.model_validate(each)
                for name, each in with_role(config, role).items()
            }
            for role in ("objection", "reading")
        )
        self.touched = {
            name: touched(each, self.competing)
            for name, each in {**self.objections, **self.readings}.items()
        }
        """Objections and readings: the competitors that each changes."""
        self.places: list[Place] = places(config)

    @property
    def competing(self) -> list[str]:
        """All but references."""
        return [self.ours, *self.theirs]

    def described(self, place: Place, name: str | None = None) -> dict[str, Rates]:
        """Rates of those that compete, the most first; with an objection or a reading, of those
        that it changes under it."""
        rates_of = {}
        for policy in self.competing:
            changed = name is not None and policy in self.touched[name]
            if rates := self.rates(place, policy, name if name and changed else AS_DESCRIBED):
                rates_of[policy] = rates
        return dict(sorted(rates_of.items(), key=lambda item: -self.mean_log(item[1])))

    def title(self, place: Place) -> str:
        """A place in words."""
        known = [*(titled(k, v) for k, v in place.items() if k != CASE), place.get(CASE, "")]
        return ", ".join(filter(None, known))

    def that_fit(self, place: Place, name: str | None = None) -> list[str]:
        """Those that compete and have room, as described or, as far as it changes them, with an
        objection or a reading."""
        return [
            each for each in self.competing
            if self.fits(place, each, name if name and each in self.touched[name] else AS_DESCRIBED)
        ]  # fmt: skip

    def rival(self, place: Place) -> str | None:
        """Whom the first is held against: the best of several that fit, as described, where all of
        these have results."""
        if len(self.theirs) == 1:
            return self.theirs[0]
        known = [name for name in self.described(place) if name != self.ours]
        wanted = [name for name in self.that_fit(place) if name != self.ours]
        return known[0] if known and len(known) == len(wanted) else None

    def lead(self, place: Place) -> Interval | None:
        """The log ratio as described."""
        rates, rival = self.described(place), self.rival(place)
        if rival not in rates or self.ours not in rates:
            return None
        return self.advantage(rates[self.ours], rates[rival])

    def leads(self, place: Place, name: str) -> dict[Value, Interval]:
        """The log ratio at each value of a number that is whole, in the order of the results."""
        if (rival := self.rival(place)) is None:
            return {}
        found = {}
        for value in self.begun(place, name):
            ours, theirs = (
                self.rates(place, each, *self._at(each, name, value)) for each in (self.ours, rival)
            )
            if ours and theirs:
                found[value] = self.advantage(ours, theirs)
        return found

    def unfit(self, place: Place, name: str) -> list[Value]:
        """Values of a number with which the first, or whom it is held against, does not fit."""
        pair = self.ours, self.rival(place)
        return [
            value for value in self.begun(place, name)
            if not all(self.fits(place, e, *self._at(e, name, value)) for e in pair if e)
        ]  # fmt: skip

    def _at(self, competitor: str, name: str, value: Value) -> tuple[str, Value]:
        """Under which number and value a competitor's results are those with a value of one."""
        changed = self.parameters[name].of in (None, competitor)
        return (name, value) if changed else (AS_DESCRIBED, None)

    def sought(self, place: Place, name: str) -> list[Value]:
        """Values to simulate next; none before those have results of whom the best is sought."""
        if self.rival(place) is None:
            return []
        return self.parameters[name].sought(self.leads(place, name), self.unfit(place, name))

    def total(self) -> int:
        """Results of a run when what it has begun, and what that asks for next, is done."""
        many = 0
        for name, parameter in self.parameters.items():
            values = sum(len({*self.begun(p, name), *self.sought(p, name)}) for p in self.places)
            many += values * (len(self.competing) if parameter.of is None else 1)
        fixed = len(self.places) * (len(self.names) + sum(map(len, self.touched.values())))
        return self.replications * (fixed + many)
