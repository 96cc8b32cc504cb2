"""What each way of refreshing costs a memory's bandwidth: policies, orders, postponing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.stream import bursts, random_starts
from hwmodel.specs.memory_spec import MemorySpec

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
class Choice:
    """One way to refresh; see docs/scheduling.md."""

    refresh: Literal["none", "all_bank", "per_bank"]
    order: Literal["round_robin", "idle_first"] = "round_robin"
    postpone: int = 0


@dataclass(frozen=True)
class Cost:
    """What a choice did to one pattern, on one channel."""

    pattern: str
    choice: Choice
    gbps: float
    relative: float
    """Of the bandwidth without refresh."""
    refreshing: float
    """Share of its time that a bank was in refresh."""
    conflicts_per_refresh: float
    """Row misses and conflicts more than without refresh, for each refresh command."""


def choices(memory: MemorySpec) -> list[Choice]:
    """Every combination that the memory has commands for, `none` first."""
    every = [Choice("none")]
    if memory.refresh.all_bank:
        every += [Choice("all_bank", postpone=n) for n in POSTPONE]
    if memory.refresh.per_bank:
        for order in ("round_robin", "idle_first"):
            every += [Choice("per_bank", order, n) for n in POSTPONE]
    return every


def refresh_table(memory: MemorySpec, size: int = BYTES) -> list[Cost]:
    """Reads of `size` bytes in each pattern under each choice; patterns in blocks, `none` first."""
    costs: list[Cost] = []
    for pattern, extent in _EXTENTS.items():
        address = _addresses(memory, extent, size)
        base: OpenLoop | None = None
        for choice in choices(memory):
            run = _reads(memory, choice, address)
            base = base or run
            costs.append(_cost(pattern, choice, run, base))
    return costs


def _addresses(memory: MemorySpec, extent: int | None, size: int) -> NDArray[np.int64]:
    o = memory.organisation
    if extent is None:
        return np.arange(0, size, o.burst_bytes, dtype=np.int64) % o.capacity_bytes
    extent = max(extent, o.burst_bytes)
    rng = np.random.Generator(np.random.PCG64([_SEED, extent]))
    start = random_starts(rng, size // extent, extent, o.capacity_bytes)
    return bursts(start, extent, o.burst_bytes)


def _reads(memory: MemorySpec, choice: Choice, address: NDArray[np.int64]) -> OpenLoop:
    changes = {
        "refresh": choice.refresh,
        "refresh_order": choice.order,
        "refresh_postpone": choice.postpone,
    }
    controller = memory.controller.model_copy(update=changes)
    run = OpenLoop(memory.model_copy(update={"controller": controller}))
    run.feed(0, address, np.zeros(len(address), np.int64))
    run.finish()
    return run


def _cost(pattern: str, choice: Choice, run: OpenLoop, base: OpenLoop) -> Cost:
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
    return Cost(
        pattern,
        choice,
        run.total("bytes") / memory.tick_clock.ns_of_ticks(end),
        base.end_tick / end,
        refreshes * lasts / (units * end),
        (reopened - before) / refreshes if refreshes else 0.0,
    )
