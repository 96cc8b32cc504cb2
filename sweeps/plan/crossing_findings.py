"""What a run of crossings found: where each number turns the lead, and who leads as described."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sweeps.analyse.best import judge_all
from sweeps.analyse.crossing import Crossing, Edge, crossing, edge
from sweeps.analyse.facts import Verdict
from sweeps.analyse.label import label, titled
from sweeps.analyse.objective import SERVED, Objective
from sweeps.analyse.statistics import Interval, interval, significant
from sweeps.analyse.table import Group, Row, Table
from sweeps.plan.crossing_results import CrossingResults
from sweeps.plan.evaluations import PARAMETER, Place, Value, key_of
from sweeps.plan.parameter import Answers, Parameter
from sweeps.plan.variant import AS_DESCRIBED


@dataclass(frozen=True)
class Crossed:
    """One number's: where it changes which of two competitors leads."""

    name: str
    parameter: Parameter
    answers: Answers
    """Value -> the log ratio, in the order of the values."""
    base: Interval | None
    """The log ratio as described, where that is a value of this parameter."""
    crossing: Crossing | None = None
    edge: Edge | None = None
    unfit: Collection[Value] = field(default=(), repr=False)
    """Values at which one of the two does not fit; of a range one is enough to end the search."""

    @property
    def ends(self) -> dict[str, Interval]:
        """The log ratios that decide whether it crosses, by where they are."""
        parameter = self.parameter
        if parameter.variants:
            named = {f"with {value}": answer for value, answer in self.answers.items()}
        else:
            named = {f"at {end}": self.answers[end] for end in (parameter.at(0), parameter.at(1))}
        return named if self.base is None else {AS_DESCRIBED: self.base, **named}

    @property
    def outcome(
        self,
    ) -> Literal["crosses", "no crossing", "undecided", "unfinished", "does not fit"]:
        if self.parameter.sought(self.answers, self.unfit):
            return "unfinished"
        if self.unfit and not (self.parameter.variants and self.answers):
            return "does not fit"
        signs = {self.parameter.beyond(answer).sign for answer in self.ends.values()}
        if self.crossing or {1, -1} <= signs:
            return "crosses"
        return "undecided" if 0 in signs else "no crossing"

    @property
    def at(self) -> Interval | None:
        """Where it crosses, as numbers; open ends are those of the range."""
        if self.crossing is None:
            return None
        count = next(iter(self.answers.values())).count
        least, most = (float(self.parameter.number(end)) for end in (0, 1))
        return self.crossing.within(least, most, count)

    @property
    def side(self) -> int | None:
        """The first is ahead all over the range (1), nowhere (-1), or they cross (0); None: not
        known yet."""
        if self.outcome in ("unfinished", "does not fit"):
            return None
        ahead = self.parameter.beyond(next(iter(self.answers.values()))).mean > 0
        return 0 if self.crossing else 1 if ahead else -1


@dataclass(frozen=True)
class Search:
    """What is found at one combination of the axes that are not compared."""

    place: Place
    pair: list[str]
    """The two competitors; the second is the best of several."""
    now: Interval | None
    """As described: the log ratio of the first over the second."""
    numbers: list[Crossed]
    less: bool = False
    """Less of the objective is better, so that the ratio is that of the second over the first."""
    name: str = ""
    verdict: Verdict | None = None
    """On those that compete; all places are one family, as they are under each of `pleas`. None
    before all have results."""
    rates: dict[str, Interval] = field(default_factory=dict)
    """The objective of each that competes."""
    references: dict[str, Interval] = field(default_factory=dict)
    """Over the first; log ratios."""
    pleas: dict[str, Verdict] = field(default_factory=dict)
    """With each objection upheld, under each reading."""
    unfit: Collection[str] = field(default=(), repr=False)
    """Those that compete and do not fit as described."""

    @property
    def where(self) -> str:
        return ", ".join(titled(*item) for item in self.place.items())

    @property
    def ratio(self) -> str:
        return " / ".join(reversed(self.pair) if self.less else self.pair)

    @property
    def winner(self) -> str | None:
        """Who is significantly better than all others."""
        return (self.verdict.best or None) if self.verdict else None

    @property
    def upheld(self) -> list[str]:
        """Objections and readings with which another than now is significantly the best, in all of
        their maps together (Bonferroni)."""
        now = self.verdict.leader if self.verdict else ""
        return [
            name for name, each in self.pleas.items()
            if each.best not in ("", now) and significant(len(self.pleas) * each.p)
        ]  # fmt: skip

    @property
    def opened(self) -> list[str]:
        """Objections and readings with which none is significantly the best any more."""
        return [name for name, each in self.pleas.items() if self.winner and not each.best]


@dataclass(frozen=True)
class Crossings:
    """What a run found, as far as it is there."""

    device: str
    model: str
    ours: str
    """Whose lead is sought."""
    theirs: list[str]
    """Over the best of these."""
    searches: list[Search]
    """A place each."""
    replications: int
    objections: dict[str, tuple[str, str]]
    """Name -> whose it is, and why."""
    readings: dict[str, str]
    """Name -> why."""
    objective: Objective = SERVED

    @property
    def is_map(self) -> bool:
        """Whether it is asked who of several leads, place by place."""
        return len(self.theirs) > 1

    @property
    def policies(self) -> list[str]:
        return [*self.theirs, self.ours]

    @property
    def cells(self) -> list[Search]:
        """The places whose competitors all have results."""
        return [each for each in self.searches if each.verdict is not None]

    @property
    def shown(self) -> list[Search]:
        """The same, those first that one of the others wins."""
        return sorted(self.cells, key=lambda cell: cell.winner not in self.theirs)

    def under(self, case: str) -> list[Search]:
        """The cells that are known under an objection or a reading."""
        return [cell for cell in self.cells if case in cell.pleas]

    def won(self, reading: str) -> dict[str, int]:
        """Cells that each policy wins under a reading; those that none wins under ``."""
        winners = [cell.pleas[reading].best for cell in self.under(reading)]
        return {name: winners.count(name) for name in (*self.policies, "")}


def crossings(table: Table) -> Crossings:
    """What the run of a table found."""
    unfit = [each.result() for each in table.misfits]
    known, base = CrossingResults(table.config, table.records() + unfit), table.config["base"]
    rows = {(key_of(group.others), row.name): row for group in table.groups for row in group.main()}
    maps = {
        name: _judged([_competitors(known, rows, place, name) for place in known.places])
        for name in (None, *known.touched)
    }
    found = []
    for i, place in enumerate(known.places):
        pleas = {n: judged for n in known.touched if (judged := maps[n][i]) is not None}
        found.append(_search(known, place, maps[None][i], pleas))
    return Crossings(
        label(base.get("device", "")), label(base.get("model", "")), known.ours, known.theirs,
        found, known.replications,
        {name: (str(each.of), each.why) for name, each in known.objections.items()},
        {name: each.why for name, each in known.readings.items()}, known.objective,
    )  # fmt: skip


def _judged(groups: Sequence[Group | None]) -> list[Verdict | None]:
    """The verdicts on groups as one family; None where there is no group."""
    found = iter(judge_all([group for group in groups if group is not None]))
    return [None if group is None else next(found) for group in groups]


def _competitors(
    known: CrossingResults, rows: Mapping[tuple[str, str], Row], place: Place, name: str | None
) -> Group | None:  # fmt: skip
    """Those that compete at a place, with an objection or a reading those that it changes under it;
    None before all that fit have results, and where only one fits."""
    rates = known.described(place, name)
    if len(rates) < max(2, len(known.that_fit(place, name))):
        return None
    chosen = []
    for policy in (each for each in known.names if each in rates):
        changed = name is not None and policy in known.touched[name]
        key = key_of({**place, PARAMETER: name if changed else AS_DESCRIBED})
        chosen.append(rows[key, policy])
    return Group(known.title(place), chosen, place, known.objective)


def _search(
    known: CrossingResults, place: Place, verdict: Verdict | None, pleas: dict[str, Verdict]
) -> Search:  # fmt: skip
    rates, now = known.described(place), known.lead(place)
    references = {
        name: known.advantage(r, rates[verdict.leader]) for name in known.names
        if verdict and name not in rates and (r := known.rates(place, name, AS_DESCRIBED))
    }  # fmt: skip
    each = [
        _crossed(name, parameter, known.leads(place, name), now, known.unfit(place, name))
        for name, parameter in known.parameters.items()
    ]
    fit = known.that_fit(place)
    return Search(
        place, [known.ours, known.rival(place) or ""], now, each, known.objective.less,
        known.title(place), verdict,
        {name: interval([*values.values()]) for name, values in rates.items()}, references, pleas,
        [name for name in known.competing if name not in fit],
    )  # fmt: skip


def _crossed(
    name: str, parameter: Parameter, found: Answers, now: Interval | None, unfit: list[Value]
) -> Crossed:
    base = None if parameter.set else now
    if parameter.sought(found, unfit) or (unfit and not parameter.variants):
        return Crossed(name, parameter, found, base, unfit=unfit)
    if parameter.variants:
        chosen = {value: found[value] for value in parameter.variants if value in found}
        return Crossed(name, parameter, chosen, base, unfit=unfit)
    found = dict(sorted(found.items(), key=lambda item: parameter.number_of(item[0])))
    leads = parameter.leads(found)
    crosses = crossing(leads, parameter.log)
    return Crossed(name, parameter, found, base, crosses,
                   None if crosses else edge(leads, parameter.log))  # fmt: skip
