"""The sentences of runs of the ODMA paper's table, with `paged` beside it or without."""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.analyse.statistics import Interval, grown
from sweeps.plan.paged_findings import CardEffects, Effects, OtherControl
from sweeps.plan.paper_findings import EDGE, INSIDE, OUTSIDE, DatasetResult, MapCell, Placement
from sweeps.report.formats import effect, hundred, listed, percent, said, share

MIGRATIONS = 0.005
"""The paper's bound on requests that migrate."""
DWARFS = 5.0
"""One effect makes a gap rather than another where it is more than this many times as large
(assumed)."""


def with_interval(found: Interval | None) -> str:
    """A share with its interval, where that is wider than what is written."""
    if found is None:
        return "–"
    same = hundred(found.low, 1) == hundred(found.high, 1)
    return share(found.mean, 1) if found.count < 2 or same else percent(found, digits=1)


def paper_in_short(found: list[DatasetResult]) -> str:
    """How many of the paper's figures follow from its baselines, and which do not."""
    places: dict[str, list[str]] = {INSIDE: [], EDGE: [], OUTSIDE: []}
    for each in found:
        for placement in each.placements:
            places[placement.place].append(f"{placement.words} on {each.name}")
    count = sum(map(len, places.values()))
    text = f"{len(places.pop(INSIDE))} of the paper's {count} figures lie inside the band of means"
    text += " over the assumptions"
    for place, figures in places.items():
        if figures:
            text += f"; {listed(figures)} {'is' if len(figures) == 1 else 'are'} {place}"
    gains = listed(
        f"{with_interval(each.placements[-1].centre)} on {each.name} (paper: {each.goal})"
        for each in found
    )
    return said(f"{text}. At the centre the throughput of odma over static is {gains}.")


def paper_dataset(found: DatasetResult) -> Iterator[str]:
    """Everything that is found on one data set."""
    met = f"{found.count - len(found.missed)} of {found.count} assumptions reach"
    missed = f"; not {', '.join(found.missed)}" if found.missed else ""
    yield (
        f"{met} static utilisation {share(found.static_utilization, 2)} and S3 accuracy "
        f"{share(found.s3_accuracy, 2)}{missed}; at the centre outputs are {found.scale:.2f} times"
        f" the shape's, prediction errors exp({found.spread:.4f} z)."
    )
    yield from map(_placement, found.placements)
    name, most = found.migrations
    below = "below" if most < MIGRATIONS else "not below"
    yield (
        f"at most {share(most, 2)} of requests outgrow their reservation ('{name}'), {below} the"
        f" paper's {share(MIGRATIONS, 1)}."
    )
    if len(found.loads) > 1:
        text = ", ".join(f"{hundred(mean, 1, '+')} % at {load:g}" for load, mean in found.loads)
        reached = [load for load, mean in found.loads if mean >= found.gain]
        where = f"from {min(reached):g} to {max(reached):g}" if reached else "at none of them"
        yield (
            f"odma over static by load (in units of the best policy's capacity): {text}; the "
            f"paper's {found.goal} or more {where}."
        )
    yield _reaching(found)
    if found.cells:
        yield _map(found)


def _map(found: DatasetResult) -> str:
    """Where, over length shape and limit, the paper's figures are met, and where the gain is
    nearest."""
    met = [(cell, names) for cell in found.cells if (names := cell.meets(found.paper))]
    every = [_cell(cell) for cell, names in met if len(names) == len(found.paper)]
    gain = [_cell(cell) for cell, names in met if "throughput_gain" in names]
    known = [(cell, i) for cell in found.cells if (i := cell.figures.get("throughput_gain"))]
    near, best = min(known, key=lambda each: abs(each[1].mean - found.gain))
    used = near.figures.get("utilization.odma")
    text = (
        f"over {len(found.cells)} lognormal length shapes and limits the paper's "
        f"{len(found.paper)} figures are met together at {listed(every) if every else 'none'}, its "
        f"gain at {listed(gain) if gain else 'none'}; the gain is nearest at {_cell(near)}: "
        f"{with_interval(best)}"
    )
    if used is not None:
        text += f", with utilisation {with_interval(used)}"
        text += f" (paper: {share(found.paper['utilization.odma'], 2)})"
    return said(f"{text}.")


def _cell(cell: MapCell) -> str:
    return f"log-sd {cell.sigma:g}, limit {cell.limit}"


def _placement(found: Placement) -> str:
    place = found.place
    if place != INSIDE:
        away = max(found.low - found.paper, found.paper - found.high)
        place += f" ({hundred(away, 1)} percentage points from it)"
    text = (
        f"{found.words}: paper {share(found.paper, 2)}, centre {with_interval(found.centre)}, band"
        f" {share(found.low, 1)} to {share(found.high, 1)} over {found.count} assumptions: the"
        f" paper is {place}."
    )
    if found.moved is not None:
        name, points = found.moved
        change = f"{hundred(points, 1, '+')} percentage points"
        text += f" The largest effect of a single change is that of '{name}' ({change})."
    return said(text)


def _reaching(found: DatasetResult) -> str:
    means = found.means
    reach = [name for name, mean in means.items() if mean >= found.gain]
    more = sum(mean > 0 or mean >= found.gain for mean in means.values())
    text = f"odma serves more than static under {more} of {len(means)} assumptions"
    if reach:
        return f"{text}, and by the paper's {found.goal} under {', '.join(reach)}."
    best = max(means, key=lambda name: means[name])
    most = f"{hundred(means[best], 1, '+')} %"
    return f"{text}, under none by the paper's {found.goal}; the most is {most}, under '{best}'."


def tested(log_ratio: Interval) -> str:
    """An effect, and whether it is significant."""
    text = effect(log_ratio)
    return text if log_ratio.sign else f"{text.removesuffix(')')}; not significant)"


def paged_in_short(found: list[Effects]) -> str:
    """Which of capacity and layout makes the gaps, in ranges over all of them."""
    known = [(e.capacity, e.layout) for e in found if e.capacity is not None and e.layout]
    if not known:
        return "The effect of layout is not known without the analytic control."
    capacities, layouts = [c for c, _ in known], [part for _, part in known]
    text = (
        f"The difference between paged and contiguous reservation is {_which(capacities, layouts)}:"
        f" over {len(known)} comparisons capacity changes throughput by {_range(capacities)},"
        f" layout by {_range(layouts)}, its KV bandwidth alone by {_range([e.kv for e in found])}."
    )
    moved = [e.bandwidth for e in found if e.bandwidth is not None]
    return f"{text} Bandwidth changes the gaps by {_range(moved)}." if moved else text


def _which(capacities: list[Interval], layouts: list[Interval]) -> str:
    """The larger of the two at its largest, among those that are significant."""
    capacity, layout = (
        max((abs(each.mean) for each in effects if each.sign), default=0.0)
        for effects in (capacities, layouts)
    )
    if capacity == layout == 0:
        return "undecided between capacity and layout"
    names = ("capacity", "layout") if capacity > layout else ("layout", "capacity")
    dwarfed = min(capacity, layout) * DWARFS < max(capacity, layout)
    return f"{names[0]}, not {names[1]}" if dwarfed else f"{names[0]} more than {names[1]}"


def _range(effects: list[Interval]) -> str:
    """Means from the least to the most, and how many are not significant."""
    means = [grown(each.mean) for each in effects]
    text = f"{hundred(min(means), 1, '+')} to {hundred(max(means), 1, '+')} %"
    idle = sum(each.sign == 0 for each in effects)
    return f"{text} ({idle} of {len(effects)} not significant)" if idle else text


def paged_card(found: list[Effects]) -> str:
    """Paged over each other policy on one card."""
    return said(f"throughput of paged relative to {'; to '.join(map(_over, found))}.")


def _over(e: Effects) -> str:
    text = f"{e.other}: {tested(e.gap)}"
    if e.capacity is None or e.layout is None:
        return text
    return f"{text}, through capacity {tested(e.capacity)}, through layout {tested(e.layout)}"


def card_change(found: CardEffects) -> str:
    """What the policies serve on one card rather than another, and what that does to the gaps."""
    faster = listed(f"{effect(gain)} for {name}" for name, gain in found.faster.items())
    gaps = listed(f"{tested(gap)} over {name}" for name, gap in found.gaps.items())
    text = f"{found.change}: throughput changes by {faster}; the gap of paged by {gaps}."
    if found.compute_bound:
        shares = listed(f"{share(part)} of {name}'s" for name, part in found.compute_bound.items())
        assumed = f" (assumed: {listed(found.assumed)})" if found.assumed else ""
        text += f" On it {shares} step time is compute-bound{assumed}."
    return said(text)


def other_control(found: OtherControl) -> str:
    """Capacity under another control, and whether its sign changes."""
    changes = any(here.sign != there.sign for _, _, here, there in found.capacities)
    undecided = "undecided: the sign changes with it; " if changes else ""
    told = listed(
        f"{tested(there)} over {other} on {card} (rather than {tested(here)})"
        for card, other, here, there in found.capacities
    )
    changed = f" ({listed(found.changed)})" if found.changed else ""
    return said(f"{found.control}{changed}: {undecided}capacity is {told}.")
