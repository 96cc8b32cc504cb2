"""Lowering of a memory description to the integer arrays that the channel kernel reads.

Scopes with the same instances fall together into one level; every instance of a level is a *node*.
A command to a bank concerns one node a level: `ancestors[bank, level]`. Issuing a command
max-merges its rules (level, next command, delay) into the nodes' earliest ticks.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hwmodel.specs.commands import COLUMN_COMMANDS, COMMANDS, LEVELS, MAX_WINDOWS
from hwmodel.specs.memory_spec import MemorySpec

Int = NDArray[np.int64]
NEVER = -(1 << 60)
"""An instant before every other."""
N_COMMANDS = len(COMMANDS)

FRFCFS, OLDEST_READY, FCFS = 0, 1, 2
REFRESH_NONE, REFRESH_ALL_BANK, REFRESH_PER_BANK = 0, 1, 2
PAGE_OPEN, PAGE_CLOSED, PAGE_TIMEOUT, PAGE_ADAPTIVE = 0, 1, 2, 3

MAX_BANKS, MAX_PCS, MAX_RANKS, MAX_LEVELS, MAX_NODES = 128, 2, 16, 6, 320
LOW_BITS = 8
MAX_RULES = MAX_LEVELS * N_COMMANDS
MAX_SEGMENTS, MAX_FIELDS, MAX_HASHES = 4, 24, 8

_SCALARS = [
    "banks",
    "pcs",
    "ranks",
    "banks_per_pc",
    "banks_per_rank",
    "levels",
    "first",
    "steps",
    "lazy",
    "max_gap",
    "drain_high",
    "drain_low",
    "scheduler",
    "page_policy",
    "page_timeout",
    "queue_per_bank",
    "shared_queue",
    "forwarding",
    "read_modify_write",
    "hit_limit",
    "activation_buffer",
    "refresh",
    "refresh_interval",
    "refresh_sets",
    "idle_first",
    "patience",
    "set_size",
    "sync",
    "check_dq",
    "burst_bytes",
    "windows",
    "one_bus",
    "n_fields",
    "shared_level",
    "n_hashes",
]

# What the channel kernel reads and never writes; times in ticks. One record, so that it passes
# as one pointer.
CONSTANTS = np.dtype(
    [(name, np.int64) for name in _SCALARS]
    + [
        ("queue", np.int64, (2,)),  # read and write queue entries a pseudo-channel
        ("data_end", np.int64, (2,)),  # from a read or write to the end of its data
        # of each issued command: level, next command, delay
        ("rules", np.int64, (N_COMMANDS, MAX_RULES, 3)),
        ("n_rules", np.int64, (N_COMMANDS,)),
        # the same for every other node of the level in the same parent
        ("sibling_rules", np.int64, (N_COMMANDS, MAX_RULES, 3)),
        ("n_sibling_rules", np.int64, (N_COMMANDS,)),
        ("pc_of", np.int64, (MAX_BANKS,)),  # pseudo-channel of a bank
        ("rank_of", np.int64, (MAX_BANKS,)),  # rank of a bank, flat over pseudo-channels
        ("ancestors", np.int64, (MAX_BANKS, MAX_LEVELS)),  # node of each bank at each level
        ("sibling_range", np.int64, (MAX_NODES, 2)),  # the nodes [from, to) of a node's parent
        ("level_start", np.int64, (MAX_LEVELS,)),  # first node of a level
        ("rank_level", np.int64, (MAX_LEVELS,)),  # 1 where the level contains whole ranks
        ("bus", np.int64, (MAX_PCS, N_COMMANDS)),  # bus of a command in a pseudo-channel
        ("slots", np.int64, (N_COMMANDS,)),  # ticks a command holds its bus
        ("segments", np.int64, (2, MAX_SEGMENTS, 2)),  # DQ of reads, writes; latency included
        ("hold", np.int64, (3,)),  # data clock runs on after CAS, a read, a write
        ("sets", np.int64, (MAX_BANKS, MAX_BANKS)),  # banks (in a rank) refreshed together
        ("window", np.int64, (MAX_WINDOWS, 5)),  # level, N, delay, counted, waiting (bit masks)
        ("fields", np.int64, (MAX_FIELDS, 4)),  # right shift, mask, left shift, destination
        ("low", np.int64, (1 << LOW_BITS, 3)),  # column, bank, row of the lowest burst bits
        ("hashes", np.int64, (MAX_HASHES, 3)),  # row bit, mask, left shift into the flat bank
    ]
)


def _levels(memory: MemorySpec) -> list[str]:
    """Levels that have rows, one for each distinct number of instances, bank first."""
    used = {row.scope.removeprefix("other_") for row in memory.constraints} | {"bank"}
    chosen: dict[int, str] = {}
    for level in reversed(LEVELS):
        if level in used:
            chosen.setdefault(memory.organisation.count(level), level)
    return [chosen[count] for count in sorted(chosen, reverse=True)]


def _delays(memory: MemorySpec, levels: list[str]) -> tuple[Int, Int]:
    shape = (len(levels), N_COMMANDS, N_COMMANDS)
    own, sibling = np.full(shape, NEVER, np.int64), np.full(shape, NEVER, np.int64)
    counts = [memory.organisation.count(level) for level in levels]
    for row in memory.constraints:
        if row.window is not None:
            continue
        other = row.scope.startswith("other_")
        if other and getattr(memory.organisation, row.scope.removeprefix("other_") + "s") == 1:
            continue
        level = counts.index(memory.organisation.count(row.scope.removeprefix("other_")))
        table = sibling if other else own
        ticks = memory.ticks(row.delay)
        for after in row.after:
            for before in row.before:
                a = COMMANDS.index(memory.reference(after))
                b = COMMANDS.index(memory.reference(before))
                table[level, a, b] = max(table[level, a, b], ticks)
    return own, sibling


def _nodes(memory: MemorySpec, levels: list[str]) -> tuple[Int, Int]:
    """Nodes of each bank, and the range of siblings of each node."""
    o = memory.organisation
    counts = [o.count(level) for level in levels]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ancestors = np.empty((o.banks, len(levels)), np.int64)
    for i, count in enumerate(counts):
        ancestors[:, i] = offsets[i] + np.arange(o.banks) // (o.banks // count)
    ranges = np.empty((int(offsets[-1]), 2), np.int64)
    every = {o.count(level) for level in LEVELS}
    for i in range(len(levels)):
        parents = max((count for count in every if count < counts[i]), default=counts[i])
        siblings = counts[i] // parents
        index = np.arange(counts[i])
        ranges[offsets[i] : offsets[i + 1], 0] = offsets[i] + index // siblings * siblings
        ranges[offsets[i] : offsets[i + 1], 1] = offsets[i] + (index // siblings + 1) * siblings
    return ancestors, ranges


def _segments(memory: MemorySpec) -> Int:
    result = np.full((2, MAX_SEGMENTS, 2), NEVER, np.int64)
    for kind, slots in enumerate((memory.data.read, memory.data.write)):
        latency = memory.ticks(slots.latency)
        for i, (start, stop) in enumerate(slots.segments):
            result[kind, i] = latency + memory.ticks(start), latency + memory.ticks(stop)
    return result


def _dq_can_collide(memory: MemorySpec, segments: Int) -> bool:
    """Whether rows of the pseudo-channel leave room for two bursts to overlap on DQ."""
    spans = [{t for a, b in kind if a != NEVER for t in range(int(a), int(b))} for kind in segments]
    wide = [
        row
        for row in memory.constraints
        if row.window is None
        and memory.organisation.count(row.scope.removeprefix("other_"))
        <= memory.organisation.pseudochannels
        and not row.scope.startswith("other_")
    ]
    for first in COLUMN_COMMANDS:
        for then in COLUMN_COMMANDS:
            gap = max(
                (memory.ticks(r.delay) for r in wide if first in r.after and then in r.before),
                default=1,
            )
            a, b = spans[first.startswith("WR")], spans[then.startswith("WR")]
            for shift in range(max(gap, 0), max(a) - min(b) + 1):
                if any(t + shift in a for t in b):
                    return True
    return False


def _windows(memory: MemorySpec, levels: list[str]) -> list[list[int]]:
    counts = [memory.organisation.count(level) for level in levels]
    rows = []
    for row in memory.constraints:
        if row.window is not None:
            level = counts.index(memory.organisation.count(row.scope))
            masks = [
                sum(1 << COMMANDS.index(memory.reference(c)) for c in set(commands))
                for commands in (row.after, row.before)
            ]
            rows.append([level, row.window, memory.ticks(row.delay), *masks])
    return rows


def _address_fields(memory: MemorySpec) -> tuple[list[list[int]], list[list[int]]]:
    """Bit moves from a burst index to (column, flat bank, row), and the XOR hashes."""
    bits = memory.field_bits()
    place, at = {}, 0
    for name in ("bank", "bankgroup", "stack", "rank", "pseudochannel"):
        place[name] = at
        at += bits[name]
    taken = dict.fromkeys(bits, 0)
    fields, shift = [], 0
    for name, width in memory.resolved_address_map():
        destination = {"column": 0, "row": 2}.get(name, 1)
        left = taken[name] + (place[name] if destination == 1 else 0)
        fields.append([shift, (1 << width) - 1, left, destination])
        taken[name] += width
        shift += width
    hashes = [[h.row_bit, (1 << bits[h.field]) - 1, place[h.field]] for h in memory.bank_hash]
    return fields, hashes


_lowered: dict[int, tuple[MemorySpec, NDArray[np.void]]] = {}
"""The last memories that were lowered, by identity; each kept alive with its record."""
_MOST_LOWERED = 64


def lower(memory: MemorySpec) -> NDArray[np.void]:
    """`memory` as one CONSTANTS record, shape (1,), which nobody changes. Raises nothing: the spec
    has been checked. Kept for the last memories: a probe would spend milliseconds on it."""
    known = _lowered.get(id(memory))
    if known is None:
        if len(_lowered) >= _MOST_LOWERED:
            _lowered.pop(next(iter(_lowered)))
        known = _lowered[id(memory)] = memory, _lower(memory)
    return known[1]


def _lower(memory: MemorySpec) -> NDArray[np.void]:
    levels = _levels(memory)
    result = np.zeros(1, CONSTANTS)
    r = result[0]
    delay, sibling = _delays(memory, levels)
    ancestors, ranges = _nodes(memory, levels)
    depth, o = len(levels), memory.organisation
    for name, table in (("rules", delay), ("sibling_rules", sibling)):
        for level, issued, then in np.argwhere(table > NEVER):
            at = r["n_" + name][issued]
            r[name][issued, at] = level, then, table[level, issued, then]
            r["n_" + name][issued] += 1
    r["ancestors"][: o.banks, :depth] = ancestors
    bank = np.arange(o.banks)
    r["pc_of"][: o.banks] = bank // (o.banks // o.pseudochannels)
    r["rank_of"][: o.banks] = bank // (o.banks // (o.pseudochannels * o.ranks))
    r["sibling_range"][: len(ranges)] = ranges
    counts = [o.count(level) for level in levels]
    r["level_start"][:depth] = np.cumsum([0, *counts[:-1]])
    r["rank_level"][:depth] = [count <= o.pseudochannels * o.ranks for count in counts]
    buses = list(memory.buses)
    for name, command in memory.commands.items():
        shared = memory.buses[command.bus].scope == "channel"
        i = COMMANDS.index(name)
        own = np.zeros(MAX_PCS, np.int64) if shared else np.arange(MAX_PCS)
        r["bus"][:, i] = buses.index(command.bus) * MAX_PCS + own
        r["slots"][i] = memory.tick_clock.ticks(Fraction(str(command.slots)))
    r["segments"] = _segments(memory)
    if memory.sync:
        hold = memory.sync.hold
        r["hold"] = [memory.ticks(e) for e in (hold.CAS, hold.RD, hold.WR)]
    sets = memory.refresh_sets()
    r["sets"][: len(sets), : len(sets[0])] = sets
    for name, rows in zip(("fields", "hashes"), _address_fields(memory), strict=True):
        r["n_" + name] = len(rows)
        if rows:
            r[name][: len(rows)] = rows
    low = np.arange(1 << LOW_BITS)
    for right, mask, left, where in r["fields"][: r["n_fields"]]:
        r["low"][:, where] |= ((low >> right) & mask) << left
    windows = _windows(memory, levels)
    r["windows"] = len(windows)
    if windows:
        r["window"][: len(windows)] = windows
    _scalars(memory, r, depth)
    return result


def _patience(memory: MemorySpec) -> int:
    """Ticks from when a refresh is due to when it is urgent (docs/controller.md: postponing)."""
    c, interval = memory.controller, memory.refresh_ticks()
    if c.refresh_postpone == 0:
        return 0
    sets = memory.refreshes_per_round
    extra = 0 if sets == 1 else interval if c.refresh_order == "idle_first" else interval // sets
    return max(0, c.refresh_postpone * interval - interval // 8 - extra)


def _scalars(memory: MemorySpec, r: np.void, depth: int) -> None:
    o, c = memory.organisation, memory.controller
    refresh = {"none": REFRESH_NONE, "all_bank": REFRESH_ALL_BANK, "per_bank": REFRESH_PER_BANK}
    pages = {"open": PAGE_OPEN, "closed": PAGE_CLOSED, "timeout": PAGE_TIMEOUT,
             "adaptive": PAGE_ADAPTIVE}  # fmt: skip
    schedulers = {"frfcfs": FRFCFS, "frfcfs_oldest_ready": OLDEST_READY, "fcfs": FCFS}
    sets = memory.refresh_sets()
    one_bus = len({command.bus for command in memory.commands.values()}) == 1
    r["queue"] = c.read_queue, c.write_queue
    r["data_end"] = r["segments"].max(axis=(1, 2))
    values = {
        "banks": o.banks, "pcs": o.pseudochannels, "ranks": o.pseudochannels * o.ranks,
        "banks_per_pc": o.banks // o.pseudochannels,
        "banks_per_rank": o.banks // (o.pseudochannels * o.ranks), "levels": depth,
        "first": COMMANDS.index("ACT1" if memory.activate.steps == 2 else "ACT"),
        "steps": memory.activate.steps, "lazy": memory.activate.second == "lazy",
        "max_gap": memory.ticks(memory.activate.max_gap) if memory.activate.max_gap else 0,
        # compared as integers: writes > high x capacity, writes < low x capacity
        "drain_high": np.floor(c.write_drain_high * c.write_queue + 1e-9),
        "drain_low": np.ceil(c.write_drain_low * c.write_queue - 1e-9),
        "scheduler": schedulers[c.scheduler], "page_policy": pages[c.page_policy],
        "page_timeout": memory.tick_clock.ticks(memory.tick_clock.clocks_of_ns(c.page_timeout)),
        "queue_per_bank": c.queue_scope == "bank", "shared_queue": c.queues == "shared",
        "forwarding": c.write_forwarding,
        "read_modify_write": c.partial_write == "read_modify_write", "hit_limit": c.row_hit_limit,
        "activation_buffer": c.activation_buffer, "refresh": refresh[c.refresh],
        "refresh_interval": memory.refresh_ticks(), "refresh_sets": memory.refreshes_per_round,
        "idle_first": c.refresh_order == "idle_first", "patience": _patience(memory),
        "set_size": len(sets[0]),
        "sync": memory.sync is not None and not memory.sync.always_on,
        "check_dq": _dq_can_collide(memory, r["segments"]), "burst_bytes": o.burst_bytes,
        "shared_level": min(
            [i for i, level in enumerate(_levels(memory)) if o.count(level) <= o.pseudochannels],
            default=depth,
        ),
        "one_bus": o.pseudochannels == 1 and one_bus,
    }  # fmt: skip
    for name, value in values.items():
        r[name] = int(value)
