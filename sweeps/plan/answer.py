"""The map of an answer: who serves the most, cell by cell of cases and axes, and where that ties.

In each cell one policy scatters KV and others keep it contiguous. As described, KV is read equally
fast wherever it lies. A tie is the ratio of scattered to contiguous KV bandwidth at which the one
serves as much as the best of the others: it is bisected, and only the one is simulated again.
An objection is the other reading of a choice, for the policy that would plead it. A reading is that
of a disputed choice, whoever it serves; `skip: [reading]` leaves readings out.

What is to be simulated next follows from the results alone, as in `break_even`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from hwmodel.description.description import Document, Strict
from sweeps.analyse.facts import Verdict
from sweeps.analyse.label import label, titled
from sweeps.analyse.objective import SERVED, Objective
from sweeps.analyse.rows import Record
from sweeps.analyse.statistics import Interval, interval, significant
from sweeps.analyse.table import Group, Row, Table
from sweeps.analyse.variants import CASE, with_role
from sweeps.analyse.verdict import judge_all
from sweeps.plan.evaluations import (
    PARAMETER,
    VALUE,
    Evaluations,
    Place,
    Rates,
    key_of,
    places,
)
from sweeps.plan.parameter import Parameter, ahead
from sweeps.plan.sweep_spec import Point, SweepSpec
from sweeps.plan.variant import AS_DESCRIBED, Change, Layer, VariantSpec

TIE = "KV bandwidth, scattered over contiguous"
"""What stands under PARAMETER where the ratio is sought, with the ratio under VALUE."""
HALVINGS = 4
"""Of the ratio's range; between the values that are left the answer is interpolated."""


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

    def asked(self, known: Mapping[Any, Interval]) -> list[float]:
        """Ratios to simulate next; none where what is known settles the tie."""
        sought = self.parameter
        if missing := [value for value in (sought.at(0), sought.at(1)) if value not in known]:
            return missing
        value = sought.next_value(known, ahead, HALVINGS)
        return [] if value is None else [value]


class AnswerSpec(SweepSpec):
    """A sweep over cases and axes with a tie in each cell."""

    roles = ("case", "objection", "reading")

    kv_ratio: KvRatio

    def refuse_inconsistent(self) -> None:
        self.refuse_without_objective()
        if not self.with_role("case"):
            raise ValueError("variants: design answer needs at least one with the role case")
        self.refuse_competitor("kv_ratio.of", self.kv_ratio.of)
        for each in self.kv_ratio.against:
            self.refuse_competitor("kv_ratio.against", each)
        if self.kv_ratio.of in self.kv_ratio.against:
            raise ValueError(f"kv_ratio.against: {self.kv_ratio.of} is what they are held against")
        if self.kv_ratio.range[0] >= self.kv_ratio.range[1]:
            raise ValueError(f"kv_ratio.range: expected [least, most]; got {self.kv_ratio.range}")
        for name, variant in self.variants.items():
            if name == TIE:
                raise ValueError(f"variants.{name}: this name is taken")
            if variant.role == "objection" and not isinstance(variant.of, str):
                raise ValueError(f"variants.{name}.of: expected the competitor that would plead it")

    @classmethod
    def found(cls, table: Table) -> AnswerMap:
        return answer_map(table)

    @classmethod
    def total(cls, config: Mapping[str, Any], records: Sequence[Record]) -> int:
        return Answers(config, records).total()

    def recorded(self, points: Sequence[Point]) -> dict[str, Any]:
        return {}

    def layers(self, document: Document) -> list[Layer]:
        """All competitors in each case; with each objection, the one that pleads it, and with each
        reading those that it changes."""
        layers = []
        for case in self.with_role("case"):
            layers.append(self._layer(document, case, {PARAMETER: AS_DESCRIBED}, {}))
            for name, variant in {
                **self.with_role("objection"),
                **self.with_role("reading"),
            }.items():
                own = variant.own_changes(document, name)
                layers += [
                    self._layer(
                        document, case, {PARAMETER: name}, self._only(of),
                        [*variant.changes(document, name), *own.get(of, ())],
                    )
                    for of in touched(variant, self.kv_ratio)
                ]  # fmt: skip
        return layers

    def asked(
        self, records: Iterable[Record], replications: int, document: Document
    ) -> list[Layer]:
        known = Answers(self.known_config(document, replications), records)
        known.refuse_unmeasured()
        mark = document.mark(("kv_ratio", "path"))
        return [
            self._layer(
                document, place[CASE], {PARAMETER: TIE, VALUE: value},
                {**{k: v for k, v in place.items() if k != CASE}, **self._only(known.ratio.of)},
                [(known.ratio.path, float(f"{1 / value:.6g}"), mark)],
            )
            for place in known.places
            for value in known.asked(place)
        ]  # fmt: skip

    def _only(self, competitor: str) -> dict[str, Any]:
        """The compared axis at one competitor."""
        values = self.axes[self.compare]
        return {self.compare: next(value for value in values if label(value) == competitor)}

    def _layer(
        self, document: Document, case: str, head: dict[str, Any], within: dict[str, Any],
        changes: Iterable[Change] = (),
    ) -> Layer:  # fmt: skip
        return Layer(
            {CASE: case, **head}, [*self.case_changes(document, case), *changes], within=within
        )


def touched(variant: VariantSpec, ratio: KvRatio) -> list[str]:
    """The policies that compete and that an objection or a reading changes."""
    if isinstance(variant.of, str):
        return [variant.of]
    return [name for name in (ratio.of, *ratio.against) if variant.set or variant.of.get(name)]


class Answers(Evaluations):
    """What a run of the map has found, by its config and results."""

    def __init__(self, config: Mapping[str, Any], records: Iterable[Record]) -> None:
        super().__init__(config, records)
        self.ratio = KvRatio.model_validate(config["kv_ratio"])
        self.objections, self.readings = (
            {
                name: VariantSpec.model_validate(each)
                for name, each in with_role(config, role).items()
            }
            for role in ("objection", "reading")
        )
        self.touched = {
            name: touched(each, self.ratio)
            for name, each in {**self.objections, **self.readings}.items()
        }
        """Objections and readings: the policies that each changes."""
        self.places: list[Place] = places(config)

    def described(self, place: Place, name: str | None = None) -> dict[str, Rates]:
        """Rates of the policies that compete, the most first; with an objection or a reading, of
        those that it changes under it."""
        rates_of = {}
        for policy in (self.ratio.of, *self.ratio.against):
            changed = name is not None and policy in self.touched[name]
            if rates := self.rates(place, policy, name if name and changed else AS_DESCRIBED):
                rates_of[policy] = rates
        return dict(sorted(rates_of.items(), key=lambda item: -self.mean_log(item[1])))

    def title(self, place: Place) -> str:
        """The cell of a place, in words."""
        return ", ".join([*(titled(k, v) for k, v in place.items() if k != CASE), place[CASE]])

    def contiguous(self, rates: Mapping[str, Rates]) -> str | None:
        """The best of those that keep KV contiguous, where all have results."""
        known = [name for name in rates if name in self.ratio.against]
        return known[0] if len(known) == len(self.ratio.against) else None

    def lead(self, rates: Mapping[str, Rates]) -> Interval | None:
        """The log ratio of the one that scatters KV over the best of the others."""
        best = self.contiguous(rates)
        if best is None or self.ratio.of not in rates:
            return None
        return self.advantage(rates[self.ratio.of], rates[best])

    def by_ratio(self, place: Place) -> dict[float, Interval]:
        """The same at each ratio that is simulated, in rising order."""
        best = self.contiguous(rates := self.described(place))
        if best is None:
            return {}
        ours = {v: self.rates(place, self.ratio.of, TIE, v) for v in sorted(self.begun(place, TIE))}
        return {value: self.advantage(each, rates[best]) for value, each in ours.items() if each}

    def asked(self, place: Place) -> list[float]:
        """Ratios to simulate next at a place; none before its competitors have results."""
        if self.contiguous(self.described(place)) is None:
            return []
        return self.ratio.asked(self.by_ratio(place))

    def total(self) -> int:
        """Results of a run when what it has begun, and what that asks for next, is done."""
        sought = sum(len({*self.by_ratio(p), *self.asked(p)}) for p in self.places)
        fixed = len(self.places) * (len(self.names) + sum(map(len, self.touched.values())))
        return self.replications * (fixed + sought)


@dataclass(frozen=True)
class AnswerCell:
    """A cell of the map of an answer; log ratios unless it says otherwise."""

    name: str
    verdict: Verdict
    """On the policies that compete; all cells are one family, as they are under each of `pleas`."""
    rates: dict[str, Interval]
    """The objective of each policy that competes."""
    scattered: Interval
    """Of the policy that scatters KV over the best contiguous one, as described."""
    best_contiguous: str
    references: dict[str, Interval]
    """Over the first."""
    found: dict[float, Interval]
    """`scattered` by the ratio of scattered to contiguous bandwidth."""
    tied: Interval | None
    """The ratio at which `scattered` is none; None where its mean has one sign in the range."""
    pleas: dict[str, Verdict]
    """With each objection upheld, under each reading."""

    @property
    def winner(self) -> str | None:
        """Who is significantly better than all others."""
        return self.verdict.best or None

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
        """Objections and readings with which another policy than now is significantly the best, in
        all of their maps together (Bonferroni)."""
        return [
            name for name, each in self.pleas.items()
            if each.best not in ("", self.verdict.leader) and significant(len(self.pleas) * each.p)
        ]  # fmt: skip

    @property
    def opened(self) -> list[str]:
        """Objections and readings with which none is significantly the best any more."""
        return [name for name, each in self.pleas.items() if self.winner and not each.best]


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
    objective: Objective = SERVED

    @property
    def policies(self) -> list[str]:
        return [*self.contiguous, self.scattered]

    @property
    def shown(self) -> list[AnswerCell]:
        """The cells, those first that a contiguous policy wins."""
        return sorted(self.cells, key=lambda cell: cell.winner not in self.contiguous)

    def under(self, case: str) -> list[AnswerCell]:
        """The cells that are known under an objection or a reading."""
        return [cell for cell in self.cells if case in cell.pleas]

    def won(self, reading: str) -> dict[str, int]:
        """Cells that each policy wins under a reading; those that none wins under ``."""
        winners = [cell.pleas[reading].best for cell in self.under(reading)]
        return {name: winners.count(name) for name in (*self.policies, "")}


def answer_map(table: Table) -> AnswerMap:
    """What a run found, as far as it is there."""
    known = Answers(table.config, table.records())
    base = table.config["base"]
    return AnswerMap(
        label(base["device"]), label(base["model"]), known.ratio.of, known.ratio.against,
        _cells(table, known), len(known.places), known.replications,
        {name: (str(each.of), each.why) for name, each in known.objections.items()},
        {name: each.why for name, each in known.readings.items()}, known.objective,
    )  # fmt: skip


def _cells(table: Table, known: Answers) -> list[AnswerCell]:
    """Cells whose policies all have results. The verdicts on all of them are one family, as
    described and under each objection and reading, so that these maps compare."""
    rows = {(key_of(group.others), row.name): row for group in table.groups for row in group.main()}
    maps = {
        name: _judged([_competitors(known, rows, place, name) for place in known.places])
        for name in (None, *known.touched)
    }
    return [
        _cell(known, place, verdict, {
            name: judged for name in known.touched if (judged := maps[name][i]) is not None
        })
        for i, (place, verdict) in enumerate(zip(known.places, maps[None], strict=True))
        if verdict is not None
    ]  # fmt: skip


def _judged(groups: Sequence[Group | None]) -> list[Verdict | None]:
    """The verdicts on groups as one family; None where there is no group."""
    found = iter(judge_all([group for group in groups if group is not None]))
    return [None if group is None else next(found) for group in groups]


def _competitors(
    known: Answers, rows: Mapping[tuple[str, str], Row], place: Place, name: str | None
) -> Group | None:  # fmt: skip
    """The policies that compete at a place, with an objection or a reading those that it changes
    under it; None before all have results."""
    rates = known.described(place, name)
    if len(rates) <= len(known.ratio.against):
        return None
    chosen = []
    for policy in (each for each in known.names if each in rates):
        changed = name is not None and policy in known.touched[name]
        key = key_of({**place, PARAMETER: name if changed else AS_DESCRIBED})
        chosen.append(rows[key, policy])
    return Group(known.title(place), chosen, place, known.objective)


def _cell(
    known: Answers, place: Place, verdict: Verdict, pleas: dict[str, Verdict]
) -> AnswerCell:  # fmt: skip
    rates = known.described(place)
    scattered, first = known.lead(rates), verdict.leader
    assert scattered is not None
    found = known.by_ratio(place)
    return AnswerCell(
        verdict.title, verdict, {name: interval([*each.values()]) for name, each in rates.items()},
        scattered, known.contiguous(rates) or "",
        {n: known.advantage(r, rates[first]) for n in known.names
         if n not in rates and (r := known.rates(place, n, AS_DESCRIBED))},
        found, None if known.asked(place) else tie(found), pleas,
    )  # fmt: skip


def tie(found: Mapping[float, Interval]) -> Interval | None:
    """The ratio at which the mean of the log ratio rises through zero, and between which ratios its
    interval holds zero, interpolated between logarithms; it ends where the range does. None where
    the mean has one sign."""
    middle = _rise({ratio: each.mean for ratio, each in found.items()})
    if middle is None:
        return None
    low = _rise({ratio: each.high for ratio, each in found.items()})
    high = _rise({ratio: each.low for ratio, each in found.items()})
    return Interval(
        middle, min(found) if low is None else low, max(found) if high is None else high,
        next(iter(found.values())).count,
    )  # fmt: skip


def _rise(values: Mapping[float, float]) -> float | None:
    """Where values over rising ratios come above zero for good; None where the last is not above,
    or the first is."""
    for (a, before), (b, after) in reversed(list(itertools.pairwise(values.items()))):
        if after <= 0:
            return None
        if before <= 0:
            share = before / (before - after)
            return math.exp(math.log(a) + share * (math.log(b) - math.log(a)))
    return None
