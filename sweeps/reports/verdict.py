"""A plain sentence or two a group: who serves the most, by how much, and why.

Why has two parts: what memory layout makes of a gap (see `sweeps.reports.gap`), and what the rest
is, in figures of the two: reservation (fewer requests fit), recompute (preemption), or load and
compute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sweeps.reports.gap import CONTROL, Gap, gap
from sweeps.reports.kv_verdict import gaps_of, share_text
from sweeps.reports.table import Group, Row
from sweeps.results.figures import (
    ATTENTION,
    COMPUTE,
    KV_MEMORY,
    KV_RATE,
    PREEMPTIONS_EACH,
    PREFILL,
    THROUGHPUT,
    WEIGHTS,
    limit_word,
)
from sweeps.results.statistics import Interval

BINDS = 0.05
"""KV memory binds where it is the limit for at least this share of the time (assumed)."""
PREEMPTS = 0.01
"""... or where requests are preempted at least so often each (assumed)."""
COMPUTES = 0.4
"""Compute evens competitors out where FLOPs bind for at least this share of step time (assumed)."""
_PRACTICAL = 200
"""No more replications than this are asked for."""
PHASE_WORDS = {PREFILL: "prefill", ATTENTION: "attention", WEIGHTS: "reading weights"}


@dataclass(frozen=True)
class Verdict:
    """A group's outcome (`won`, `undecided`, `unbound`, `alone`) and the sentence that says it."""

    title: str
    outcome: str
    best: str
    sentence: str
    gaps: list[Gap] = field(default_factory=list)

    @property
    def short(self) -> str:
        """The outcome in a few words."""
        words = {"undecided": "undecided", "unbound": "KV memory did not bind"}
        return f"{self.best} wins" if self.best else words.get(self.outcome, "nothing to compare")

    @property
    def decided_by(self) -> list[str]:
        """What puts the winner ahead of the others: capacity, layout, compute or load."""
        return list(dict.fromkeys(word for item in self.gaps for word in _deciders(item)))


_DECIDERS = {"reservation": "capacity", "recompute": "capacity", "load": "load"}


def _deciders(item: Gap) -> list[str]:
    """What makes most of a gap, in a word or two."""
    layout = item.layout
    found = []
    if layout is not None and layout.sign > 0 and layout.mean >= item.total.mean / 2:
        found.append("layout")
        if not item.rest_counts:
            return found
    return [*found, *(_DECIDERS.get(cause, "compute") for cause in item.causes)]


def judge(group: Group) -> Verdict:
    """The verdict on one group of results."""
    title = group.title
    rows = [row for row in group.main() if row.values(THROUGHPUT)]
    reading = [row for row in group.main() if row.values(KV_RATE)]
    if not rows and len(reading) > 1:
        return _reading(title, reading)
    if len(rows) < 2:
        only = rows[0].name if rows else ""
        return Verdict(title, "alone", only, f"{title}: nothing to compare yet.")
    best = max(rows, key=lambda row: row.mean(THROUGHPUT) or 0.0)
    gaps = [gap(group, best, row) for row in rows if row is not best]
    gaps.sort(key=lambda item: item.total.mean)
    if not binds(best):
        return Verdict(title, "unbound", "", f"{title}: {_unbound(best, gaps)}", gaps)
    close = [item for item in gaps if item.total.sign <= 0]
    behind = [item for item in gaps if item.total.sign > 0]
    if close:
        text = _undecided(best, close, behind)
        return Verdict(title, "undecided", "", f"{title}: {text}", gaps)
    verdict = Verdict(title, "won", best.name, "", gaps)
    text = (
        f"{best.name} serves {best.mean(THROUGHPUT):,.1f} output tokens/s, {_more(behind)}. "
        f"Decided by {listed(verdict.decided_by)}."
    )
    return replace(verdict, sentence=f"{title}: {text}{_why(behind)}")


def _reading(title: str, rows: list[Row]) -> Verdict:
    """Of the KV read of one batch, where nothing is served."""
    best, gaps = gaps_of(rows)
    close = [item for item in gaps if item.total.sign <= 0]
    rate = f"{best.mean(KV_RATE) or 0.0:,.1f} GB/s"
    if close:
        names = listed([best.name, *(item.name for item in close)])
        text = f"undecided between {names}: {best.name} reads KV at {rate}, {_more(gaps)}"
        return Verdict(title, "undecided", "", f"{title}: {text}.{share_text(best)}", gaps)
    text = f"{best.name} reads KV fastest, at {rate}, {_more(gaps)}.{share_text(best)}"
    return Verdict(title, "won", best.name, f"{title}: {text}", gaps)


def binds(row: Row) -> bool:
    """Whether KV memory limited this competitor."""
    preempted = row.mean(PREEMPTIONS_EACH) or 0.0
    return row.limits().get(KV_MEMORY, 0.0) >= BINDS or preempted >= PREEMPTS


def _more(gaps: list[Gap]) -> str:
    return listed(f"{percent(item.total)} more than {item.name}" for item in gaps)


def _why(gaps: list[Gap]) -> str:
    """What memory layout makes of the gaps, and what the rest of those is that are not zero."""
    behind = [item for item in gaps if item.total.sign > 0]
    return f" {_layout(gaps)}{''.join(f'; {_rest(item)}' for item in behind)}."


def _layout(gaps: list[Gap]) -> str:
    parts = [(item.name, item.layout) for item in gaps if item.layout is not None]
    if len(parts) < len(gaps):
        return f"Without the {CONTROL} control this run does not say what memory layout does"
    if len(parts) == 1:
        texts = [f"{_points(part)} of it" for _, part in parts]
    else:
        texts = [f"{_points(part)} against {name}" for name, part in parts]
    if all(part.sign == 0 for _, part in parts):
        texts = [text.removesuffix(" of it") for text in texts]
        return f"Memory layout may account for none of it: {listed(texts)}"
    return f"Memory layout accounts for {listed(texts)}"


def _rest(item: Gap) -> str:
    """What is not layout, in figures of the two."""
    if not item.rest_counts and item.analytic is not None:
        gap_there = percent(item.analytic)
        return f"on memory without banks {item.best.name} is not ahead of {item.name} ({gap_there})"
    words = {"reservation": _reservation, "recompute": _recompute, "load": _load}
    found = [words.get(cause, _compute)(item) for cause in item.causes]
    return f"{item.name} {listed(found)}"


def _reservation(item: Gap) -> str:
    theirs, ours = _both(item, "batch")
    used, used_ours = _both(item, "utilization")
    return (
        f"fits {_count(theirs)} requests at once against {_count(ours)}, "
        f"using {_share(used)} of what it reserves against {_share(used_ours)}"
    )


def _recompute(item: Gap) -> str:
    theirs, ours = _both(item, PREFILL)
    each = item.other.mean(PREEMPTIONS_EACH) or 0.0
    return (
        f"spends {_share(theirs)} of its time on prefill against {_share(ours)}, "
        f"with {_count(each)} preemptions a request"
    )


def _load(item: Gap) -> str:
    limits = item.other.limits()
    name = max(limits, key=lambda key: limits[key])
    share = _share(limits[name])
    return f"was limited by {limit_word(name)} for {share} of the time, not by KV memory"


def _compute(item: Gap) -> str:
    """The phase that takes a larger share of the other's time than of the best's."""
    apart = {name: _both(item, name)[0] - _both(item, name)[1] for name in PHASE_WORDS}
    name = max(apart, key=lambda key: apart[key])
    theirs, ours = _both(item, name)
    same = "has about as many requests running and is seldom preempted"
    if theirs <= ours:
        return same
    shares = f"{_share(theirs)} of its time on {PHASE_WORDS[name]} against {_share(ours)}"
    return f"{same}, but spends {shares}"


def _both(item: Gap, metric: str) -> tuple[float, float]:
    """The other's and the best's mean of a metric."""
    return item.other.mean(metric) or 0.0, item.best.mean(metric) or 0.0


def _undecided(best: Row, close: list[Gap], behind: list[Gap]) -> str:
    names = listed([best.name, *(item.name for item in close)])
    if any(item.total.count < 2 for item in close):
        return f"undecided between {names}: one replication gives no interval."
    text = f"undecided between {names}: {best.name} serves {_more(close)}, which may be nothing"
    if behind:
        text += f"; it serves {_more(behind)}"
    rivals = [best, *(item.other for item in close)]
    return f"{text}.{_needed(close)}{_why([*close, *behind])}{_flops(rivals)}"


def _needed(close: list[Gap]) -> str:
    """How many replications would tell: the interval narrows with the root of their number."""
    count = max(item.total.count for item in close)
    most = max(
        item.total.count * (item.total.half / item.total.mean) ** 2
        if item.total.mean and math.isfinite(item.total.half) else math.inf
        for item in close
    )  # fmt: skip
    if most > _PRACTICAL:
        return f" What leaves it open is the noise of {count} replications; more would hardly help."
    return (
        f" What leaves it open is the noise of {count} replications; "
        f"--set replications={math.ceil(most)} should tell, if the gap is as it seems."
    )


def _flops(rows: list[Row]) -> str:
    """That compute evens them out, where it does: more requests at once then serve no faster."""
    shares = [row.mean(COMPUTE) or 0.0 for row in rows]
    if min(shares) < COMPUTES:
        return ""
    return (
        f" FLOPs, not bytes, bound {_share(min(shares))} of step time or more in each of them:"
        " there a larger batch gains nothing."
    )


def _unbound(best: Row, gaps: list[Gap]) -> str:
    """KV memory did not limit the best: what did, and whom it did limit all the same."""
    limits = best.limits()
    share = limits.pop(KV_MEMORY, 0.0)
    instead = ""
    if limits:
        name = max(limits, key=lambda key: limits[key])
        instead = f"; {limit_word(name)} was the limit for {_share(limits[name])}"
    text = (
        f"KV memory did not bind for {best.name} ({_share(share)} of the time, "
        f"no preemptions{instead}), so this run names no winner."
    )
    bound = [item for item in gaps if binds(item.other)]
    if bound:
        names = listed(item.name for item in bound)
        unsure = ", which may be nothing" if any(item.total.sign <= 0 for item in bound) else ""
        text += f" It did bind for {names}; {best.name} serves {_more(bound)}{unsure}."
    return text


def percent(found: Interval) -> str:
    """`80 % (50 to 111)`; tenths where they are of interest."""
    digits = 0 if abs(found.mean) >= 0.1 else 1
    if not math.isfinite(found.half):
        return f"{_hundred(found.mean, digits)} %"
    low, high = (_hundred(end, digits) for end in (found.low, found.high))
    return f"{_hundred(found.mean, digits)} % ({low} to {high})"


def _points(found: Interval) -> str:
    mean = f"{_hundred(found.mean, 1)} points"
    if not math.isfinite(found.half):
        return mean
    return f"{mean} ({_hundred(found.low, 1)} to {_hundred(found.high, 1)})"


def _hundred(value: float, digits: int) -> str:
    """100 times `value`, without a minus before zero."""
    return f"{round(100 * value, digits) + 0.0:.{digits}f}"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _count(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def listed(items: Iterable[str]) -> str:
    """`a, b and c`."""
    words = list(items)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
