"""The map of an answer: who serves the most, cell by cell of lengths and axes, and where that ties.

In each cell one policy scatters KV and others keep it contiguous. As described, KV is read equally
fast wherever it lies. A tie is the ratio of scattered to contiguous KV bandwidth at which the one
serves as much as the best of the others: it is bisected, and only the one is simulated again.
An objection is the other reading of a choice, for the policy that would plead it. A reading is that
of a disputed choice, whoever it serves: with `reread` the map is made again under each.

What is to be simulated next follows from the results alone, as in `break_even`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from hwmodel.description.description import Document, Strict, nearest
from sweeps.analyse.label import label
from sweeps.analyse.rows import Record
from sweeps.analyse.statistics import Interval, interval
from sweeps.plan.break_even import PARAMETER, VALUE, Parameter, Place, ahead, key_of, places
from sweeps.plan.place import Override
from sweeps.plan.sweep import SweepSpec, experiment_of
from sweeps.plan.variant import AS_DESCRIBED, Variant

if TYPE_CHECKING:
    pass

LENGTHS = "lengths"
"""The key of a result's overrides that names its lengths."""
TIE = "KV bandwidth, scattered over contiguous"
"""What stands under PARAMETER where the ratio is sought, with the ratio under VALUE."""
HALVINGS = 4
"""Of the ratio's range; between the values that are left the answer is interpolated."""

Rates = Mapping[int, float]
"""Replication -> output tokens a second."""


class KvRatio(Strict):
    """Scattered over contiguous KV bandwidth, as one over the kernel's factor `indirection`."""

    of: str
    """The competitor that scatters KV."""
    against: Annotated[list[str], Field(min_length=1)]
    """Competitors that keep it contiguous; what is in neither list is a reference."""
    range: Annotated[list[Annotated[float, Field(ge=0.1, le=1)]], Field(min_length=2, max_length=2)]
    """Least and most; `indirection` goes from 1 to 10."""
    path: str = "serving.policy.indirection"
    """What is one over the ratio."""
    why: str
    """Where the range comes from; `assumed` where none is given."""

    @property
    def parameter(self) -> Parameter:
        """The ratio as a number that is bisected."""
        return Parameter(path=self.path, range=list(self.range), log=True, why=self.why)

    def asked(self, found: Mapping[Any, Interval]) -> list[float]:
        """Ratios to simulate next; none where what is found settles the tie."""
        sought = self.parameter
        if missing := [value for value in (sought.at(0), sought.at(1)) if value not in found]:
            return missing
        value = sought.bracket(found, ahead, HALVINGS)[2]
        return [] if value is None else [value]


class Objection(Strict):
    """Another reading of a choice that was assumed against a policy."""

    of: str
    """The policy that would plead it."""
    set: Annotated[dict[str, Any], Field(min_length=1)]
    """Overrides, by dotted path."""
    why: str


class Reading(Strict):
    """The other reading of a disputed choice."""

    set: dict[str, Any] = {}
    """Overrides for all that compete, by dotted path."""
    of: dict[str, dict[str, Any]] = {}
    """Competitor -> overrides for it alone."""
    why: str


class AnswerSpec(SweepSpec):
    """A sweep over lengths and axes with a tie in each cell."""

    lengths: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    """Name -> overrides: the workload and its limits."""
    kv_ratio: KvRatio
    objections: dict[str, Objection] = {}
    readings: dict[str, Reading] = {}
    reread: bool = False
    """Whether the map is made again under each of `readings`; ties are not."""

    def refuse_inconsistent(self) -> None:
        if self.controls:
            raise ValueError("kv_ratio: does not go with controls")
        self.refuse_without_rate()
        given = [("kv_ratio.of", self.kv_ratio.of)]
        given += [("kv_ratio.against", each) for each in self.kv_ratio.against]
        given += [(f"objections.{name}.of", each.of) for name, each in self.objections.items()]
        given += [(f"readings.{name}.of", of) for name, each in self.readings.items()
                  for of in each.of]  # fmt: skip
        for where, competitor in given:
            if competitor not in self.competitors:
                hint = nearest(competitor, self.competitors)
                raise ValueError(f"{where}: no competitor {competitor!r}; {hint}")
        if self.kv_ratio.of in self.kv_ratio.against:
            raise ValueError(f"kv_ratio.against: {self.kv_ratio.of} is what they are held against")
        if self.kv_ratio.range[0] >= self.kv_ratio.range[1]:
            raise ValueError(f"kv_ratio.range: expected [least, most]; got {self.kv_ratio.range}")
        for name in self.readings:
            if not self.readings[name].set and not any(self.readings[name].of.values()):
                raise ValueError(f"readings.{name}: expected at least one path and its value")
            if name in self.objections:
                raise ValueError(f"readings.{name}: an objection has this name")
        if {AS_DESCRIBED, TIE} & {*self.objections, *self.readings}:
            raise ValueError("objections, readings: this name is taken")

    @classmethod
    def overrides(cls, data: Mapping[str, Any]) -> Iterator[Override]:
        yield from super().overrides(data)
        cases = [(key, *item) for key in ("objections", "readings")
                 for item in data.get(key, {}).items()]  # fmt: skip
        for key, name, each in cases:
            places: list[tuple[str, ...]] = [("set", path) for path in each.get("set", ())]
            if key == "readings":
                places += [("of", of, path) for of in each.get("of", ()) for path in each["of"][of]]
            for place in places:
                yield Override(place[-1], (key, name, *place), [(key, name, *place)])

    def variants(self, document: Document) -> list[Variant]:
        """All competitors at each lengths; with each objection, the one that pleads it, and with
        each reading those that it changes."""
        found = []
        for name in self.lengths:
            found.append(self._variant(document, name, {PARAMETER: AS_DESCRIBED}, {}))
            for what, each in self.objections.items():
                given = ("objections", what, "set"), each.set
                within = self._only(each.of)
                found.append(self._variant(document, name, {PARAMETER: what}, within, given))
            for what, reading in self.readings.items() if self.reread else ():
                found += [
                    self._variant(
                        document, name, {PARAMETER: what}, self._only(of),
                        (("readings", what, "set"), reading.set),
                        (("readings", what, "of", of), reading.of.get(of, {})),
                    )
                    for of in touched(reading, self.kv_ratio)
                ]  # fmt: skip
        return found

    def asked(
        self, records: Iterable[Record], replications: int, document: Document
    ) -> list[Variant]:
        known = Answers({**self.model_dump(), "base": {"replications": replications}}, records)
        return [
            self._variant(
                document, place[LENGTHS], {PARAMETER: TIE, VALUE: value},
                {**{k: v for k, v in place.items() if k != LENGTHS}, **self._only(known.ratio.of)},
                (("kv_ratio", "path"), {known.ratio.path: float(f"{1 / value:.6g}")}),
            )
            for place in known.places
            for value in known.asked(place)
        ]  # fmt: skip

    def _only(self, competitor: str) -> dict[str, Any]:
        """The compared axis at one competitor."""
        values = self.axes[self.compare]
        return {self.compare: next(value for value in values if label(value) == competitor)}

    def _variant(
        self, document: Document, lengths: str, head: dict[str, Any], within: dict[str, Any],
        *given: tuple[tuple[str, ...], Mapping[str, Any]],
    ) -> Variant:  # fmt: skip
        """given: overrides, and where they stand."""
        changes = [
            (path, value, document.mark((*at, path)))
            for at, overrides in (((LENGTHS, lengths), self.lengths[lengths]), *given)
            for path, value in overrides.items()
        ]
        return Variant({LENGTHS: lengths, **head}, changes, within=within)


def touched(reading: Reading, ratio: KvRatio) -> list[str]:
    """The policies that compete and that a reading changes."""
    return [name for name in (ratio.of, *ratio.against) if reading.set or reading.of.get(name)]


class Answers:
    """What a run of the map has found, by its config and results. A rate counts when all its
    replications are there."""

    def __init__(self, config: Mapping[str, Any], records: Iterable[Record]) -> None:
        self.compare = config["compare"]
        self.ratio = KvRatio.model_validate(config["kv_ratio"])
        self.names = [label(value) for value in config["axes"][self.compare]]
        self.objections = {
            name: Objection.model_validate(each)
            for name, each in (config.get("objections") or {}).items()
        }
        self.readings = {
            name: Reading.model_validate(each)
            for name, each in (config.get("readings") or {}).items()
            if config.get("reread")
        }
        self.cases = {name: [each.of] for name, each in self.objections.items()}
        """Objections and readings: the policies that each changes."""
        self.cases |= {name: touched(each, self.ratio) for name, each in self.readings.items()}
        self.places: list[Place] = [
            {LENGTHS: lengths, **place}
            for lengths, place in itertools.product(
                config["lengths"], places(config["axes"], self.compare)
            )
        ]
        self.replications = int(config["base"]["replications"])
        rate = experiment_of(config).rate
        assert rate is not None
        self._rates: dict[str, dict[tuple[Any, Any, str], dict[int, float]]] = {}
        for record in records:
            given = record["overrides"]
            case = given.get(PARAMETER), given.get(VALUE), label(given.get(self.compare))
            rest = {k: v for k, v in given.items() if k not in (PARAMETER, VALUE, self.compare)}
            mine = self._rates.setdefault(key_of(rest), {}).setdefault(case, {})
            mine[record["replication"]] = record["metrics"].get(rate.metric) or 0.0

    def rates(self, place: Place, name: str, case: str = AS_DESCRIBED, value: Any = None) -> Rates:
        """A competitor's rates; empty where some replications are not there, or served nothing."""
        found = self._rates.get(key_of(place), {}).get((case, value, name), {})
        whole = len(found) == self.replications and min(found.values()) > 0
        return found if whole else {}

    def described(self, place: Place, case: str | None = None) -> dict[str, Rates]:
        """Rates of the policies that compete, the most first; with an objection or a reading, of
        those that it changes under it."""
        found = {}
        for name in (self.ratio.of, *self.ratio.against):
            changed = case is not None and name in self.cases[case]
            if rates := self.rates(place, name, case if case and changed else AS_DESCRIBED):
                found[name] = rates
        return dict(sorted(found.items(), key=lambda item: -_mean_log(item[1])))

    def contiguous(self, rates: Mapping[str, Rates]) -> str | None:
        """The best of those that keep KV contiguous, where all have results."""
        found = [name for name in rates if name in self.ratio.against]
        return found[0] if len(found) == len(self.ratio.against) else None

    def lead(self, rates: Mapping[str, Rates]) -> Interval | None:
        """The log ratio of the one that scatters KV over the best of the others."""
        best = self.contiguous(rates)
        if best is None or self.ratio.of not in rates:
            return None
        return log_ratio(rates[self.ratio.of], rates[best])

    def found(self, place: Place) -> dict[float, Interval]:
        """The same at each ratio that is simulated, in rising order."""
        best = self.contiguous(rates := self.described(place))
        if best is None:
            return {}
        cases = self._rates.get(key_of(place), {})
        values = sorted({value for case, value, _ in cases if case == TIE})
        ours = {value: self.rates(place, self.ratio.of, TIE, value) for value in values}
        return {value: log_ratio(each, rates[best]) for value, each in ours.items() if each}

    def asked(self, place: Place) -> list[float]:
        """Ratios to simulate next at a place; none before its competitors have results."""
        if self.contiguous(self.described(place)) is None:
            return []
        return self.ratio.asked(self.found(place))

    def total(self) -> int:
        """Results of a run when what it has begun, and what that asks for next, is done."""
        sought = sum(len({*self.found(p), *self.asked(p)}) for p in self.places)
        fixed = len(self.places) * (len(self.names) + sum(map(len, self.cases.values())))
        return self.replications * (fixed + sought)


def log_ratio(ours: Rates, theirs: Rates) -> Interval:
    """ln(ours / theirs), paired by replication."""
    return interval([math.log(ours[r] / theirs[r]) for r in sorted(ours.keys() & theirs.keys())])


def _mean_log(rates: Rates) -> float:
    return math.fsum(map(math.log, rates.values())) / len(rates)


@dataclass(frozen=True)
class AnswerCell:
    """A cell of the map of an answer; log ratios unless it says otherwise."""

    name: str
    rates: dict[str, Interval]
    """Output tokens a second of each policy that competes, the most first."""
    lead: Interval
    """Of the first over the second."""
    scattered: Interval
    """Of the policy that scatters KV over the best contiguous one, as described."""
    best_contiguous: str
    references: dict[str, Interval]
    """Over the first."""
    found: dict[float, Interval]
    """`scattered` by the ratio of scattered to contiguous bandwidth."""
    tied: Interval | None
    """The ratio at which `scattered` is none; None where its mean has one sign in the range."""
    pleas: dict[str, tuple[str, Interval]]
    """With each objection upheld, under each reading: who serves the most, and its lead over the
    second."""
    bound: bool
    """Whether KV memory limits the first."""

    @property
    def order(self) -> list[str]:
        return list(self.rates)

    @property
    def winner(self) -> str | None:
        """Who serves significantly more than all others, where KV memory is its limit."""
        return self.order[0] if self.bound and self.lead.sign > 0 else None

    @property
    def side(self) -> int | None:
        """The policy that scatters KV is ahead at every ratio (1), at none (-1), or ties (0); None:
        not known yet."""
        signs = {each.mean > 0 for each in self.found.values()}
        if len(self.found) < 2 or (len(signs) > 1 and self.tied is None):
            return None
        return 0 if self.tied is not None else 1 if True in signs else -1

    @property
    def upheld(self) -> list[str]:
        """Objections and readings with which another policy than now serves significantly the
        most."""
        first, pleas = self.order[0], self.pleas.items()
        return [n for n, (best, lead) in pleas if self.bound and best != first and lead.sign > 0]

    @property
    def opened(self) -> list[str]:
        """Objections and readings with which none serves significantly the most any more."""
        return [n for n, (_, lead) in self.pleas.items() if self.winner and lead.sign == 0]

    def winner_under(self, reading: str) -> str | None:
        """Who serves significantly more than all others under a reading that is known."""
        best, lead = self.pleas[reading]
        return best if self.bound and lead.sign > 0 else None


@dataclass(frozen=True)
class AnswerMap:
    """Who serves the most in each cell, on one device."""

    device: str
    model: str
    scattered: str
    """The policy that scatters KV."""
    contiguous: list[str]
    cells: list[AnswerCell]
    total: int
    """Cells that a finished run has."""
    replications: int
    objections: dict[str, tuple[str, str]]
    """Name -> whose it is, and why."""
    readings: dict[str, str]
    """Name -> why."""

    @property
    def policies(self) -> list[str]:
        return [*self.contiguous, self.scattered]

    def under(self, case: str) -> list[AnswerCell]:
        """The cells that are known under an objection or a reading."""
        return [cell for cell in self.cells if case in cell.pleas]

    def won(self, reading: str) -> dict[str, int]:
        """Cells that each policy wins under a reading; those that none wins under ``."""
        winners = [cell.winner_under(reading) or "" for cell in self.under(reading)]
        return {name: winners.count(name) for name in (*self.policies, "")}
