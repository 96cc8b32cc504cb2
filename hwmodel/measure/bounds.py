"""Closed-form limits of a channel's bandwidth, and the a-posteriori bound of a finished run.

Reads only, n bursts an activation, banks and groups rotating, so that no bank or group is asked
twice too soon: the slowest of the data bus, each command bus, activations (tRRD, tFAW / 4) and
bank cycles wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.specs.commands import COLUMN_COMMANDS
from hwmodel.specs.memory_fields import DataSlots
from hwmodel.specs.memory_spec import MemorySpec, row_delay

BURSTS_PER_ROW = {
    "sequential": None,
    "random_1_burst": 1,
    "random_2_bursts": 2,
    "random_4_bursts": 4,
}
"""Bursts an activation of each pattern; None: whole rows."""
Counts = Any
"""How often: an int, or an array of ints."""


@dataclass(frozen=True)
class Bound:
    """The limit of one pattern, GB/s of the whole channel, and what binds."""

    pattern: str
    gbps: float
    fraction: float
    """Of the data-bus peak."""
    binding: list[str]
    limits_gbps: dict[str, float]


_WIDE = ("rank", "pseudochannel", "channel")
SAME_BANK = ("bank", "bankgroup", "stack", *_WIDE)
"""Scopes in which two commands to one bank meet."""


def activation_ticks(memory: MemorySpec) -> dict[str, Fraction]:
    """Ticks an activation costs by tRRD and by each window, in one pseudo-channel. Ranks have
    theirs side by side: a rule within a rank costs all of them as much less."""
    costs: dict[str, Fraction] = {}
    o = memory.organisation
    for row in memory.constraints:
        acts = memory.in_rows(row.after) & memory.in_rows(row.before)
        if row.scope in _WIDE and memory.reference("ACT") in acts:
            name = "tFAW" if row.window else "tRRD"
            ticks = Fraction(memory.ticks(row.delay) * o.pseudochannels, o.count(row.scope))
            costs[name] = max(ticks / (row.window or 1), costs.get(name, Fraction(0)))
    return costs


def bank_cycle(memory: MemorySpec, bursts: float) -> float:
    """Ticks until a bank can open its next row after `bursts` reads."""
    first = "ACT1" if memory.activate.steps == 2 else "ACT"
    cycle = row_delay(memory, "ACT", "ACT", SAME_BANK)
    reads = (bursts - 1) * row_delay(memory, "RD", "RD", SAME_BANK)
    through = (
        row_delay(memory, "ACT", "RD", SAME_BANK)
        + reads
        + row_delay(memory, "RD", "PRE", SAME_BANK)
        + row_delay(memory, "PRE", first, SAME_BANK)
        + (1 if memory.activate.reference == "ACT2" else 0)
    )
    return max(cycle, through)


def command_slots(memory: MemorySpec, bursts: int) -> dict[str, int]:
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
    """The closed-form limit of reads in `pattern`; refresh counts only as all-bank."""
    o = memory.organisation
    bursts = BURSTS_PER_ROW[pattern] or o.columns
    burst_ticks = beats(memory.data.read, memory)
    costs: dict[str, Fraction] = {"data bus": Fraction(bursts * burst_ticks)}
    for bus, ticks in command_slots(memory, bursts).items():
        costs[f"{bus} bus" if bus != "command" else "command bus"] = Fraction(ticks)
    costs |= activation_ticks(memory)
    banks = o.banks // o.pseudochannels
    costs["banks"] = Fraction(bank_cycle(memory, bursts)) / banks
    in_order = BURSTS_PER_ROW[pattern] is None
    shares = {
        name: 1 - refresh_share(memory, in_order, shared=name.endswith(" bus")) for name in costs
    }
    peak = memory.peak_gbps
    limits = {
        name: float(peak * bursts * burst_ticks / ticks * shares[name])
        for name, ticks in costs.items()
        if ticks
    }
    best = min(limits.values())
    binding = [name for name, value in limits.items() if value < best * (1 + 1e-9)]
    if any(shares[name] < 1 for name in binding):
        binding.append("all-bank refresh")
    return Bound(pattern, best, best / peak, binding, limits)


def refresh_share(memory: MemorySpec, data_bound: bool, shared: bool = False) -> Fraction:
    """Share of time that all-bank refresh takes: (tRTP + tRPab + tRFCab + tRCD, less the last read)
    / tREFI of a data bus that never rests; of activations surely only tRPab + tRFCab, for their
    reads fill the rest. Refreshes that are postponed may come at once and share all but their
    tRFCab. A bus that is `shared` by several ranks rests for no more than tRFCab, as they begin a
    little apart, and need not rest where they may postpone them."""
    c = memory.controller
    if c.refresh != "all_bank":
        return Fraction(0)
    scopes: tuple[str, ...] = _WIDE
    ranks = shared and memory.organisation.ranks > 1
    if ranks and c.refresh_postpone:
        scopes = tuple(each for each in _WIDE if each != "rank")
    first = memory.activate_command
    takes = row_delay(memory, "REFAB", first, scopes)
    if not takes or ranks:
        return Fraction(takes, memory.refresh_ticks())
    around = row_delay(memory, "PREA", "REFAB", _WIDE)
    if data_bound:
        around += row_delay(memory, "RD", "PREA", _WIDE)
        around += row_delay(memory, "ACT", "RD", SAME_BANK) - beats(memory.data.read, memory)
    lost = takes + Fraction(around, c.refresh_postpone + 1)
    return lost / memory.refresh_ticks()


def bounds(memory: MemorySpec) -> dict[str, Bound]:
    """The closed-form limit of every pattern."""
    return {pattern: read_bound(memory, pattern) for pattern in BURSTS_PER_ROW}


def least_cycles(
    memory: MemorySpec, commands: Mapping[str, Counts], bank_commands: Counts | None = None
) -> tuple[float, str]:
    """(clocks, what binds): no legal run with these command counts is shorter, from tick 0 to the
    end of its data.

    `commands`: of one channel, or of several at once, (channels,) each. `bank_commands` (banks, 4)
    or (channels, banks, 4): activations, reads, writes and masked writes of every flat bank;
    without it they are taken to be spread evenly. The largest of DQ beats of a pseudo-channel,
    command slots, every rule between commands of a kind (n - 1 of them apart, n / N - 1 windows of
    N: tRRD, tFAW, tCCD) in the instance of its scope that had most of them, and the cycles of the
    busiest bank.
    """
    o = memory.organisation
    if bank_commands is None:
        kinds = (("ACT", "ACT2"), ("RD", "RDA"), ("WR", "WRA"), ("MWR", "MWRA"))
        totals = [sum(np.asarray(commands.get(name, 0)) for name in names) for names in kinds]
        bank_commands = np.repeat(
            np.stack(totals, -1)[..., None, :] / o.bank_numbers, o.bank_numbers, -2
        )
    limits = _bus_limits(memory, commands)
    read, write = beats(memory.data.read, memory), beats(memory.data.write, memory)
    data = np.array([0, read, write, write])
    limits["data bus"] = float((_each(memory, bank_commands, "pseudochannel") @ data).max())
    for name, limit in _row_limits(memory, bank_commands):
        limits[name] = max(limit, limits.get(name, 0.0))
    limits["banks"] = max(limits["banks"], _bank_limit(memory, bank_commands))
    binding = max(limits, key=lambda name: limits[name])
    return limits[binding] / memory.clock.ticks_per_ck, binding


def beats(slots: DataSlots, memory: MemorySpec) -> int:
    """Ticks of DQ that one burst fills."""
    return sum(memory.ticks(b) - memory.ticks(a) for a, b in slots.segments)


def _each(memory: MemorySpec, bank_commands: Counts, level: str) -> NDArray[np.float64]:
    """Counts (instances, 4) in every instance of a level, of all channels."""
    instances = bank_commands.size // (4 * memory.organisation.bank_numbers)
    shape = (instances * memory.organisation.count(level), -1, 4)
    return bank_commands.reshape(shape).sum(axis=1, dtype=np.float64)


def _bus_limits(memory: MemorySpec, commands: Mapping[str, Counts]) -> dict[str, float]:
    """Ticks that commands occupy each bus; evenly, where every pseudo-channel has its own."""
    used: dict[str, Any] = {}
    for name, command in memory.commands.items():
        shared = memory.buses[command.bus].scope == "channel"
        ticks = memory.tick_clock.ticks(Fraction(str(command.slots)))
        buses = 1 if shared else memory.organisation.pseudochannels
        slots = np.asarray(commands.get(name, 0)) * ticks / buses
        used[f"{command.bus} bus"] = used.get(f"{command.bus} bus", 0) + slots
    return {name: float(np.max(ticks)) for name, ticks in used.items()}


def _row_limits(memory: MemorySpec, bank_commands: Counts) -> Iterator[tuple[str, float]]:
    """(name, ticks) of every rule between two commands of a kind."""
    of = {
        "ACT": np.array([1, 0, 0, 0]),
        "ACT1": np.array([1, 0, 0, 0]),
        "ACT2": np.array([1, 0, 0, 0]),
        "RD": np.array([0, 1, 0, 0]),
        "WR": np.array([0, 0, 1, 1]),
        "RD WR": np.array([0, 1, 1, 1]),
        "MWR": np.array([0, 0, 0, 1]),
    }
    yield "banks", 0.0
    for row in memory.constraints:
        if row.scope.startswith("other_"):
            continue
        both = memory.in_rows(row.after) & memory.in_rows(row.before)
        for kind, counted in of.items():
            wanted = {name + auto for name in kind.split() for auto in ("", "A")}
            wanted &= set(memory.commands)
            if not wanted or not wanted <= both:
                continue
            most = float((_each(memory, bank_commands, row.scope) @ counted).max())
            apart = most / row.window - 1 if row.window else most - 1
            act = kind.startswith("ACT")
            name = ("tFAW" if row.window else "tRRD") if act else "tCCD"
            yield "banks" if act and row.scope == "bank" else name, apart * memory.ticks(row.delay)


def _bank_limit(memory: MemorySpec, bank_commands: Counts) -> float:
    """Ticks that the busiest bank needs: an activation, its column commands, and to the next one.

    A activations with K column commands take (A - 1) b + (K - 1) c at least: c ticks from one
    column command to the next, and b = min(tRC, tRCD - c + the way from the last column command to
    the next activation), for one that no column command followed still took tRC.
    """
    columns = [name for name in COLUMN_COMMANDS if name in memory.commands]
    plain = [name for name in columns if not name.endswith("A")]
    c = min(row_delay(memory, a, b, SAME_BANK) for a in plain for b in columns)
    first = min(row_delay(memory, "ACT", name, SAME_BANK) for name in columns)
    closing = [name for name in ("PRE", "PREA") if name in memory.commands]
    again = [
        row_delay(memory, name, close, SAME_BANK) + _reopening(memory, close)
        for name in plain
        for close in closing
    ]
    again += [_reopening(memory, name) for name in columns if name not in plain]
    b = min(row_delay(memory, "ACT", "ACT", SAME_BANK), first - c + min(again))
    counts = _each(memory, bank_commands, "bank")
    activations, used = counts[:, 0], counts[:, 1:].sum(axis=1)
    return float(((activations - 1) * b + (used - 1) * c).max())


def _reopening(memory: MemorySpec, close: str) -> int:
    """Ticks from the command that closes a row to the (reference step of the) next activation."""
    steps = (memory.activate_command, "ACT")
    return max(row_delay(memory, close, step, SAME_BANK) for step in steps)
