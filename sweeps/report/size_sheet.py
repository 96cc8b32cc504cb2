"""What `bankwise size` shows: who meets the target, and the frontier of a base device."""

from __future__ import annotations

from textwrap import shorten
from typing import Any

from sweeps.analyse.statistics import interval
from sweeps.ask.sized import Sized, wanted
from sweeps.ask.sizing import LEAST_GATHER, delivered, mean_output
from sweeps.report.fit_sheet import GIB, rate_text
from sweeps.report.formats import percent
from sweeps.report.section import Grid, Say, Section


def record(sized: Sized) -> dict[str, Any]:
    """In JSON's types: bytes, GB/s, requests or tokens a second."""
    target, base = sized.target, sized.base
    assert base is not None
    slo, own = target.slo, delivered(base)
    frontier = [
        {"capacity_bytes": asked.capacity, "weights": asked.weights, asked.what: found}
        for asked, found in zip(sized.asked, sized.found, strict=True)
    ]
    return {
        "model": target.model.name, "slo": None if slo is None else slo.model_dump(),
        "unit": "output tokens/s" if slo is None else "requests/s", "target": target.per_s,
        "devices": dict(zip(sized.devices, sized.loads, strict=True)), "meet": sized.meeting,
        "cheapest": sized.cheapest, "base": base.name, "base_delivered_bytes_per_s": own,
        "frontier": frontier, "policy": target.policy.name, "law": target.users,
        "prices": sized.prices, "watts": sized.watts,
        "confirmed": None if sized.confirmed is None else {
            "per_s": sized.confirmed[0], "attained": sized.confirmed[1]},
    }  # fmt: skip


def sheet(sized: Sized) -> Section:
    """Two tables and what they say."""
    target, base = sized.target, sized.base
    assert base is not None
    mean = mean_output(target)
    unit = "out tok/s" if target.slo is None else "requests/s"
    rows = []
    for (name, device), load in sorted(
        zip(sized.devices.items(), sized.loads, strict=True),
        key=lambda item: -item[1] if isinstance(item[1], float) else 1.0,
    ):
        figures = [f"{device.capacity_bytes / GIB:,.0f}", f"{delivered(device) / 1e9:,.0f}"]
        carried = [rate_text(load)] if isinstance(load, float) else ["–"]
        if target.slo is not None:
            carried.append(f"{load * mean:,.0f}" if isinstance(load, float) else "–")
        if sized.prices:
            carried.append(_given(sized.prices, name, target.cards))
        if sized.watts:
            each = sized.watts.get(name)
            good = each and isinstance(load, float)
            tokens = load * (mean if target.slo else 1) if good else 0.0
            carried += [
                _given(sized.watts, name, target.cards),
                f"{tokens / (each * target.cards):.2g}" if each and good else "–",
            ]
        why = "no load attains it" if load is None else shorten(str(load), 60, placeholder=" ...")
        word = "yes" if name in sized.meeting else "no" if isinstance(load, float) else why
        rows.append([name, *figures, *carried, word])
    columns = ["device", "GiB", "GB/s delivered", unit,
               *(["out tok/s"] if target.slo else []), *(["price"] if sized.prices else []),
               *(["W", "out tok/J"] if sized.watts else []), "meets it"]  # fmt: skip
    own = delivered(base) / 1e9
    by = _by(sized)
    verdict = f"Cheapest device that meets it: {sized.cheapest} ({by})."
    verdict = verdict if sized.cheapest else "None of these devices meets it."
    notes = (
        f"{target.policy.name.capitalize()}, on memory that delivers one bandwidth: of a simulated"
        " device its closed-form bound x what reaches its engines (derate), at best."
        " –: no bandwidth does, for want of FLOPs or room. Near that, bandwidth makes up for"
        " FLOPs: a format whose products are slower then needs more of it. Gather: the least that"
        " scattered KV may be read at, as a share of contiguous KV;"
        f" {LEAST_GATHER:g}: no more was asked."
    )
    return Section(target.model.name, [
        Say(wanted(target, mean), "question"),
        Grid("", columns, rows),
        Say(verdict, "verdict"),
        *([Say(_confirmed(sized), "verdict")] if sized.confirmed else []),
        Grid(f"Least delivered GB/s of {base.name} (its own: {own:,.0f} at"
             f" {base.capacity_bytes / GIB:,.0f} GiB)", ["capacity", *sized.formats],
             _frontier(sized)),
        Say(notes),
    ])  # fmt: skip


def _by(sized: Sized) -> str:
    """By what the cheapest is that."""
    name, cards = sized.cheapest or "", sized.target.cards
    for given, unit in ((sized.prices, ""), (sized.watts, " W")):
        if name in given:
            return f"{given[name] * cards:,.10g}{unit} for {cards} x {given[name]:,.10g}"
    return "least bandwidth x capacity; --price and --watts give others"


def _given(amounts: dict[str, float], name: str, cards: int) -> str:
    return f"{amounts[name] * cards:,.10g}" if name in amounts else "–"


def _confirmed(sized: Sized) -> str:
    """What a sweep finds at the load of the base."""
    assert sized.confirmed is not None and sized.base is not None and sized.target.slo is not None
    per_s, shares = sized.confirmed
    if not shares:
        return f"No load of {sized.base.name} attains it, so that a sweep has none to confirm."
    found = percent(interval(shares).within(0.0, 1.0), digits=0)
    return (
        f"At {per_s:.3g} requests/s a sweep of {sized.base.name} has {found} attain it in"
        f" {len(shares)} replications of other requests; asked for:"
        f" {sized.target.slo.attainment:.0%}."
    )


def _frontier(sized: Sized) -> list[list[str]]:
    rows: dict[str, list[str]] = {}
    for asked, found in zip(sized.asked, sized.found, strict=True):
        name = "gather" if asked.what == "gather" else f"{(asked.capacity or 0) / GIB:,.0f} GiB"
        text = "–"
        if isinstance(found, float):
            text = f"{found:.2f}" if asked.what == "gather" else f"{found / 1e9:,.0f}"
        rows.setdefault(name, [name]).append(text)
    return list(rows.values())
