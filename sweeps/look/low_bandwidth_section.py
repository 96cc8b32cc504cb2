"""Why a trace is below the peak: a waterfall of causes, then the changes that were tried."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sweeps.analyse.statistics import Interval
from sweeps.sections.formats import percent, share
from sweeps.sections.section import Block, Grid, Say, Section

_SEEN = 0.0005
"""Of the peak; a cause that is below it in any order is only named."""
_BAR = 40
"""Letters of a bar as long as the peak."""
_NEXT = 4
"""Changes shown after the best."""
ORDER = (
    "A cause is what simulation gains without it and those above it; shares depend on the order."
    " first, last: the gain without it alone, and after all others, GB/s."
)


def why(result: dict[str, Any]) -> Section:
    """What `sweeps.ask.low_bandwidth.explain` found."""
    window, grid = result["window"], waterfall(result)
    about, last = grid.title, window["first"] + window["accesses"]
    if window["accesses"] < window["of"]:
        about += f", of accesses {window['first'] + 1:,} to {last:,} of {window['of']:,}"
    none = [each["cause"] for each in result["causes"] if not _shown(each, result["peak_gbps"])]
    order = ORDER + f" Nothing in any order: {', '.join(none)}." * bool(none)
    first = [Say(f"{about}."), *map(Say, _load(result["load"]))]
    return Section(grid.title, [*first, replace(grid, title=""), Say(order), *_changes(result)])


def reached(trace: str, result: dict[str, Any]) -> list[Block]:
    """What a page says above a trace's commands: what it reaches, and why where that is known."""
    served = result["row_hits"] + result["row_misses"] + result["row_conflicts"]
    rest = f"; {share(result['row_hits'] / served)} of them hit an open row" if served else ""
    lead = Say(
        f"The accesses of {trace} are served at {result['bandwidth_gbps']:,.2f} GB/s,"
        f" {share(result['utilization'])} of the peak{rest}.", "lead",
    )  # fmt: skip
    if "explanation" not in result:
        return [lead]
    grid = waterfall(result["explanation"])
    rows = [row[:-1] for row in grid.rows]  # without the bars, which letters make
    return [lead, Grid(grid.title, grid.columns[:-1], rows), Say(ORDER)]


def _load(load: dict[str, Any] | None) -> list[str]:
    if load is None:
        return []
    offered, served = load["offered_gbps"], load["at_once_gbps"]
    if load["limits"]:
        return [f"the load limits, not the memory: accesses arrive at {offered:,.2f} GB/s, and at"
                f" once the memory would serve {served:,.2f} GB/s"]  # fmt: skip
    return [f"the memory limits: accesses arrive at {offered:,.2f} GB/s, and at once it serves"
            f" {served:,.2f} GB/s",
            "times that were recorded behind a memory hold its stalls; without them: --at-once",
    ]  # fmt: skip


def waterfall(result: dict[str, Any]) -> Grid:
    """From the peak to what is achieved, a row a cause."""
    peak = result["peak_gbps"]
    seen = [cause for cause in result["causes"] if _shown(cause, peak)]
    rows, at = [["peak", f"{peak:,.2f}", "100.0", "", "", _bar(0, 1)]], 1.0
    for cause in seen:
        rows.append(_row(cause["cause"], cause["gbps"], peak, at, cause))
        at -= cause["gbps"] / peak
    # causes too small to be shown
    rest = peak * at - result["not_explained_gbps"] - result["achieved_gbps"]
    left = result["not_explained_gbps"] + rest
    rows.append(_row("not explained", left, peak, at))
    share = result["achieved_gbps"] / peak
    rows.append(["achieved", f"{result['achieved_gbps']:,.2f}", f"{100 * share:.1f}", "", "",
                 _bar(0, share)])  # fmt: skip
    title = f"Why {result['achieved_gbps']:,.2f} and not {peak:,.2f} GB/s"
    return Grid(title, ["", "GB/s", "%", "first", "last", " "], rows)


def _shown(cause: dict[str, Any], peak: float) -> bool:
    names = ("gbps", "first_gbps", "last_gbps")
    return any(abs(cause[name]) >= _SEEN * peak for name in names)


def _row(
    name: str, gbps: float, peak: float, at: float, cause: dict[str, Any] | None = None
) -> list[str]:
    """A step of the waterfall, from `at` of the peak down."""
    share = gbps / peak
    ends = ["", ""]
    if cause is not None:
        ends = [f"{cause['first_gbps']:,.2f}", f"{cause['last_gbps']:,.2f}"]
    return [name, f"{-gbps:+,.2f}", f"{-100 * share:+.1f}", *ends, _bar(at - share, at)]


def _bar(low: float, high: float) -> str:
    """A bar between two shares of the peak, in either order."""
    low, high = sorted((low, high))
    first, last = round(_BAR * low), round(_BAR * high)
    return " " * first + "#" * (last - first)


def _changes(found: dict[str, Any]) -> Iterator[Block]:
    """How many changes were tried, and those that help, with what to type."""
    changes, refused = found["changes"], found["refused"]
    helps = bool(changes) and found["helps"]
    none = "; none helps beyond noise" * (bool(changes) and not helps)
    yield Say(f"{len(changes)} changes tried, {len(refused)} not possible here{none}")
    if not helps:
        return
    best, *others = changes
    rest = [each for each in others if not each["ties"]][:_NEXT]
    named = [("helps most", best)]
    named += [("within noise of it", each) for each in others if each["ties"]]
    named += [("then", each) for each in rest]
    named += [("together", each) for each in found["together"][-1:]]
    rows = [[words, f"{each['gbps']:,.2f}", _gain(each), _settings(each)] for words, each in named]
    yield Grid("", ["", "GB/s", "gain", "with"], rows)
    if best["interval"] is None:
        yield Say("the trace is too short to tell what is noise")


def _settings(change: dict[str, Any]) -> str:
    """As the command line takes them."""
    return " ".join(
        f"--set '{each}'" if set(each) & set("[]{} ") else f"--set {each}" for each in change["set"]
    )


def _gain(change: dict[str, Any]) -> str:
    low, high = change["interval"] or (-math.inf, math.inf)
    return percent(Interval(change["gain"], low, high, 2), True, 1)
