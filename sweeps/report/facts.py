"""What results say, as records: who, against whom, by how much, how sure, and why.

`sweeps.report.phrases` turns them into sentences. Intervals are relative (0.8 is 80 %), or of the
natural logarithm of a ratio where a record says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sweeps.analyse.figures import Figure
from sweeps.analyse.statistics import Interval
from sweeps.plan.break_even import Found, Parameter
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.report.formats import bare, between, percent

if TYPE_CHECKING:
    from hwmodel.measure.racm import Condition

GroupOutcome = Literal["won", "undecided", "unbound", "alone"]
"""Of a group: one leads all others significantly, does not lead all of them, leads where KV memory
was not its limit, or is the only one with results."""
RandomAccessAnswer = Literal["not random-access bound", "random-access bound", "undecided"]
_DECIDERS = {
    "reservation": "capacity",
    "slots": "capacity",
    "recompute": "capacity",
    "load": "load",
}


@dataclass(frozen=True)
class Cause:
    """Why one serves less than another, beside memory layout."""

    kind: Literal["reservation", "slots", "recompute", "load", "compute"]
    figures: tuple[float, ...]
    """reservation: mean batch and utilisation of the one, of the other. slots: shares of KV memory
    while it binds that the one reserves, uses, has in holes and behind the head of the line.
    recompute: shares of time
    in prefill of both, preemptions per request. load: share of time at that limit. compute: shares
    of time in a phase of both, none where no phase takes longer."""
    name: str = ""
    """The limit of `load`, the phase of `compute`."""


@dataclass(frozen=True)
class Gap:
    """How much more `best` serves than `other`, relative to the other's throughput."""

    best: str
    other: str
    total: Interval
    analytic: Interval | None = None
    """The gap under the control without banks; None where both have not run there."""
    layout: Interval | None = None
    """The total less the analytic gap."""
    causes: list[Cause] = field(default_factory=list)
    bound: bool = True
    """Whether KV memory limited the other."""

    @property
    def rest_counts(self) -> bool:
        """Whether something besides memory layout puts the best ahead, as far as is known."""
        return self.analytic is None or self.analytic.sign > 0

    @property
    def deciders(self) -> list[str]:
        """What makes most of it: layout, capacity, compute or load."""
        found = []
        if self.layout and self.layout.sign > 0 and self.layout.mean >= self.total.mean / 2:
            found.append("layout")
            if not self.rest_counts:
                return found
        return [*found, *(_DECIDERS.get(cause.kind, "compute") for cause in self.causes)]


@dataclass(frozen=True)
class Verdict:
    """A group's outcome: its leader by the mean, and the gaps to the others, smallest first."""

    title: str
    outcome: GroupOutcome
    leader: str = ""
    rate: float = 0.0
    """The leader's: output tokens/s, or GB/s of KV where `reads`."""
    gaps: list[Gap] = field(default_factory=list)
    reads: bool = False
    kv_share: float | None = None
    """Of the leader's step time, in reading KV."""
    limits: dict[str, float] = field(default_factory=dict)
    """Limit -> share of the time it bound the leader."""
    preemptions: float = 0.0
    """Of the leader, per request."""
    needed: float = math.inf
    """Replications that would resolve the open gaps if their means held."""
    compute: float | None = None
    """Least share of step time that is compute-bound in the leader and those that it does not lead
    significantly, where that evens them out."""
    sentence: str = ""

    @property
    def best(self) -> str:
        """Who wins, or is alone."""
        return self.leader if self.outcome in ("won", "alone") else ""

    @property
    def close(self) -> list[Gap]:
        """Gaps that are not significant."""
        return [gap for gap in self.gaps if gap.total.sign <= 0]

    @property
    def behind(self) -> list[Gap]:
        """Gaps that are."""
        return [gap for gap in self.gaps if gap.total.sign > 0]

    @property
    def decided_by(self) -> list[str]:
        """What puts the leader ahead of the others: capacity, layout, compute or load."""
        return list(dict.fromkeys(word for gap in self.gaps for word in gap.deciders))


@dataclass(frozen=True)
class Reference:
    """What a reference of a sweep serves, against each competitor with the same memory."""

    title: str
    name: str
    gains: dict[str, Interval]
    """Over each competitor."""
    analytic: bool
    """Whether the memory of these runs has no banks."""


@dataclass(frozen=True)
class CaseOutcome:
    """A case's outcome, and what becomes of it where something assumed is otherwise."""

    verdict: Verdict
    controls: dict[str, Verdict]
    """By assumption."""
    references: list[Reference]

    @property
    def hangs_on(self) -> list[str]:
        """Assumptions under which the outcome is another, or another one wins."""
        now = (self.verdict.outcome, self.verdict.best)
        return [n for n, v in self.controls.items() if (v.outcome, v.best) != now]


@dataclass(frozen=True)
class Dependence:
    """Who wins at each value of one axis, all others alike."""

    where: str
    axis: str
    compared: str
    outcomes: list[tuple[str, Verdict]]
    """By value of the axis."""
    asked: bool
    """Whether the axis is a question, not an assumption."""

    @property
    def winners(self) -> list[str]:
        return list(dict.fromkeys(v.best for _, v in self.outcomes if v.outcome == "won"))


@dataclass(frozen=True)
class Sensitivity:
    """What changes do to one rate, or to the ratio of two."""

    subject: str
    levels: dict[str, Interval]
    """By change, `as described` among them: means of the rate, or log ratios."""
    effects: dict[str, Interval]
    """By change: logarithm of the level with the change over the level without."""


@dataclass(frozen=True)
class Together:
    """Several changes made at once."""

    name: str
    parts: list[str]
    effects: dict[str, Interval]
    """By competitor, of logarithms."""
    subject: str
    """The competitor whose excess it is."""
    excess: Interval | None
    """Logarithm of the effect over the product of those of the parts, each alone."""


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


@dataclass(frozen=True)
class MetricChange:
    """One metric of one point in two runs: its means, and the change from the first."""

    figure: Figure
    ours: float
    theirs: float
    change: Interval
    """Relative to the first where `relative`, else a difference in the metric's own unit."""
    relative: bool
    paired: bool

    @property
    def text(self) -> str:
        """The change with its interval, for tables."""
        if self.relative:
            return bare(percent(self.change))
        return bare(between(self.figure.text(self.change.mean), self.change, self.figure.text))

    @property
    def certain(self) -> str:
        """Whether the interval leaves zero out, in a word."""
        if self.change.low == self.change.high == 0:
            return "the same"
        if self.change.count < 2:
            return "unknown"
        return ("not significant", "more", "less")[self.change.sign]


@dataclass(frozen=True)
class StudyGain:
    """What the chosen trial of a study has on replications that the search did not use."""

    chosen: str
    metric: str
    """In words."""
    mean: float
    replications: int
    gains: dict[str, Interval]
    """Over each other contender."""
    over_base: int | None
    """1 where it is significantly better than the base, -1 worse, 0 neither, None unknown."""
    closed: dict[str, Interval | None]
    """Ceiling -> share of the gap from the base to it; None where it is not above the base."""
    limit: dict[str, Any] | None
    """`bounds` of buckets and what is left `unused` by the `least`, the `chosen`, the `base`."""
    first: str | None = None
    """The best of the trials that needed no search; None where there are none."""
    added: Interval | None = None
    """What the chosen trial has more than that; None where it is that, or unknown."""
    sign: int = 1
    """1 where more of the metric is better, else -1."""


@dataclass(frozen=True)
class RandomAccess:
    """Whether a level of a device is bound by random access, and what that rests on."""

    place: str
    extent: int
    """Bytes."""
    threshold: float
    """Least alpha that is not called bound."""
    condition: Condition
    """As described."""
    alpha: Interval
    answer: RandomAccessAnswer
    flipping: list[tuple[Condition, Interval]]
    """Conditions that do not give the answer of the described one, where that has one."""
    reached_at: int | None
    """The smallest simulated extent whose mean alpha is at least the threshold."""
    longest: int
    """The largest simulated extent."""
    descriptors: tuple[int, float] | None
    """The largest extent at which the DMA engines are the limit, and ns per descriptor."""
    plausible: dict[str, Interval] = field(default_factory=dict)
    """alpha of each plausible variant."""
    turning: list[str] = field(default_factory=list)
    """Variants that do not give the answer of the described device, where that has one."""
