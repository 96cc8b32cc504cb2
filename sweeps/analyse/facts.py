"""What results say, as records: who, against whom, by how much, how sure, and why.

`sweeps.report.sentences` turns them into words. Intervals are relative (0.8 is 80 %), or of the
natural logarithm of a ratio where a record says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sweeps.analyse.figures import Figure
from sweeps.analyse.objective import SERVED, Objective
from sweeps.analyse.statistics import Interval

GroupOutcome = Literal["won", "close", "undecided", "alone"]
"""Of a group: one leads all others significantly, some differ from it by little, some may differ by
more, or it is the only one with results."""
Cause = Literal["reservation", "slots", "recompute", "load", "steps"]
"""Why one serves less than another, beside memory layout: it fits fewer requests as it reserves
more, loses KV memory to holes and head-of-line blocking, recomputes after preemption, was limited
by something else than KV memory, or its steps take longer."""
_DECIDERS: dict[Cause, str] = {
    "reservation": "capacity",
    "slots": "capacity",
    "recompute": "capacity",
    "load": "the offered load",
    "steps": "step time",
}


@dataclass(frozen=True)
class Gap:
    """How much better `best` is than `other`: more of the objective relative to the other's, or
    how much more the other has where less is better."""

    best: str
    other: str
    total: Interval
    analytic: Interval | None = None
    """The gap under the control without banks; None where both have not run there."""
    layout: Interval | None = None
    """The total less the analytic gap."""
    causes: list[Cause] = field(default_factory=list)

    @property
    def rest_counts(self) -> bool:
        """Whether something besides memory layout puts the best ahead, as far as is known."""
        return self.analytic is None or self.analytic.sign > 0

    @property
    def deciders(self) -> list[str]:
        """What makes most of it: layout, capacity, step time or load."""
        found = []
        if self.layout and self.layout.sign > 0 and self.layout.mean >= self.total.mean / 2:
            found.append("layout")
            if not self.rest_counts:
                return found
        return [*found, *(_DECIDERS[cause] for cause in self.causes)]


@dataclass(frozen=True)
class Pair:
    """Two competitors of a group: how much better the first is than the second, as the log ratio
    with its own interval, and whether that is significant among all pairs of the group (Holm)."""

    first: str
    second: str
    lead: Interval
    sign: int


@dataclass(frozen=True)
class Verdict:
    """A group's outcome by its objective: the leader by the mean, and the gaps to the others,
    smallest first."""

    title: str
    outcome: GroupOutcome
    leader: str = ""
    rate: float = 0.0
    """The leader's value of the objective."""
    gaps: list[Gap] = field(default_factory=list)
    objective: Objective = SERVED
    ties: list[str] = field(default_factory=list)
    """Those that no significant difference of note parts from the leader, it among them, in the
    order of the axis; the first is to be kept."""
    within: float = 0.0
    """What `ties` differ from the first of them at most, all together; infinite where unknown."""
    missing: list[str] = field(default_factory=list)
    """Competitors whose results have no value of the objective."""
    bound: bool = True
    """Whether KV memory limits the leader."""
    kv_share: float | None = None
    """Of the leader's step time, in reading KV."""
    limits: dict[str, float] = field(default_factory=dict)
    """Limit -> share of the time it bound the leader."""
    needed: int | None = None
    """Replications that would settle the open gaps if their means held; None where unknown."""
    family: int = 1
    """Groups that were tested together, with Holm's correction."""
    p: float = 1.0
    """Of no lead over the least sure of the others, adjusted for the family."""

    @property
    def best(self) -> str:
        """Who wins, or is alone."""
        return self.leader if self.outcome in ("won", "alone") else ""

    @property
    def close(self) -> list[Gap]:
        """Gaps to those that tie with it."""
        return [gap for gap in self.gaps if gap.other in self.ties]

    @property
    def behind(self) -> list[Gap]:
        """Gaps to those that are significantly worse."""
        return [gap for gap in self.gaps if gap.other not in self.ties]

    @property
    def decided_by(self) -> list[str]:
        """What puts the leader ahead of the others: capacity, layout, compute, the offered load."""
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
class Dependence:
    """Who wins at each value of one axis, all others alike."""

    where: str
    axis: str
    compared: str
    outcomes: list[tuple[str, Verdict]]
    """By value of the axis."""
    is_question: bool
    """Whether the axis is a question, not an assumption."""

    @property
    def winners(self) -> list[str]:
        return list(dict.fromkeys(v.best for _, v in self.outcomes if v.outcome == "won"))


@dataclass(frozen=True)
class Turned:
    """Another outcome of one group elsewhere: under a control, or in another run."""

    title: str
    outcomes: dict[str, Verdict]
    """By where they are."""
    assumption: str = ""
    """The control, and what it sets; the answer then hangs on it."""


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
    def certain(self) -> str:
        """Whether the interval leaves zero out, in a word."""
        if self.change.low == self.change.high == 0:
            return "the same"
        if self.change.count < 2:
            return "unknown"
        return ("not significant", "more", "less")[self.change.sign]
