"""What `bankwise size` shows: who meets the target, and the frontier of a base device."""

from __future__ import annotations

from textwrap import shorten
from typing import Any

from sweeps.analyse.statistics import Interval, interval
from sweeps.ask.fit_section import GIB, rate_text
from sweeps.ask.sized import Sized, SizedDevice, wanted
from sweeps.ask.sizing import LEAST_GATHER
from sweeps.ask.sizing_runs import Target, delivered, mean_output
from sweeps.sections.formats import percent
from sweeps.sections.section import Grid, Say, Section


def record(sized: Sized) -> dict[str, Any]:
    """In JSON's types: bytes, GB/s, requests or tokens a second, users."""
    target, base = sized.target, sized.base
    assert base is not None
    slo, own = target.slo, delivered(base)
    frontier = [
        {"capacity_bytes": asked.capacity, "weights": asked.weights, asked.what: found}
        for asked, found in zip(sized.asked, sized.found, strict=True)
    ]
    return {
        "model": target.model.name, "slo": None if slo is None else slo.model_dump(),
        "unit": _unit(target, "output tokens/s"), "target": target.load,
        "think_s": target.think_s, "devices": {n: _found(f) for n, f in sized.loads.items()},
        "meet": sized.meeting, "cheapest": sized.cheapest, "base": base.name,
        "base_delivered_bytes_per_s": own, "frontier": frontier, "policy": target.policy.name,
        "prices": sized.prices, "watts": sized.watts,
        "confirmed": None if sized.confirmed is None else {
            "load": sized.confirmed[0], "attained": sized.confirmed[1]},
    }  # fmt: skip


def _found(found: SizedDevice | str) -> dict[str, Any] | str:
    """What a device carries, in JSON's types; why it carries nothing."""
    if isinstance(found, str):
        return found
    loop = _loop(found)
    more = {} if loop is None else {
        "requests_per_s": loop[0], "attained": {"mean": loop[1].mean, "low": loop[1].low,
                                                "high": loop[1].high}}  # fmt: skip
    return {"load": found.load, "cards": found.cards, "replicas": found.replicas, **more}


def _unit(target: Target, tokens: str = "out tok/s") -> str:
    if target.slo is None:
        return tokens
    if target.at_once:
        return "at once"
    return "requests/s" if target.think_s is None else "users"


def _loop(found: SizedDevice) -> tuple[float, Interval] | None:
    """Requests a second of the most users, and the share that attains the objective."""
    if not found.runs:
        return None
    shares = interval([run.attained for run in found.runs]).within(0.0, 1.0)
    return sum(run.per_s for run in found.runs) / len(found.runs), shares


def sheet(sized: Sized) -> Section:
    """Two tables and what they say."""
    target, base = sized.target, sized.base
    assert base is not None
    mean = mean_output(target)
    ordered = sorted(sized.loads.items(), key=lambda item: -_most(item[1]))
    rows = [_row(sized, name, found, mean) for name, found in ordered]
    closed = ["requests/s", "attain it"] if target.think_s is not None else ["out tok/s"]
    columns = ["device", "GiB", "GB/s delivered", _unit(target),
               *(closed if target.slo else []), *(["price"] if sized.prices else []),
               *(["W", "out tok/J"] if sized.watts else []),
               "cards" if target.at_once else "meets it"]  # fmt: skip
    own = delivered(base) / 1e9
    verdict = f"Cheapest that meets it: {_fleet(sized)} {sized.cheapest} ({_by(sized)})."
    verdict = verdict if sized.cheapest else "None of these devices meets it."
    notes = (
        f"{target.policy.name.capitalize()}, on memory that delivers one bandwidth: of a simulated"
        " device its closed-form bound x what reaches its engines (derate), at best."
    )
    if sized.asked:
        notes += (
            " –: no bandwidth does, for want of FLOPs or room. Near that, bandwidth makes up for"
            " FLOPs: a format whose products are slower then needs more of it. Gather: the least"
            " that scattered KV may be read at, as a share of contiguous KV;"
            f" {LEAST_GATHER:g}: no more was asked."
        )
        if target.think_s:
            notes += " Think times are drawn with that mean here, lest users ask in step."
    return Section(target.model.name, [
        Say(wanted(target, mean), "question"),
        Grid("", columns, rows),
        *([] if target.at_once else [Say(verdict, "verdict")]),
        *([Say(_confirmed(sized), "verdict")] if sized.confirmed else []),
        *([Grid(f"Least delivered GB/s of {base.name} (its own: {own:,.0f} at"
                f" {base.capacity_bytes / GIB:,.0f} GiB)", ["capacity", *sized.formats],
                _frontier(sized))] if sized.asked else []),
        Say(notes),
    ])  # fmt: skip


def _most(found: SizedDevice | str) -> float:
    """The largest load; of what carries none, less."""
    return -1.0 if isinstance(found, str) else (found.load or 0.0)


def _row(sized: Sized, name: str, found: SizedDevice | str, mean: float) -> list[str]:
    """Of a device in the table of devices."""
    target, device = sized.target, sized.devices[name]
    row = [name, f"{device.capacity_bytes / GIB:,.0f}", f"{delivered(device) / 1e9:,.0f}"]
    load = 0.0 if isinstance(found, str) else (found.load or 0.0)
    users = target.think_s is not None
    row.append("–" if not load else f"{load:,.0f}" if users else rate_text(load))
    loop = None if isinstance(found, str) else _loop(found)
    if users:
        shown = ["–", "–"]
        if loop is not None:
            shown = [rate_text(loop[0]), percent(loop[1], digits=0)]
        row += shown
    elif target.slo is not None:
        row.append(f"{load * mean:,.0f}" if load else "–")
    cards = sized.fleet(name)
    if sized.prices:
        row.append(_given(sized.prices, name, cards))
    if sized.watts:
        row += [_given(sized.watts, name, cards), _per_joule(sized, name, mean)]
    return [*row, _meets(sized, found)]


def _meets(sized: Sized, found: SizedDevice | str) -> str:
    """How many cards meet the target, in a word or two; why none do."""
    if isinstance(found, str):
        return shorten(found, 60, placeholder=" ...")
    if not found.load:
        return "no load attains it"
    if sized.target.at_once:
        return str(found.cards)
    if found.replicas is None:
        return "no"
    each = f" of {found.cards} cards" if found.cards > 1 else ""
    return f"{'yes' if found.replicas == 1 else f'{found.replicas:,} do'}{each}"


def _per_joule(sized: Sized, name: str, mean: float) -> str:
    """Output tokens of a joule of a replica at its largest load."""
    found, each, target = sized.loads[name], sized.watts.get(name), sized.target
    if isinstance(found, str) or not found.load or not each:
        return "–"
    loop = _loop(found)
    per_s = found.load if loop is None else loop[0]
    return f"{per_s * (mean if target.slo else 1) / (each * found.cards):.2g}"


def _fleet(sized: Sized) -> str:
    """The cards of the cheapest, in words."""
    found = sized.loads[sized.cheapest or ""] if sized.cheapest else ""
    if isinstance(found, str):
        return ""
    each = f" of {found.cards} cards each of" if found.cards > 1 else " x"
    return f"{found.replicas}{each}"


def _by(sized: Sized) -> str:
    """By what the cheapest is that."""
    name = sized.cheapest or ""
    for given, unit in ((sized.prices, ""), (sized.watts, " W")):
        if name in given:
            cards = sized.fleet(name)
            return f"{given[name] * cards:,.10g}{unit} for {cards} x {given[name]:,.10g}"
    return "least bandwidth x capacity; --price and --watts give others"


def _given(amounts: dict[str, float], name: str, cards: int) -> str:
    return f"{amounts[name] * cards:,.10g}" if name in amounts and cards else "–"


def _confirmed(sized: Sized) -> str:
    """What a sweep finds at the load of the base."""
    assert sized.confirmed is not None and sized.base is not None and sized.target.slo is not None
    load, shares = sized.confirmed
    if not shares:
        return f"No load of {sized.base.name} attains it, so that a sweep has none to confirm."
    found = percent(interval(shares).within(0.0, 1.0), digits=0)
    return (
        f"At {load:.3g} {_unit(sized.target)} a sweep of {sized.base.name} has {found} attain it in"
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
