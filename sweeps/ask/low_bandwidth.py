"""Why a trace does not reach the peak: each cause found by simulation without it.

A ladder of counterfactuals: causes are taken away one after the other, in the order of
`hwmodel.measure.without.CAUSES`, and each rung's gain is that cause's share of the gap. The shares
add up to the gap with what is left, "not explained", which may be negative. They depend on the
order: two causes that hide each other give all to the one that goes last. So each cause also has
its gain where it alone goes first, and where it goes last of all; these do not add up.

Long traces are explained by a window around their middle, so that all runs together simulate at
most `BUDGET` times the trace, but never less than `LEAST` accesses a run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.trace import TraceChunk, read_trace
from hwmodel.measure.without import CAUSES, WithoutCase, placed, without
from hwmodel.specs.device import Device, load_device
from sweeps.analyse.statistics import Interval, relative_gap
from sweeps.ask.memory_changes import candidates
from sweeps.run.progress import Progress

BUDGET, LEAST, MOST = 20, 200_000, 4_000_000
"""Times the trace that all runs simulate at most; accesses of a window at least, and at most."""
PARTS = 8
"""Parts of a window whose times give the noise of a comparison."""
_INTERVALS = 90
"""Refresh intervals that a window lasts before postponed refreshes are tried: at most 9 of them may
fall behind its end (assumed)."""
_TOGETHER = 4
"""Simulations of changes together (assumed)."""
_SHORTEST = 256
"""Accesses of a channel in a part, below which its time says nothing of noise: as many as the
deepest queue holds (assumed)."""


class Ran(NamedTuple):
    """A simulation: bandwidth, GB/s, and the time of each part of the window, ns (`PARTS`,)."""

    gbps: float
    part_ns: tuple[float, ...]


class AccessWindow(NamedTuple):
    """The accesses that are explained: `count` of them, from `first` (0 on) of `of`."""

    chunk: TraceChunk
    first: int
    of: int


def run(case: WithoutCase) -> Ran:
    """Simulate a case from idle to its last data beat."""
    loop = OpenLoop(case.memory, case.channels)
    edges = np.linspace(0, len(case.stream.bank), PARTS + 1).astype(int)
    ends = [0]
    for first, last in pairwise(edges.tolist()):
        loop.feed_all(case.parts(first, last))
        ends.append(loop.end_tick)
    loop.finish()
    ends[-1] = loop.end_tick
    ns = [case.memory.tick_clock.ns_of_ticks(tick) for tick in ends]
    parts = tuple(b - a for a, b in pairwise(ns))
    return Ran(loop.total("bytes") / ns[-1] if ns[-1] else 0.0, parts)


def explain(
    device: Device, name: str, overrides: Sequence[str], trace: Path, count: int,
    single_channel: bool = False, at_once: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Why a trace of `count` accesses is below the peak, and the change that helps most.

    `name`, `overrides`: what `device` was loaded from, for the changes are overrides beside these.
    Bandwidths in GB/s (10^9 B/s) of DQ. Raises DescriptionError for an unreadable trace, or one
    that moves no bytes.
    """
    tried = candidates(device, single_channel)
    window = cut(
        device, trace, count, single_channel, at_once, 3 * len(CAUSES) + len(tried) + _TOGETHER
    )
    case = placed(device, window.chunk, single_channel)
    ladder = Ladder(case)
    found = ladder.losses()
    if not found["achieved_gbps"]:
        raise DescriptionError("moves no bytes on DQ; nothing to explain", trace)
    accesses = len(window.chunk.address)
    found["window"] = {"first": window.first, "accesses": accesses, "of": window.of}
    found["load"] = _load(ladder, window)
    found |= _changes(device, name, overrides, single_channel, window, ladder.ran(()), tried)
    return found


def cut(
    device: Device, trace: Path, count: int, single_channel: bool, at_once: bool, runs: int
) -> AccessWindow:
    """The accesses around the middle of a trace that `runs` simulations may take."""
    size = min(count, max(LEAST, min(MOST, BUDGET * count // runs)))
    first = (count - size) // 2
    chunks, done = [], 0
    for chunk in read_trace(trace, device, single_channel):
        part = slice(max(first - done, 0), max(first + size - done, 0))
        chunks.append(TraceChunk(*(None if v is None else v[part] for v in chunk)))  # type: ignore[arg-type]
        done += len(chunk.address)
        if done >= first + size:
            break
    address, kind = (np.concatenate([chunk[i] for chunk in chunks]) for i in (0, 1))
    when = [chunk.arrival for chunk in chunks if chunk.arrival is not None]
    arrival = None if at_once or not when else np.concatenate(when)
    if arrival is not None:
        arrival = np.maximum(arrival - arrival[0], 0)
    return AccessWindow(TraceChunk(address, kind, arrival), first, count)


class Ladder:
    """Simulations of a case without sets of causes, each run once."""

    def __init__(self, case: WithoutCase) -> None:
        self.case = case
        self.names = [cause.name for cause in CAUSES if cause.remove(case) is not case]
        self._known: dict[frozenset[str], Ran] = {}

    def ran(self, gone: Sequence[str]) -> Ran:
        """The case without these causes."""
        key = frozenset(gone)
        if key not in self._known:
            self._known[key] = run(without(self.case, key))
        return self._known[key]

    def gbps(self, gone: Sequence[str]) -> float:
        """Its bandwidth."""
        return self.ran(gone).gbps

    def losses(self) -> dict[str, Any]:
        """Peak, what is achieved, and each cause's loss: `gbps` in the stated order, `first_gbps`
        where it alone is taken away, `last_gbps` where it goes after all others."""
        names, peak = self.names, self.case.memory.peak_gbps * self.case.channels
        achieved, ideal = self.gbps([]), self.gbps(names)
        words = {cause.name: cause.words for cause in CAUSES}
        causes = []
        for i, name in enumerate(names):
            others = [other for other in names if other != name]
            gained = self.gbps(names[: i + 1]) - self.gbps(names[:i])
            causes.append({
                "cause": name, "without": words[name], "gbps": gained, "share": gained / peak,
                "first_gbps": self.gbps([name]) - achieved,
                "last_gbps": ideal - self.gbps(others),
            })  # fmt: skip
        return {
            "peak_gbps": peak, "achieved_gbps": achieved, "gap_gbps": peak - achieved,
            "causes": causes, "not_explained_gbps": peak - ideal,
        }  # fmt: skip


def _load(ladder: Ladder, window: AccessWindow) -> dict[str, Any] | None:
    """How fast accesses arrive, and how fast they would be served if all had arrived; None for a
    trace without times."""
    case, arrival = ladder.case, window.chunk.arrival
    if arrival is None or not arrival.any():
        return None
    moved = (len(arrival) - 1) * case.memory.organisation.burst_bytes
    offered = moved / case.memory.tick_clock.ns_of_ticks(int(arrival.max()))
    at_once = ladder.gbps(["arrivals"])
    return {"offered_gbps": offered, "at_once_gbps": at_once, "limits": offered < at_once}


def _changes(
    device: Device, name: str, overrides: Sequence[str], single_channel: bool, window: AccessWindow,
    base: Ran, tried: list[list[str]],
) -> dict[str, Any]:  # fmt: skip
    """The changes that a user can make, best first, each with its gain and whether it ties with the
    best; the best together with others; and those that this memory cannot have."""
    refused: list[dict[str, Any]] = []
    lasted, seen = sum(base.part_ns), set[str]()

    def attempt(change: list[str]) -> Ran | None:
        """The simulation with a change; None where there is none, or another change is the same."""
        try:
            other = load_device(name, [*overrides, *change])
        except DescriptionError as error:
            refused.append({"set": change, "why": error.message})
            return None
        same = other.memory == device.memory and other.accelerator == device.accelerator
        if same or other.digest in seen:
            return None
        seen.add(other.digest)
        if lasted < _INTERVALS * _interval_ns(other) and _postpones(other) > _postpones(device):
            refused.append({"set": change, "why": f"lasts less than {_INTERVALS} tREFI"})
            return None
        return run(placed(other, window.chunk, single_channel))

    watched = Progress().through("changes")(tried, len(tried))
    ran = [(change, one) for change in watched if (one := attempt(change)) is not None]
    ran.sort(key=lambda each: -each[1].gbps)
    together = _together(ran, base, attempt)
    channels = 1 if single_channel else device.channels
    noisy = len(window.chunk.address) >= PARTS * _SHORTEST * channels

    def recorded(change: list[str], one: Ran) -> dict[str, Any]:
        gain, behind = (_gain(one, base), _gain(ran[0][1], one)) if noisy else (None, None)
        return {
            "set": change, "gbps": one.gbps, "gain": one.gbps / base.gbps - 1,
            "interval": None if gain is None else [gain.low, gain.high],
            "ties": behind is not None and behind.sign <= 0,
        }  # fmt: skip

    changes = [recorded(*each) for each in ran]
    helps = bool(changes) and changes[0]["gain"] > 0
    if helps and changes[0]["interval"] is not None:
        helps = changes[0]["interval"][0] > 0
    joined = [recorded(*each) for each in together]
    return {"helps": helps, "changes": changes, "together": joined, "refused": refused}


def _together(
    ran: list[tuple[list[str], Ran]], base: Ran, attempt: Callable[[list[str]], Ran | None]
) -> list[tuple[list[str], Ran]]:
    """The best change with the next ones that help and set something else, as long as each adds to
    what it joins; `_TOGETHER` are tried."""
    if not ran:
        return []
    best, found, left = ran[0], list[tuple[list[str], Ran]](), _TOGETHER
    for change, alone in ran[1:]:
        if not left or alone.gbps <= base.gbps:
            break
        if _paths(change) & _paths(best[0]):
            continue
        left -= 1
        joined = [*best[0], *change]
        one = attempt(joined)
        if one is not None and one.gbps > best[1].gbps:
            best = joined, one
            found.append(best)
    return found


def _paths(change: list[str]) -> set[str]:
    """What a change sets."""
    return {each.partition("=")[0] for each in change}


def _postpones(device: Device) -> int:
    return device.memory.controller.refresh_postpone


def _interval_ns(device: Device) -> float:
    return device.memory.tick_clock.ns_of_ticks(device.memory.refresh_ticks())


def _gain(one: Ran, other: Ran) -> Interval | None:
    """How much faster the parts are, paired; None where a part fits in the queues."""
    if min(*one.part_ns, *other.part_ns) <= 0:
        return None
    return relative_gap(other.part_ns, one.part_ns)
