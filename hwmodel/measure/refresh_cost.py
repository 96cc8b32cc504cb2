"""What each way of refreshing costs a memory's bandwidth: policies, orders, postponing; and what
refresh management and alerts add to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.address import decode
from hwmodel.measure.grid import Changes, Streams, changed, reads, served, shares
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.stream import bursts, random_starts
from hwmodel.specs.memory_spec import MemorySpec, row_delay

BYTES = 8 << 20
"""Simulated for each figure: some hundred refresh intervals."""
POSTPONE = (0, 4, 8)
_SEED = 20250704
_EXTENTS: dict[str, int | None] = {
    "sequential": None,
    "random 1KiB": 1024,
    "random 512B": 512,
    "random burst": 0,
}


@dataclass(frozen=True)
class RefreshChoice:
    """One way to refresh; see rules.md."""

    refresh: Literal["none", "all_bank", "per_bank"]
    order: Literal["round_robin", "idle_first"] = "round_robin"
    postpone: int = 0

    @property
    def changes(self) -> Changes:
        """Of the controller."""
        return {"refresh": self.refresh, "refresh_order": self.order,
                "refresh_postpone": self.postpone}  # fmt: skip


@dataclass(frozen=True)
class RefreshCost:
    """What a choice did to one pattern, on one channel."""

    pattern: str
    choice: RefreshChoice
    gbps: float
    relative: float
    """Of the bandwidth without refresh."""
    refreshing: float
    """Share of its time that a bank was in refresh."""
    conflicts_per_refresh: float
    """Row misses and conflicts more than without refresh, for each refresh command."""


def choices(memory: MemorySpec) -> list[RefreshChoice]:
    """Every combination that the memory has commands for, `none` first."""
    every = [RefreshChoice("none")]
    if memory.refresh.all_bank:
        every += [RefreshChoice("all_bank", postpone=n) for n in POSTPONE]
    if memory.refresh.per_bank:
        for order in ("round_robin", "idle_first"):
            every += [RefreshChoice("per_bank", order, n) for n in POSTPONE]
    return every


def refresh_table(memory: MemorySpec, size: int = BYTES) -> list[RefreshCost]:
    """Reads of `size` bytes in each pattern under each choice; patterns in blocks, `none` first."""
    every = choices(memory)
    streams = {name: (memory, _addresses(memory, e, size)) for name, e in _EXTENTS.items()}
    return [
        _cost(pattern, choice, run, runs[0])
        for pattern, runs in reads(streams, [choice.changes for choice in every]).items()
        for choice, run in zip(every, runs, strict=True)
    ]


def bandwidth(memory: MemorySpec, choice: RefreshChoice, extent: int | None, size: int) -> float:
    """Data that reads of `size` bytes bring in a tick, in order (None) or in extents at random
    places; bytes of checks are none."""
    run = served(changed(memory, choice.changes), _addresses(memory, extent, size))
    return (run.total("requests") - run.checks) / run.end_tick


def _addresses(memory: MemorySpec, extent: int | None, size: int) -> NDArray[np.int64]:
    o = memory.organisation
    if extent is None:
        return np.arange(0, size, o.burst_bytes, dtype=np.int64) % o.capacity_bytes
    extent = max(extent, o.burst_bytes)
    rng = np.random.Generator(np.random.PCG64([_SEED, extent]))
    start = random_starts(rng, size // extent, extent, o.capacity_bytes)
    return bursts(start, extent, o.burst_bytes)


def _cost(pattern: str, choice: RefreshChoice, run: OpenLoop, base: OpenLoop) -> RefreshCost:
    memory = run.memory
    end = run.end_tick
    o = memory.organisation
    refreshes = run.commands.get("REFAB", 0) + run.commands.get("REFPB", 0)
    command = "REFAB" if choice.refresh == "all_bank" else "REFPB"
    lasts = max(
        (memory.ticks(row.delay) for row in memory.constraints
         if command in row.after and memory.activate_command in row.before
         and (command == "REFAB" or row.scope == "bank")),
        default=0,
    )  # fmt: skip
    units = o.pseudochannels * o.ranks * memory.refreshes_per_round
    reopened = run.total("misses") + run.total("conflicts")
    before = base.total("misses") + base.total("conflicts")
    return RefreshCost(
        pattern,
        choice,
        run.requested_bytes / memory.tick_clock.ns_of_ticks(end),
        base.end_tick / end,
        refreshes * lasts / (units * end),
        (reopened - before) / refreshes if refreshes else 0.0,
    )


def worst_case(memory: MemorySpec) -> float:
    """Closed form: share of a bank's activations that RFMs leave it, one after the other as fast as
    tRC allows and refreshed as the controller says (docs/dram.md). Without refresh it is
    that of JEDEC, n tRC / (n tRC + tRFM) for n = RAAIMT x RAADEC."""
    limits = memory.refresh.management
    assert limits is not None
    first, scopes = memory.activate_command, ("bank",)
    cycle = row_delay(memory, "ACT", "ACT", scopes)
    rfm = max(row_delay(memory, name, first, scopes) for name in ("RFM", "REFPB"))
    each, refreshes = limits.lowers(limits.RAADEC), memory.refresh_ticks()
    if not refreshes:
        return each * cycle / (each * cycle + rfm)
    kind = "REFPB" if memory.controller.refresh == "per_bank" else "REFAB"
    left = refreshes - row_delay(memory, kind, first, ("bank", "rank", "pseudochannel"))
    taken = limits.lowers(limits.RAAREF) if limits.RAAREF else 0  # by the refresh itself
    activations = (left + taken / each * rfm) / (cycle + rfm / each)
    return min(1.0, activations * cycle / left)


def hammered(memory: MemorySpec) -> tuple[int, int]:
    """Addresses of two rows of one bank."""
    size = memory.organisation.capacity_bytes
    steps = size >> np.arange(1, 40)
    bank, row, _ = decode(memory, np.append(0, steps))
    return 0, int(steps[(bank[1:] == bank[0]) & (row[1:] > 0)][0])


def management_cost(memory: MemorySpec, size: int = BYTES) -> dict[str, dict[str, float]]:
    """By stream, the bandwidth that refresh leaves of what there is without it (`refresh`), and
    what RFMs leave of that (`rfm`). The last stream opens two rows of a bank in turn, one request
    at a time."""
    kept = RefreshChoice(memory.controller.refresh).changes
    variants = [RefreshChoice("none").changes, kept, {**kept, "refresh_management": "rfm"}]
    return {
        name: dict(zip(("refresh", "rfm"), shares(runs), strict=True))
        for name, runs in reads(_streams(memory, size), variants).items()
    }


def counting_cost(plain: MemorySpec, counting: MemorySpec, size: int = BYTES) -> dict[str, float]:
    """What the times of per-row activation counting leave of the bandwidth, by the streams of
    `management_cost`. One memory is the other with these times."""
    runs = [
        reads(_streams(each, size), [RefreshChoice(each.controller.refresh).changes])
        for each in (plain, counting)
    ]
    return {name: shares([*runs[0][name], *runs[1][name]])[0] for name in runs[0]}


def alert_cost(memory: MemorySpec, size: int = BYTES) -> dict[str, dict[str, float]]:
    """By the streams of `management_cost`, and of 256 KiB read in order again and again (`again`):
    what alerts and back-offs leave of the bandwidth (`share`), and how many there were
    (`alerts`)."""
    streams = dict(_streams(memory, size))
    again = _addresses(memory, None, 256 << 10)
    streams["again"] = memory, np.resize(again, 600 * len(again))
    kept = RefreshChoice(memory.controller.refresh).changes
    counted = [{**kept, "row_counting": counting} for counting in ("none", "prac")]
    return {
        name: {"share": shares(runs)[0], "alerts": float(runs[1].total("alerts"))}
        for name, runs in reads(streams, counted).items()
    }


def alert_worst_case(memory: MemorySpec) -> float:
    """Closed form: share of a bank's activations that back-offs leave it, where two rows take turns
    one request at a time, without refresh. Both reach the threshold N in 2 N - 1 activations, some
    more follow while the controller reacts, and the back-off resets both."""
    alerts, first, scopes = memory.refresh.alerts, memory.activate_command, ("bank",)
    assert alerts is not None
    opened, read, closed = (
        row_delay(memory, *pair, scopes) for pair in ((first, "RD"), ("RD", "PRE"), ("PRE", first))
    )
    read = max(read, row_delay(memory, first, "PRE", scopes) - opened)
    cycle = max(row_delay(memory, first, first, scopes), opened + read + closed)
    more = -(-(memory.ticks(alerts.react) - closed) // cycle)
    every = 2 * alerts.threshold - 1 + max(0, more)
    rfm = max(row_delay(memory, "RFMAB", name, ("rank",)) for name in ("RFMAB", first))
    return every * cycle / (every * cycle + alerts.rfms * rfm)


def _streams(memory: MemorySpec, size: int) -> Streams:
    """(the memory, the addresses read) in order, at random, and of two rows of a bank in turn, one
    request at a time."""
    pair = np.resize(np.array(hammered(memory), np.int64), size // memory.organisation.burst_bytes)
    return {
        "in order": (memory, _addresses(memory, None, size)),
        "64 B": (memory, _addresses(memory, 64, size // 4)),
        "row pair": (changed(memory, {"read_queue": 1}), pair[: len(pair) // 16]),
    }
