"""Results as a table: groups of points that compete, each with its replications' figures."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sweeps.analyse.figures import (
    BACKLOG,
    COMPUTE,
    GOODPUT,
    GROWING,
    OVERLOADED,
    PREEMPTIONS_EACH,
    Shares,
    limit_shares,
    limit_texts,
)
from sweeps.analyse.label import label, named, titled
from sweeps.analyse.objective import SERVED, Objective, figures_of
from sweeps.analyse.rows import Record, flat
from sweeps.analyse.statistics import Interval, interval
from sweeps.analyse.unfit_point import UnfitPoint
from sweeps.analyse.variants import overrides, with_role

Metrics = dict[str, Any]
DOES_NOT_FIT = "does not fit"
"""Instead of the figures of a point whose device has no room."""
_OF_NOTE = 0.05
"""A limit stands beside the first from this share of the time on (assumed)."""


def headings(objective: Objective) -> list[str]:
    """The table's columns, after the competitor's."""
    return [*(figure.heading for figure in figures_of(objective)), "limit", "other limits"]


@dataclass
class Row:
    """One point: its competitor's name (a policy, say) and flat metrics by replication."""

    name: str
    control: str
    replications: dict[int, Metrics] = field(default_factory=dict)
    rates: dict[int, float | None] = field(default_factory=dict)
    """Requests a second that it was offered, by replication; None where the load names none."""
    overrides: dict[str, Any] = field(default_factory=dict)
    """What makes the point, by dotted path of the experiment."""
    seeds: dict[int, Any] = field(default_factory=dict)
    """By replication."""
    point: int = 0
    raw: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Metrics by replication as they were written, with lists in them."""

    @property
    def title(self) -> str:
        """The competitor, and its control where it is one."""
        return f"{self.name} ({self.control})" if self.control else self.name

    @property
    def rate_per_s(self) -> float | None:
        """The mean rate that it was offered."""
        known = [rate for rate in self.rates.values() if rate is not None]
        return sum(known) / len(known) if known else None

    def cells(self, objective: Objective = SERVED) -> list[str]:
        """The figures as text, a cell a heading: the objective with its interval. Of one that has
        no results, that it does not fit."""
        if not self.replications:
            return [DOES_NOT_FIT, *["–"] * (len(headings(objective)) - 1)]
        found = []
        for figure in figures_of(objective):
            if figure.ends is not None:
                found.append(figure.range_text(*map(self.mean, figure.ends)))
                continue
            interval = self.interval(figure.metric)
            text = figure.text(None if interval is None else interval.mean)
            if interval is not None and figure.metric == objective.metric:
                text = figure.interval_text(interval)
            measured = any(figure.metric in each for each in self.replications.values())
            found.append("grows" if measured and self._grows(figure.metric) else text)
        limits = self.limits()
        most = max(limits.values(), default=0.0)
        noted = {name: part for name, part in limits.items() if part >= min(most, _OF_NOTE)}
        first, *others = limit_texts(noted) or ["–"]
        if (share := self.mean(COMPUTE)) is not None and share >= _OF_NOTE:
            others.append(f"FLOPs for {share:.0%} of step time")
        return [*found, first, ", ".join(others) or "–"]

    def mean(self, metric: str) -> float | None:
        """Mean of a metric over replications, None where no replication has it."""
        values = self.values(metric)
        return sum(values) / len(values) if values else None

    def values(self, metric: str, among: list[int] | None = None) -> list[float]:
        """The metric of each replication that has it, in order; none of what grows with the run."""
        if self._grows(metric):
            return []
        chosen = sorted(self.replications) if among is None else among
        found = [self.replications[r].get(metric) for r in chosen]
        return [float(value) for value in found if isinstance(value, (int, float))]

    @property
    def overloaded(self) -> bool:
        """Whether more arrived than could be served."""
        return (self.mean(BACKLOG) or 0.0) >= OVERLOADED

    def _grows(self, metric: str) -> bool:
        first, *rest = metric.split(".")
        if first == "at_share" and rest[0] in (*GROWING, GOODPUT):
            return (self.mean(f"at_share.{BACKLOG}") or 0.0) >= OVERLOADED
        return first in GROWING and self.overloaded

    def interval(self, metric: str) -> Interval | None:
        """Mean and interval of a metric, None where no replication has it."""
        values = self.values(metric)
        return interval(values) if values else None

    def limits(self) -> Shares:
        """Mean share of the time that each limit bound."""
        found = [limit_shares(metrics) for metrics in self.replications.values()]
        names = dict.fromkeys(name for shares in found for name in shares)
        return {name: sum(shares.get(name, 0.0) for shares in found) / len(found) for name in names}


@dataclass
class Group:
    """The points that compete: one value of each axis but the compared one."""

    title: str
    rows: list[Row] = field(default_factory=list)
    others: dict[str, Any] = field(default_factory=dict)
    """The values that its points have in common, by axis."""
    objective: Objective = SERVED
    """What they compete in."""

    def ordered(self) -> list[Row]:
        """Each competitor, its controls under it."""
        names = list(dict.fromkeys(row.name for row in self.rows))
        return sorted(self.rows, key=lambda row: names.index(row.name))

    def main(self) -> list[Row]:
        return [row for row in self.rows if not row.control]

    def control(self, name: str) -> dict[str, Row]:
        """The rows of one control, by competitor."""
        return {row.name: row for row in self.rows if row.control == name}


@dataclass
class Table:
    """A run directory, read."""

    name: str
    question: str
    groups: list[Group]
    done: int
    total: int
    config: dict[str, Any]
    provenance: dict[str, Any]
    path: Path = Path()
    problems: list[str] = field(default_factory=list)
    """What is missing or cannot be read, a sentence each."""
    counted: str = "results"
    """What `done` and `total` count."""
    compared_by: Objective | None = None
    """What competitors are compared by; None where there is no one metric."""
    misfits: list[UnfitPoint] = field(default_factory=list)
    """Points that do not fit, which have no results."""

    @property
    def compared(self) -> str:
        """The axis whose values compete, in a word."""
        return str(self.config["compare"]).split(".")[-1]

    def records(self) -> list[dict[str, Any]]:
        """Its results again, as far as rows have them."""
        return [
            {"overrides": row.overrides, "replication": r, "metrics": metrics}
            for group in self.groups
            for row in group.main()
            for r, metrics in row.raw.items()
        ]

    def shown(self, group: Group) -> list[Row]:
        """Each competitor of a group, its controls under it, and those that do not fit."""
        return replace(group, rows=[*group.rows, *self._unfit(group.others)]).ordered()

    def shown_groups(self) -> list[Group]:
        """The groups, each with those of its competitors that do not fit, and groups of these
        alone, in the order of points."""
        found = [replace(group, rows=self.shown(group)) for group in self.groups]
        known = [group.others for group in found]
        for each in self.misfits:
            others = {p: v for p, v in each.overrides.items() if p != self.config["compare"]}
            if others not in known:
                known.append(others)
                title = group_title(others, self.config)
                found.append(Group(title, self._unfit(others), others))
        return sorted(found, key=lambda group: min(row.point for row in group.rows))

    def _unfit(self, others: dict[str, Any]) -> list[Row]:
        compared = self.config["compare"]
        return [
            Row(named(compared, each.overrides.get(compared, "")), each.control,
                overrides=each.overrides, point=each.point)
            for each in self.misfits
            if {p: v for p, v in each.overrides.items() if p != compared} == others
        ]  # fmt: skip

    @property
    def paths(self) -> list[str]:
        """What tells its points apart: axes, and what stands beside them."""
        rows = [row for group in self.groups for row in group.rows]
        return list(
            dict.fromkeys([*self.config["axes"], *(p for row in rows for p in row.overrides)])
        )

    @property
    def objective(self) -> Objective:
        """What competitors are compared by, where there is one metric."""
        assert self.compared_by is not None
        return self.compared_by

    @property
    def state(self) -> str:
        """How much of the run is there."""
        if self.done < self.total:
            return f"unfinished: {self.done} of {self.total} {self.counted}; --resume continues"
        return f"{self.done} {self.counted}"

    @property
    def assumed(self) -> dict[str, dict[str, str]]:
        """Numbers marked `assumed`, by description and dotted path."""
        found = self.provenance.get("assumed", {})
        return {name: items for name, items in found.items() if isinstance(items, dict)}

    def origin(self) -> dict[str, str]:
        """The provenance a reader wants to see, in words."""
        known = self.provenance
        commit = str(known.get("commit") or "")
        if commit and known.get("dirty"):
            commit += " (with changes that are not committed)"
        libraries = (f"{k} {v}" for k, v in known.get("libraries", {}).items() if v)
        inputs = (
            f"{item} {str(digest)[:12]}"
            for kind, items in known.get("inputs", {}).items()
            if kind != "sweep" and isinstance(items, dict)
            for item, digest in items.items()
        )
        whole = [each for each in known.get("seeds", []) if isinstance(each, list) and each]
        seeds = (f"{each[0]} (x{each[-1]})" for each in whole)
        machine = (
            f"{known.get('platform')}, {known.get('cores')} cores, Python {known.get('python')}"
        )
        return {
            "bankwise": str(known.get("version", "unknown")),
            "commit": commit or "not from a clone",
            "seeds (and replications)": ", ".join(seeds),
            "inputs (SHA-256)": "; ".join(inputs),
            "libraries": ", ".join(libraries),
            "machine": machine,
        }


def grouped(
    records: list[Record], config: dict[str, Any], objective: Objective = SERVED
) -> list[Group]:
    """The results of a sweep as groups of competitors, in the order of points."""
    groups: dict[str, Group] = {}
    for record in sorted(records, key=lambda r: (r["point"], r["replication"])):
        group = _group(groups, record["overrides"], config, objective)
        compared = config["compare"]
        row = _row(group, named(compared, record["overrides"].get(compared, "")), record)
        replication = record["replication"]
        row.replications[replication] = _figures(record, config)
        row.rates[replication] = record.get("rate_per_s")
        row.raw[replication] = record["metrics"]
        row.seeds[replication] = record.get("seed")
    return list(groups.values())


def group_title(others: dict[str, Any], config: dict[str, Any]) -> str:
    """What a group is called, whose points have these values of the axes that are not compared."""
    return ", ".join(titled(*item) for item in others.items()) or str(config["name"])


def _group(
    groups: dict[str, Group], overrides: dict[str, Any], config: dict[str, Any],
    objective: Objective,
) -> Group:  # fmt: skip
    others = {path: value for path, value in overrides.items() if path != config["compare"]}
    title = group_title(others, config)
    return groups.setdefault(
        json.dumps(others, sort_keys=True), Group(title, [], others, objective)
    )


def _figures(record: dict[str, Any], config: dict[str, Any]) -> Metrics:
    """Flat metrics of a result, and what is derived from them."""
    found = flat(record["metrics"])
    control = with_role(config, "control").get(record.get("control", ""), {})
    changed = {**record["overrides"], **overrides(control)}
    warmup = changed.get("warmup_requests", config["base"].get("warmup_requests", 0))
    counted = found.get("finished", 0) - warmup
    if counted > 0 and "preemptions" in found:
        found[PREEMPTIONS_EACH] = found["preemptions"] / counted
    return found


def _row(group: Group, name: str, record: dict[str, Any]) -> Row:
    control = record.get("control", "")
    for row in group.rows:
        if (row.name, row.control) == (name, control):
            return row
    group.rows.append(Row(name, control, {}, {}, record["overrides"], point=record["point"]))
    return group.rows[-1]


def along(table: Table, path: str) -> list[tuple[str, list[Group]]]:
    """Groups that differ in this axis alone, with what they have in common, in words."""
    parts: dict[str, list[Group]] = {}
    for group in table.groups:
        if path in group.others:
            rest = {key: value for key, value in group.others.items() if key != path}
            where = json.dumps(rest, sort_keys=True, default=str)
            parts.setdefault(where, []).append(group)
    return [(_where(groups[0], path), groups) for groups in parts.values()]


def _where(group: Group, path: str) -> str:
    return ", ".join(label(value) for key, value in group.others.items() if key != path)
