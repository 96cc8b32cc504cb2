"""What a search of break-evens says: where each assumed number turns the answer, or that it never
does in its plausible range."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from sweeps.experiments.break_even import (
    PARAMETER,
    VALUE,
    Found,
    Parameter,
    Place,
    ahead,
    ahead_surely,
    evaluations,
    not_behind,
    parameters,
    places,
)
from sweeps.experiments.sweep import label
from sweeps.experiments.variant import AS_DESCRIBED
from sweeps.render.chart import Axis, Lines, Series
from sweeps.render.section import Block, Grid, Say, Section
from sweeps.reports.table import Group, Table
from sweeps.reports.verdict import judge
from sweeps.reports.what_if_verdict import listed, ratio
from sweeps.results.statistics import LEVEL, Interval

Outcome = Literal["turns", "never", "open", "unfinished"]
"""A number's: it turns the answer (or carries the ratio across the one that is sought), it never
does, some value leaves it undecided, or values are still to be simulated."""


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
    """Where an answer that does not cross begins to be sure."""

    at: Any
    above: bool
    """It is sure above, not below."""
    ahead: bool
    """The first competitor is surely ahead there (or the ratio larger than the one sought)."""


@dataclass(frozen=True)
class Finding:
    """One parameter at one combination of the axes that are not compared."""

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
        """What tells whether the answer turns where it does not cross over a range: by words."""
        parameter = self.parameter
        if parameter.choice:
            named = {f"with {value}": answer for value, answer in self.found.items()}
        else:
            ends = (parameter.at(0), parameter.at(1))
            named = {f"at {value}": self.found[value] for value in ends}
        return named if self.base is None else {AS_DESCRIBED: self.base, **named}

    @property
    def undecided(self) -> list[str]:
        """At which of these the answer is open, in words."""
        against = self.parameter.against
        return [words for words, answer in self.ends.items() if against(answer).sign == 0]

    @property
    def outcome(self) -> Outcome:
        if self.parameter.asked(self.found):
            return "unfinished"
        signs = {self.parameter.against(answer).sign for answer in self.ends.values()}
        if self.crossing or {1, -1} <= signs:
            return "turns"
        return "open" if 0 in signs else "never"


def findings(table: Table, place: Place) -> list[Finding]:
    """What is found of each parameter."""
    known = evaluations(table.config, table.records())
    base = known.found(place, AS_DESCRIBED).get(None)
    return [
        _finding(name, parameter, known.found(place, name), None if parameter.given else base)
        for name, parameter in parameters(table.config).items()
    ]


def _finding(name: str, parameter: Parameter, found: Found, base: Interval | None) -> Finding:
    if parameter.asked(found):
        return Finding(name, parameter, found, base)
    if parameter.choice:
        return Finding(name, parameter, {value: found[value] for value in parameter.choice}, base)
    found = dict(sorted(found.items(), key=lambda item: _number(parameter, item[0])))
    crossing = _crossing(parameter, found)
    edge = None if crossing else _edge(parameter, found)
    return Finding(name, parameter, found, base, crossing, edge)


def _number(parameter: Parameter, value: Any) -> float:
    text = str(value).removesuffix(parameter.unit or "")
    return float(text)


def _crossing(parameter: Parameter, found: Found) -> Crossing | None:
    """By the mean; None where it has one sign at both ends."""

    def against(position: float) -> Interval:
        return parameter.against(found[parameter.at(position)])

    falls = ahead(against(0))
    if falls == ahead(against(1)):
        return None
    low, high, _ = parameter.bracket(found, ahead)
    before, after = against(low).mean, against(high).mean
    share = before / (before - after) if before != after else 0.5
    # sure on one side of the begin, and on the other side of the end
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


def _edge(parameter: Parameter, found: Found) -> Edge | None:
    """Where one end is sure and the other is not; None where both are, or neither."""
    for curve in (ahead_surely, not_behind):
        least, most = (curve(parameter.against(found[parameter.at(end)])) for end in (0, 1))
        if least != most:
            sure = curve is ahead_surely
            above = most == sure
            low, high, _ = parameter.bracket(found, curve)
            return Edge(parameter.at(high if above else low), above, sure)
    return None


def break_even_sentences(table: Table) -> list[str]:
    """The answer as described and how many numbers turn it; the first number, which is the one
    that is asked for most, and those that turn it or decide it somewhere; the verdict on the
    base."""
    return [text for place in _places(table) for text in _sentences(table, place)]


def _places(table: Table) -> list[Place]:
    return places(table.config["axes"], table.config["compare"])


def _base(table: Table, place: Place) -> Group | None:
    """The base at a place."""
    wanted = {PARAMETER: AS_DESCRIBED, **place}
    return next((group for group in table.groups if group.others == wanted), None)


def _where(place: Place) -> str:
    return ", ".join(map(label, place.values()))


def _sentences(table: Table, place: Place) -> Iterator[str]:
    where = f"{_where(place)}: " if place else ""
    found = findings(table, place)
    pair = [label(value) for value in table.config["axes"][table.config["compare"]]]
    now = evaluations(table.config, table.records()).found(place, AS_DESCRIBED).get(None)
    yield f"{where}{' / '.join(pair)} is {ratio(now)} as described; {_summary(found)}"
    for i, each in enumerate(found):
        if i == 0 or each.edge is not None or each.outcome == "turns":
            yield f"{where}{each.name}: {_told(each, pair)}"
    base = _base(table, place)
    if base is not None:
        yield judge(base).sentence


def _summary(found: list[Finding]) -> str:
    names: dict[Outcome, list[str]] = {}
    for each in found:
        names.setdefault(each.outcome, []).append(each.name)
    count = f"of {len(found)} assumed numbers"
    if turn := names.get("turns"):
        crosses = "crosses" if len(turn) == 1 else "cross"
        text = f"{count} {len(turn)} {crosses} the break-even where plausible: {listed(turn)}"
    else:
        text = f"{count} none crosses the break-even where plausible"
    if undecided := names.get("open"):
        text += f"; somewhere undecided: {listed(undecided)}"
    if unfinished := names.get("unfinished"):
        text += f"; still searched: {listed(unfinished)}"
    return f"{text}."


def _told(finding: Finding, pair: list[str]) -> str:
    """One parameter in words."""
    parameter = finding.parameter
    if finding.outcome == "unfinished":
        return f"still searched, {len(finding.found)} values so far."
    subject = f"{' / '.join(pair)} is {_ratios(finding)}."
    if crossing := finding.crossing:
        return f"{_across(parameter, crossing, pair)}; {subject}"
    apart = "" if parameter.even == 1 else f" {parameter.even:g}"
    span = "" if parameter.choice else f" from {parameter.at(0)} to {parameter.at(1)}"
    match finding.outcome:
        case "turns":
            return f"crosses the break-even{apart}: {subject}"
        case "open":
            edge = f"; {_sure(finding.edge, parameter, pair)}" if finding.edge else ""
            return f"undecided {listed(finding.undecided)}{edge}: {subject}"
        case _:
            return f"never{span}{f' across{apart}' if apart else ''}: {subject}"


def _across(parameter: Parameter, crossing: Crossing, pair: list[str]) -> str:
    """Who is ahead on either side, or where the ratio that is sought lies."""
    at = f"{crossing.at} ({_interval(parameter, crossing)})"
    if parameter.even == 1:
        first, second = pair if crossing.falls else pair[::-1]
        return f"{first} is ahead below {at}, {second} above"
    how = "below" if crossing.falls else "above"
    return f"{' / '.join(pair)} is {how} {parameter.even:g} from {at} on"


def _sure(edge: Edge, parameter: Parameter, pair: list[str]) -> str:
    side = "above" if edge.above else "below"
    if parameter.even == 1:
        return f"{pair[0 if edge.ahead else 1]} is surely ahead {side} {edge.at}"
    how = "more" if edge.ahead else "less"
    return f"surely {how} than {parameter.even:g} {side} {edge.at}"


def _ratios(finding: Finding) -> str:
    """The answers at its ends, or with its choices."""
    return ", ".join(f"{ratio(answer)} {words}" for words, answer in finding.ends.items())


def _interval(parameter: Parameter, crossing: Crossing) -> str:
    if crossing.low is None and crossing.high is None:
        return "undecided all along"
    low = f"below {parameter.at(0)}" if crossing.low is None else crossing.low
    high = f"above {parameter.at(1)}" if crossing.high is None else crossing.high
    return f"{low} to {high}"


def break_even_blocks(table: Table) -> Iterator[Block]:
    """A table of break-evens, a chart for each range, and every value, for each place."""
    for place, grid in zip(_places(table), break_even_grids(table), strict=True):
        found = findings(table, place)
        title = f"Break-evens: {_where(place)}" if place else "Break-evens"
        charts = [chart for each in found if each.parameter.range for chart in _charts(table, each)]
        every = Section("Every value that was simulated", [_every(table, place, found)], True)
        yield Section(title, [replace(grid, title=""), Say(_note(table)), *charts, every])


def break_even_grids(table: Table) -> list[Grid]:
    """A row for each range and for each choice: a table for each place."""
    return [
        Grid(_where(place) or table.name, *break_even_rows(table, findings(table, place)))
        for place in _places(table)
    ]


def break_even_rows(table: Table, found: list[Finding]) -> tuple[list[str], list[list[str]]]:
    """(headings, rows): a row for each range, and one for each choice."""
    pair = " / ".join(label(value) for value in table.config["axes"][table.config["compare"]])
    heads = ["number", "as described", "least, or choice", "most", f"{pair} there",
             f"{pair} at most", "break-even", "values"]  # fmt: skip
    return heads, [row for each in found for row in _rows(table, each)]


def _rows(table: Table, finding: Finding) -> Iterator[list[str]]:
    parameter, found = finding.parameter, finding.found
    name, now = finding.name, described(table, parameter)
    for value in parameter.choice:
        told = _of_choice(finding, found.get(value))
        yield [name, now, value, "–", ratio(found.get(value)), "–", told, "1"]
    if parameter.range:
        low, high = parameter.at(0), parameter.at(1)
        crossing = finding.crossing
        told = finding.outcome if crossing is None else (
            f"{crossing.at} ({_interval(parameter, crossing)})"
        )  # fmt: skip
        if finding.edge is not None:
            pair = [label(v) for v in table.config["axes"][table.config["compare"]]]
            told = f"{told}, {_sure(finding.edge, parameter, pair)}"
        if parameter.even != 1:
            told = f"{parameter.even:g}: {told}"
        ends = [str(low), str(high), ratio(found.get(low)), ratio(found.get(high))]
        yield [name, now, *ends, told, str(len(found))]


def _of_choice(finding: Finding, answer: Interval | None) -> str:
    """What one choice does to the answer."""
    if answer is None:
        return "unfinished"
    signs = [finding.parameter.against(each).sign for each in (finding.base, answer) if each]
    if 0 in signs:
        return "open"
    return "turns" if len(set(signs)) > 1 else "never"


def described(table: Table, parameter: Parameter) -> str:
    """What the description has instead, where that can be told."""
    if parameter.given:
        return "–"
    keys = parameter.path.split(".")
    if keys[0] != "device_set":
        return _at(table.config["base"], keys)
    devices = (table.config.get("resolved") or {}).get("devices") or {}
    device: dict[str, Any] = next(iter(devices.values()), {})
    for kind in ("memory", "accelerator"):
        if (found := _at(device.get(kind), keys[1:])) != "–":
            return found
    return "–"


def _at(data: Any, keys: list[str]) -> str:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return "–" if data is None or isinstance(data, (dict, list)) else label(data)


def _charts(table: Table, finding: Finding) -> Iterator[Lines]:
    """The answer over the range."""
    parameter, found = finding.parameter, finding.found
    if len(found) < 2:
        return
    x = [_number(parameter, value) for value in found]
    answers = list(found.values())
    sure = all(math.isfinite(answer.half) for answer in answers)
    low, high = (
        ([math.exp(a.low) for a in answers], [math.exp(a.high) for a in answers])
        if sure else ((), ())
    )  # fmt: skip
    pair = " / ".join(label(value) for value in table.config["axes"][table.config["compare"]])
    unit = f", {parameter.unit}" if parameter.unit else ""
    yield Lines(
        f"{pair} against {finding.name}",
        Axis(f"{finding.name}{unit}", "log" if parameter.log else "linear", zero=False),
        Axis(pair, zero=False),
        [
            Series(pair, x, [math.exp(answer.mean) for answer in answers], low, high),
            Series("break-even", x, [parameter.even] * len(x)),
        ],
        f"Band: {100 * LEVEL:.0f} % interval.",
    )


def _every(table: Table, place: Place, found: list[Finding]) -> Grid:
    rate = table.rate
    names = [label(value) for value in table.config["axes"][table.config["compare"]]]
    groups = {
        (group.others.get(PARAMETER), group.others.get(VALUE)): group
        for group in table.groups
        if {k: v for k, v in group.others.items() if k not in (PARAMETER, VALUE)} == place
    }
    rows = []
    for each in found:
        for value, answer in each.found.items():
            means = {row.name: row.mean(rate.metric) for row in groups[each.name, value].main()}
            cells = [_mean(means.get(name)) for name in names]
            rows.append([each.name, str(value), *cells, ratio(answer)])
    heads = ["number", "value", *(f"{name} {rate.unit}" for name in names), " / ".join(names)]
    return Grid("", heads, rows)


def _mean(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _note(table: Table) -> str:
    count = table.config["base"].get("replications")
    return (
        f"Ratios are geometric means of {count} replications that serve the same requests, paired;"
        f" (a to b): {100 * LEVEL:.0f} % intervals. A break-even is interpolated where the mean is"
        " 1 (or what stands before it); its interval reaches from the last value that is surely on"
        " one side to the first that is surely on the other. `never`: surely on one side at both"
        " ends and as described, and so between them if the ratio rises or falls all along; what"
        " lies between was not simulated. `open`: undecided at one of these. Choices are tried one"
        " by one."
    )
