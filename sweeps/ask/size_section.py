"""How `size` says which devices meet a load."""

from __future__ import annotations

from textwrap import shorten

from sweeps.ask.fit_section import GIB, rate_text
from sweeps.ask.served import wanted
from sweeps.ask.sized import Sized, SizedDevice
from sweeps.ask.sizing_runs import Target, delivered
from sweeps.sections.formats import NONE, percent
from sweeps.sections.section import Grid, Say, Section


def size_section(sized: Sized) -> Section:
    """A row a device, and which of those that meet it is cheapest."""
    target = sized.target
    mean = target.mean_output
    ordered = sorted(sized.loads.items(), key=lambda item: -_most(item[1]))
    rows = [_row(sized, name, found, mean) for name, found in ordered]
    closed = ["requests/s", "attain it"] if target.think_s is not None else ["out tok/s"]
    columns = ["device", "GiB", "GB/s delivered", target.unit("out tok/s"),
               *(closed if target.slo else []), *(["price"] if sized.prices else []),
               *(["W", "out tok/J"] if sized.watts else []),
               "cards" if target.at_once else "meets it"]  # fmt: skip
    verdict = f"Cheapest that meets it: {_fleet(sized)} {sized.cheapest} ({_by(sized)})."
    verdict = verdict if sized.cheapest else "None of these devices meets it."
    return Section(target.model.name, [
        Say(wanted(target), "question"),
        Grid("", columns, rows),
        *([] if target.at_once else [Say(verdict, "verdict")]),
        Say(best_memory_text(target)),
    ])  # fmt: skip


def best_memory_text(target: Target) -> str:
    """What memory is taken to do."""
    return (
        f"{target.policy.name.capitalize()}, on memory that delivers one bandwidth: of a simulated"
        " device its closed-form bound x what reaches its engines (derate), at best."
    )


def _most(found: SizedDevice | str) -> float:
    """The largest load; of what carries none, less."""
    return -1.0 if isinstance(found, str) else (found.load or 0.0)


def _row(sized: Sized, name: str, found: SizedDevice | str, mean: float) -> list[str]:
    target, device = sized.target, sized.devices[name]
    row = [name, f"{device.capacity_bytes / GIB:,.0f}", f"{delivered(device) / 1e9:,.0f}"]
    load = 0.0 if isinstance(found, str) else (found.load or 0.0)
    users = target.think_s is not None
    row.append(NONE if not load else f"{load:,.0f}" if users else rate_text(load))
    loop = None if isinstance(found, str) else found.loop
    if users:
        shown = [NONE, NONE]
        if loop is not None:
            shown = [rate_text(loop[0]), percent(loop[1], digits=0)]
        row += shown
    elif target.slo is not None:
        row.append(f"{load * mean:,.0f}" if load else NONE)
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
        return NONE
    per_s = found.load if found.loop is None else found.loop[0]
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
    return f"{amounts[name] * cards:,.10g}" if name in amounts and cards else NONE
