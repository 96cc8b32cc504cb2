"""The cases of a sweep side by side: who serves the most in each, decided by what, under which
assumptions that changes, and where the devices lie by capacity and bandwidth."""

from __future__ import annotations

from policies.allocators.capabilities import Contiguous, offers
from policies.allocators.registry import POLICIES
from sweeps.analyse.cases import CaseOutcome
from sweeps.analyse.conclusion import Conclusion
from sweeps.analyse.label import label
from sweeps.analyse.table import Table
from sweeps.report.verdict_sentences import short
from sweeps.run.findings import Findings
from sweeps.sections.chart import Axis, Lines, Series
from sweeps.sections.formats import NONE, gain
from sweeps.sections.section import Block, Grid, Say, Section

_GIB = 2**30


def section(findings: Findings[Conclusion], table: Grid) -> Section:
    """The picture and the table."""
    cases, places = findings.own.cases, _places(findings)
    devices = {place["device"] for place in places.values()}
    apart = 2 * len(devices) > len(places)  # by device, where cases are mostly of devices
    blocks: list[Block] = [_picture(cases, places)] if apart else []
    note = "Marked: another outcome under an assumption (a control)."
    if len(cases) > 1:
        note += f" Who wins is corrected for {len(cases)} cases (Holm);"
        note += " (a to b) holds for one by itself."
    return Section("Cases", [*blocks, table, Say(note)])


def _places(found: Findings[Conclusion]) -> dict[str, dict[str, float]]:
    """Device, capacity and peak by case, as far as they are known."""
    places: dict[str, dict[str, float]] = found.table.provenance.get("hardware", {})
    return places


def grid(findings: Findings[Conclusion]) -> Grid:
    """A row a case, first those that a contiguous policy wins."""
    table, places = findings.table, _places(findings)
    first = _contiguous(table)
    found = sorted(findings.own.cases, key=lambda each: each.verdict.best not in first)
    names = [label(value) for value in table.config["axes"][table.config["compare"]]]
    rows = [_row(each, _place(each, places), names) for each in found]
    heads = ["case", "GiB", "GB/s", "outcome", table.objective.unit,
             *(f"over {each}" for each in names), "decided by", "reference over the leader",
             "hangs on"]  # fmt: skip
    marked = frozenset(i for i, each in enumerate(found) if each.hangs_on)
    return Grid("", heads, rows, marked=marked)


def _contiguous(table: Table) -> set[str]:
    """Competitors that keep the KV of a request in one run of slots."""
    values = table.config["axes"][table.config["compare"]]
    names = {label(v): str(v.get("name") if isinstance(v, dict) else v) for v in values}
    return {
        each for each, name in names.items()
        if name in POLICIES and offers(POLICIES[name], Contiguous)
    }  # fmt: skip


def _place(each: CaseOutcome, places: dict[str, dict[str, float]]) -> dict[str, float] | None:
    """Of its case, which its title begins with where there are other axes."""
    title = f"{each.verdict.title}, "
    return next((places[name] for name in places if title.startswith(f"{name}, ")), None)


def _row(each: CaseOutcome, place: dict[str, float] | None, names: list[str]) -> list[str]:
    """With the leader's lead over each of those that compete."""
    verdict = each.verdict
    free = "" if verdict.bound else " (KV memory not the limit)"
    size = [NONE, NONE] if place is None else [
        f"{place['capacity_bytes'] / _GIB:,.0f}", f"{place['peak_gbps']:,.0f}"
    ]  # fmt: skip
    leads = {gap.other: gain(gap.total) for gap in verdict.gaps}
    gains = [f"{r.name} {gain(r.gains[verdict.leader])}"
             for r in each.references if verdict.leader in r.gains]  # fmt: skip
    rate = verdict.objective.text(verdict.rate) if verdict.leader else NONE
    return [
        verdict.title, *size, short(verdict) + free, rate,
        *(leads.get(name, NONE) for name in names),
        ", ".join(verdict.decided_by) if verdict.outcome == "won" else NONE,
        "; ".join(gains) or NONE, ", ".join(each.hangs_on) or NONE,
    ]  # fmt: skip


def _picture(found: list[CaseOutcome], places: dict[str, dict[str, float]]) -> Lines:
    """A point a case in the colour of its outcome; one that an assumption turns has its own."""
    series: dict[str, list[tuple[float, float, str]]] = {}
    for each in found:
        if (place := _place(each, places)) is not None:
            name = short(each.verdict) + ", on an assumption" * bool(each.hangs_on)
            at = (place["capacity_bytes"] / _GIB, place["peak_gbps"], str(place["device"]))
            series.setdefault(name, []).append(at)
    drawn = [
        Series(name, [x for x, _, _ in ats], [y for _, y, _ in ats], names=[n for *_, n in ats])
        for name, ats in sorted(series.items())
    ]
    x, y = Axis("capacity, GiB", "log"), Axis("peak bandwidth, GB/s", "log")
    return Lines(
        "Who serves the most, by capacity and bandwidth",
        x,
        y,
        drawn,
        form="points",
        figure="library",
    )
