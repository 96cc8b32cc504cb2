"""Closed-form limits of a channel's bandwidth, and the a-posteriori bound of a finished run.

Reads only, n bursts an activation, banks and groups rotating, so that no bank or group is asked
twice too soon: the slowest of the data bus, each command bus, activations (tRRD, tFAW / 4) and
bank cycles wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from hwmodel.memory_spec import MemorySpec

PATTERNS = {"sequential": None, "random_1_burst": 1, "random_2_bursts": 2, "random_4_bursts": 4}
"""Bursts an activation of each pattern; None: whole rows."""


@dataclass(frozen=True)
class Bound:
    """The limit of one pattern, GB/s of the whole channel, and what binds."""

    pattern: str
    gbps: float
    fraction: float
    """Of the data-bus peak."""
    binding: list[str]
    limits_gbps: dict[str, float]


def row_delay(
    memory: MemorySpec, after: str, before: str, scopes: tuple[str, ...], window: int | None = None
) -> int:
    """The longest delay in ticks from `after` to `before` over rows in `scopes`, or 0."""
    a, b = memory.reference(after), memory.reference(before)
    delays = [
        memory.ticks(row.delay)
        for row in memory.constraints
        if row.scope in scopes
        and (row.window == window or (window == -1 and row.window is not None))
        and a in [memory.reference(c) for c in row.after]
        and b in [memory.reference(c) for c in row.before]
    ]
    return max(delays, default=0)


_WIDE = ("rank", "pseudochannel", "channel")


def _activation_ticks(memory: MemorySpec) -> dict[str, Fraction]:
    """Ticks an activation costs by tRRD and by each window, in one pseudo-channel."""
    costs = {"tRRD": Fraction(row_delay(memory, "ACT", "ACT", _WIDE))}
    for row in memory.constraints:
        if row.window and "ACT" in (*row.after, memory.reference("ACT")) and row.scope in _WIDE:
            costs["tFAW"] = Fraction(memory.ticks(row.delay), row.window)
    return costs


def _bank_cycle(memory: MemorySpec, bursts: int) -> int:
    """Ticks until a bank can open its next row after `bursts` reads."""
    same = ("bank", "bankgroup", *_WIDE)
    first = "ACT1" if memory.activate.steps == 2 else "ACT"
    cycle = row_delay(memory, "ACT", "ACT", same)
    reads = (bursts - 1) * row_delay(memory, "RD", "RD", same)
    through = (
        row_delay(memory, "ACT", "RD", same)
        + reads
        + row_delay(memory, "RD", "PRE", same)
        + row_delay(memory, "PRE", first, same)
        + (1 if memory.activate.reference == "ACT2" else 0)
    )
    return max(cycle, through)


def _slots(memory: MemorySpec, bursts: int) -> dict[str, int]:
    """Ticks of each command bus for one activation with `bursts` reads, the last with
    auto-precharge."""
    steps = ["ACT1", "ACT2"] if memory.activate.steps == 2 else ["ACT"]
    used: dict[str, int] = {}
    auto = "RDA" in memory.commands
    for name in [*steps, *["RD"] * bursts, *([] if auto else ["PRE"])]:
        command = memory.commands[name]
        shared = memory.buses[command.bus].scope == "channel"
        ticks = memory.tick_clock.ticks(Fraction(str(command.slots)))
        used[command.bus] = used.get(command.bus, 0) + ticks * (
            memory.organisation.pseudochannels if shared else 1
        )
    return used


def read_bound(memory: MemorySpec, pattern: str) -> Bound:
    """The closed-form limit of reads in `pattern`; refresh counts only as all-bank, never
    postponed."""
    o = memory.organisation
    bursts = PATTERNS[pattern] or o.columns
    burst_ticks = sum(memory.ticks(b) - memory.ticks(a) for a, b in memory.data.read.segments)
    costs: dict[str, Fraction] = {"data bus": Fraction(bursts * burst_ticks)}
    for bus, ticks in _slots(memory, bursts).items():
        costs[f"{bus} bus" if bus != "command" else "command bus"] = Fraction(ticks)
    costs |= _activation_ticks(memory)
    banks = o.banks // o.pseudochannels
    costs["banks"] = Fraction(_bank_cycle(memory, bursts), banks)
    share = Fraction(1)
    if memory.controller.refresh == "all_bank":
        share = 1 - _refresh_share(memory, data_bound=PATTERNS[pattern] is None)
    peak = memory.peak_gbps
    limits = {
        name: float(peak * bursts * burst_ticks / ticks * share)
        for name, ticks in costs.items()
        if ticks
    }
    best = min(limits.values())
    binding = [name for name, value in limits.items() if value < best * (1 + 1e-9)]
    if share < 1:
        binding.append("all-bank refresh")
    return Bound(pattern, best, best / peak, binding, limits)


def _refresh_share(memory: MemorySpec, data_bound: bool) -> Fraction:
    """Share of time that all-bank refresh takes: (tRTP + tRPab + tRFCab + tRCD) / tREFI of a data
    bus that never rests; of activations surely only tRPab + tRFCab, for their reads fill the
    rest."""
    first = "ACT1" if memory.activate.steps == 2 else "ACT"
    assert memory.refresh.all_bank is not None
    lost = row_delay(memory, "PREA", "REFAB", _WIDE) + row_delay(memory, "REFAB", first, _WIDE)
    if data_bound:
        lost += row_delay(memory, "RD", "PREA", _WIDE)
        lost += row_delay(memory, "ACT", "RD", ("bank", "bankgroup", *_WIDE))
    return Fraction(lost, memory.ticks(memory.refresh.all_bank.interval))


def bounds(memory: MemorySpec) -> dict[str, Bound]:
    """The closed-form limit of every pattern."""
    return {pattern: read_bound(memory, pattern) for pattern in PATTERNS}


def least_cycles(memory: MemorySpec, commands: Mapping[str, int]) -> tuple[float, str]:
    """(clocks, what binds): no legal run of one channel with these command counts is shorter.

    The largest of DQ beats, command slots, ACTs x tRRD, ACTs x tFAW / N and average bank cycles.
    """
    o, clock = memory.organisation, memory.tick_clock
    pcs = o.pseudochannels
    read = sum(memory.ticks(b) - memory.ticks(a) for a, b in memory.data.read.segments)
    write = sum(memory.ticks(b) - memory.ticks(a) for a, b in memory.data.write.segments)
    reads = commands.get("RD", 0) + commands.get("RDA", 0)
    writes = commands.get("WR", 0) + commands.get("WRA", 0)
    activations = commands.get("ACT", 0) + commands.get("ACT2", 0)
    limits = {"data bus": (reads * read + writes * write) / pcs}
    for name, command in memory.commands.items():
        bus = memory.buses[command.bus]
        ticks = commands.get(name, 0) * clock.ticks(Fraction(str(command.slots)))
        key = f"{command.bus} bus"
        limits[key] = limits.get(key, 0) + ticks / (1 if bus.scope == "channel" else pcs)
    ranks = pcs * o.ranks
    for rule, cost in _activation_ticks(memory).items():
        limits[rule] = max(0.0, activations / ranks - 4) * float(cost)
    same = ("bank", "bankgroup", *_WIDE)
    limits["banks"] = max(0.0, activations / o.banks - 1) * row_delay(memory, "ACT", "ACT", same)
    binding = max(limits, key=lambda name: limits[name])
    return limits[binding] / memory.clock.ticks_per_ck, binding
