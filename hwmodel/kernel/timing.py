"""Lowering of a memory description to the integer arrays that the channel kernel reads.

Scopes with the same instances fall together into one level. The kernel keeps the earliest tick of
each command at each bank, and at each pseudo-channel for what all its banks share; issuing a
command postpones those of the banks that a row's scope reaches.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.hooks import MECHANISMS, lowered_mechanisms
from hwmodel.kernel.limits import (
    DQ_TICKS,
    FCFS,
    FOREVER,
    FRFCFS,
    LANES,
    LOW_BITS,
    MAX_BANKS,
    MAX_FIELDS,
    MAX_HASHES,
    MAX_LEVELS,
    MAX_PCS,
    MAX_RULES,
    MAX_SEGMENTS,
    N_COMMANDS,
    NEVER,
    OLDEST_READY,
    PAGE_ADAPTIVE,
    PAGE_CLOSED,
    PAGE_OPEN,
    PAGE_TIMEOUT,
    REFRESH_ALL_BANK,
    REFRESH_NONE,
    REFRESH_PER_BANK,
    Int,
    in_lines,
    zeroed,
)
from hwmodel.specs.commands import (
    COLUMN_COMMANDS,
    COMMANDS,
    LEVELS,
    MAX_WINDOWS,
    PERIODIC_COMMANDS,
    RANK_COMMANDS,
    SET_COMMANDS,
    WRITE_COMMANDS,
)
from hwmodel.specs.memory_spec import MemorySpec, row_delay
from hwmodel.specs.periodic import periodic_lanes

_SCALARS = {
    "pcs": "pseudo-channels",
    "ranks": "ranks of all pseudo-channels",
    "banks_per_pc": "banks of a pseudo-channel",
    "banks_per_rank": "banks of a rank",
    "bank_levels": "levels smaller than a pseudo-channel",
    "first": "number of the command that opens a row: ACT or ACT1",
    "steps": "commands of an activation: 1 (ACT) or 2 (ACT1, ACT2)",
    "lazy": "1: ACT2 yields to other commands",
    "max_gap": "ticks from ACT1 to ACT2 at most",
    "drain_high": "writes above which reads yield",
    "drain_low": "writes below which writes yield",
    "scheduler": "FRFCFS, OLDEST_READY or FCFS",
    "page_policy": "PAGE_OPEN, PAGE_CLOSED, PAGE_TIMEOUT or PAGE_ADAPTIVE",
    "page_timeout": "ticks until an unwanted row is closed",
    "queue_per_bank": "1: each bank has queues of its own",
    "joint_queue": "1: the queues and the mode are those of all pseudo-channels together",
    "late_entry": "1: no request enters in a tick after one has left a queue in it",
    "one_queue": "1: a single read queue and a single write queue serve the channel",
    "shared_queue": "1: reads and writes wait in one queue",
    "forwarding": "1: waiting writes answer reads",
    "read_modify_write": "1: partial writes read first, 0: they are masked",
    "masked_writes": "1: partial writes take MWR or MWRA instead of WR or WRA",
    "hit_limit": "column commands of an opened row before an older request; 0: no limit",
    "activation_buffer": "requests that activated and may wait outside their queue; 0: none",
    "refresh": "REFRESH_NONE, REFRESH_ALL_BANK or REFRESH_PER_BANK",
    "refresh_interval": "ticks of a round of refreshes",
    "refresh_sets": "refreshes of a round",
    "idle_first": "1: the least wanted set is refreshed first, 0: sets in turn",
    "patience": "ticks from due to urgent",
    "set_size": "banks refreshed by a REFPB",
    "to_sets": "commands to a set of banks, a bit mask",
    "protects": "bursts of data that a burst of checks of in-line ECC protects; 0: there are none",
    "first_check": "burst of a channel with its first checks",
    "sleeps": "1: a channel powers down, or refreshes itself, when nothing waits",
    "power_down_after": "ticks of quiet before power-down",
    "self_refresh_after": "ticks from the last data to self-refresh",
    "deep_sleep_after": "ticks from the last data to deep sleep",
    "power_down_exit": "ticks from a request to the first command",
    "self_refresh_exit": "ticks from a request to the first command",
    "deep_sleep_exit": "ticks from a request to the first command",
    "power_down_stay": "ticks that it lasts at least",
    "self_refresh_stay": "ticks that it lasts at least",
    "deep_sleep_stay": "ticks that it lasts at least",
    "power_down_named": "1: PDE and PDX take the bus",
    "self_refresh_named": "1: SRE and SRX take the bus",
    "sync": "1: the data clock stops, and CAS starts it",
    "data_clocks": "clocks of a pseudo-channel that do so, one a rank; 1 where none does",
    "check_dq": "1: rows leave room for bursts to collide on DQ",
    "plain_columns": "1: the queue alone says which column command a request needs",
    "burst_bytes": "bytes of a burst",
    "windows": "activation windows",
    "counted": "commands that a window counts, a bit mask",
    "channel_rows": "1: rows hold for the other pseudo-channel, too",
    "one_bus": "1: all commands of the channel share a bus",
    "n_fields": "bit moves from a burst index to a place",
    "odd_from": "bits of a burst index below the first part whose values are no power of two",
    "n_odd": "parts from there on",
    "n_hashes": "hashes of rows into banks",
} | {name: text for each in MECHANISMS.values() for name, text in each.constants.items()}
"""Scalars of CONSTANTS: unit and meaning."""
# What the channel kernel reads and never writes; times in ticks. One record, so that it passes
# as one pointer.
CONSTANTS = in_lines(
    [(name, np.int64) for name in _SCALARS]
    + [
        ("queue", np.int64, (2,)),  # read and write queue entries a pseudo-channel
        ("data_end", np.int64, (2,)),  # from a read or write to the end of its data
        # from a command to each in its pseudo-channel, and in the other one; NEVER where no row is
        ("pc_delay", np.int64, (len(COMMANDS), LANES)),
        ("channel_delay", np.int64, (len(COMMANDS), LANES)),
        ("half", np.int64, (len(COMMANDS),)),  # 1: `pc_delay` has no row in the upper half
        ("n_bank_rules", np.int64, (len(COMMANDS),)),
        ("n_own_rules", np.int64, (len(COMMANDS),)),  # without those of `other_` scopes
        # of a scope (level, or MAX_LEVELS + level for `other_`), the banks, a bit mask
        ("reach", np.int64, (2 * MAX_LEVELS, MAX_BANKS)),
        ("fours", np.int64, (2 * MAX_LEVELS,)),  # 1: that is four banks, from a multiple of four on
        ("instance", np.int64, (MAX_LEVELS, MAX_BANKS)),  # number of a bank's instance of a level
        ("pc_of", np.int64, (MAX_BANKS,)),  # pseudo-channel of a bank
        ("rank_of", np.int64, (MAX_BANKS,)),  # rank of a bank, flat over pseudo-channels
        ("bus", np.int64, (MAX_PCS, len(COMMANDS))),  # bus of a command in a pseudo-channel
        ("slots", np.int64, (len(COMMANDS),)),  # ticks a command holds its bus
        ("segments", np.int64, (2, MAX_SEGMENTS, 2)),  # DQ of reads, writes; latency included
        ("n_segments", np.int64, (2,)),
        ("lasts", np.int64, (len(COMMANDS),)),  # ticks until what a command does is over
        ("lane", np.int64, (len(COMMANDS),)),  # of a command, where it waits for others
        ("hold", np.int64, (3,)),  # data clock runs on after CAS, a read, a write
        ("sets", np.int64, (MAX_BANKS, MAX_BANKS)),  # banks (in a rank) refreshed together
        ("window", np.int64, (MAX_WINDOWS, 4)),  # level, N, counted, waiting (bit masks)
        ("window_delay", np.int64, (MAX_WINDOWS, LANES)),  # to each waiting command, or NEVER
        ("fields", np.int64, (MAX_FIELDS, 4)),  # right shift, mask, left shift, destination
        ("odd", np.int64, (MAX_FIELDS, 3)),  # values, left shift, destination
        ("low", np.int64, (1 << LOW_BITS, 3)),  # column, hashed bank, row of the lowest burst bits
        ("hashes", np.int64, (MAX_HASHES, 3)),  # row bit, mask, left shift into the flat bank
        # from a command to those of some banks of the pseudo-channel: scope, next command, delay;
        # by size of scope, the rows of `other_` scopes last; large, so behind what lies together
        ("bank_rules", np.int64, (len(COMMANDS), MAX_RULES, 3)),
    ]
    + [(n, np.int64, shape) for each in MECHANISMS.values() for n, shape in each.arrays.items()]
)


def lanes(memory: MemorySpec) -> dict[str, int]:
    """Lane of each command that the controller issues: its number; of one of kind PERIODIC, that of
    a command never issued. Raises DescriptionError where there are more of them."""
    try:
        taken = periodic_lanes(memory.commands, memory.unissued)
    except ValueError as error:  # for another controller than that of the description
        raise DescriptionError(f"{memory.name}: {error}") from None
    issued = set(COMMANDS[:N_COMMANDS]) - memory.unissued
    own = {name: number for number, name in enumerate(COMMANDS) if name in issued}
    return own | {kind: COMMANDS.index(name) for kind, name in taken.items()}


def named_counts(counts: NDArray[np.int64]) -> dict[str, int]:
    """Commands issued, by kind, of the kernel's counts, shape (commands,)."""
    return dict(zip(COMMANDS, counts.tolist(), strict=True))


def _levels(memory: MemorySpec) -> list[str]:
    """Levels that have rows, one for each distinct number of instances, bank first."""
    used = {row.scope.removeprefix("other_") for row in memory.constraints} | {"bank"}
    chosen: dict[int, str] = {}
    for level in reversed(LEVELS):
        if level in used:
            chosen.setdefault(memory.organisation.count(level), level)
    return [chosen[count] for count in sorted(chosen, reverse=True)]


def _delays(memory: MemorySpec, levels: list[str]) -> tuple[Int, Int]:
    """Delay from each command to each lane, shape (levels, commands, LANES), by rows of each level
    and by those of `other_` instances; NEVER where no row is. To a masked write, by the rows that
    name it alone: it waits for those of a write as well, which are not repeated."""
    shape, lane = (len(levels), len(COMMANDS), LANES), lanes(memory)
    own, other = np.full(shape, NEVER, np.int64), np.full(shape, NEVER, np.int64)
    counts = [memory.organisation.count(level) for level in levels]
    for row in memory.constraints:
        if row.window is not None:
            continue
        name = row.scope.removeprefix("other_")
        if name != row.scope and getattr(memory.organisation, name + "s") == 1:
            continue
        table = own if name == row.scope else other
        level = counts.index(memory.organisation.count(name))
        before = [lane[name] for name in map(memory.reference, row.before) if name in lane]
        for after, b in product(memory.in_rows(row.after), before):
            a = COMMANDS.index(after)
            table[level, a, b] = max(table[level, a, b], memory.ticks(row.delay))
    for table in (own, other):
        for name, delay in zip(levels, table, strict=True):
            _as_waited_for(memory, name, delay)
    return own, other


def _as_waited_for(memory: MemorySpec, level: str, delay: Int) -> None:
    """Change delays of a level to each lane, shape (..., LANES), to what the controller waits for.
    ACT1 waits so that ACT2 may follow at once; rank commands wait for nothing by rows of less than
    a rank."""
    if memory.activate.steps == 2:
        slots = memory.tick_clock.ticks(Fraction(str(memory.commands["ACT1"].slots)))
        first, second = COMMANDS.index("ACT1"), COMMANDS.index("ACT2")
        follows = np.where(delay[..., second] > NEVER, delay[..., second] - slots, NEVER)
        delay[..., first] = np.maximum(delay[..., first], follows)
    if memory.organisation.count(level) > memory.organisation.count("rank"):
        for name, place in lanes(memory).items():
            if name in RANK_COMMANDS:
                delay[..., place] = NEVER


def _reach(memory: MemorySpec, levels: list[str]) -> tuple[Int, Int]:
    """Banks of the pseudo-channel, a bit mask, in the scope of a command to a bank, shape
    (2 MAX_LEVELS, banks), and the instance of each level that a bank is in, shape (levels,
    banks)."""
    o = memory.organisation
    bank, per_pc = np.arange(o.bank_numbers), o.bank_numbers // o.pseudochannels
    every = {o.count(level) for level in LEVELS}
    reach = np.zeros((2 * MAX_LEVELS, o.bank_numbers), np.int64)
    instance = np.zeros((len(levels), o.bank_numbers), np.int64)
    for i, count in enumerate(o.count(level) for level in levels):
        instance[i] = bank // (o.bank_numbers // count)
        if count <= o.pseudochannels:
            continue
        parents = max(other for other in every if other < count)
        own = instance[i][:, None] == instance[i]
        parent = bank // (o.bank_numbers // parents)
        siblings = (parent[:, None] == parent) & ~own
        for scope, inside in ((i, own), (MAX_LEVELS + i, siblings)):
            bits = np.uint64(1) << (bank % per_pc).astype(np.uint64)
            reach[scope] = (inside * bits).sum(axis=1, dtype=np.uint64).view(np.int64)
    return reach, instance


def _segments(memory: MemorySpec) -> Int:
    result = np.full((2, MAX_SEGMENTS, 2), NEVER, np.int64)
    for kind, slots in enumerate((memory.data.read, memory.data.write)):
        latency = memory.ticks(slots.latency)
        for i, (start, stop) in enumerate(slots.segments):
            result[kind, i] = latency + memory.ticks(start), latency + memory.ticks(stop)
    return result


def _gap(memory: MemorySpec, first: str, then: str) -> int:
    """Ticks that rows keep between two column commands of a pseudo-channel, whatever their
    banks."""
    o = memory.organisation

    def longest(scope: str) -> int:
        return max(
            (
                memory.ticks(row.delay)
                for row in memory.constraints
                if row.window is None and row.scope == scope
                if first in memory.in_rows(row.after) and then in memory.in_rows(row.before)
            ),
            default=0,
        )

    gap = longest("bank")
    for inner, count, outer in (
        ("bank", o.banks_per_group, "bankgroup"),
        ("bankgroup", o.bankgroups, "stack"),
        ("stack", o.stacks, "rank"),
        ("rank", o.ranks, "pseudochannel"),
    ):
        apart = gap if count == 1 else min(gap, longest("other_" + inner))
        gap = max(longest(outer), apart)
    one_bus = memory.commands[first].bus == memory.commands[then].bus
    return max(gap, longest("channel"), int(one_bus))


def _dq_can_collide(memory: MemorySpec, segments: Int) -> bool:
    """Whether rows of the pseudo-channel leave room for two bursts to overlap on DQ."""
    spans = [{t for a, b in kind if a != NEVER for t in range(int(a), int(b))} for kind in segments]
    columns = [name for name in COLUMN_COMMANDS if name in memory.commands]
    for first, then in product(columns, columns):
        a, b = spans[first in WRITE_COMMANDS], spans[then in WRITE_COMMANDS]
        for shift in range(_gap(memory, first, then), max(a) - min(b) + 1):
            if any(t + shift in a for t in b):
                return True
    return False


def _windows(memory: MemorySpec, levels: list[str]) -> tuple[list[list[int]], list[Int]]:
    """Activation windows as CONSTANTS holds them, and their delays to each command."""
    counts = [memory.organisation.count(level) for level in levels]
    lane = lanes(memory)
    rows, delays = [], []
    for row in memory.constraints:
        if row.window is not None:
            level = counts.index(memory.organisation.count(row.scope))
            counted = [COMMANDS.index(name) for name in memory.in_rows(row.after)]
            waiting = [lane[name] for name in map(memory.reference, row.before) if name in lane]
            delay = np.full(LANES, NEVER, np.int64)
            delay[waiting] = memory.ticks(row.delay)
            _as_waited_for(memory, levels[level], delay)
            masks = [counted, np.flatnonzero(delay > NEVER).tolist()]
            rows.append([level, row.window, *(sum(1 << i for i in mask) for mask in masks)])
            delays.append(delay)
    return rows, delays


def _address_fields(memory: MemorySpec) -> tuple[list[list[int]], ...]:
    """Bit moves from a burst index to (column, flat bank, row), the parts from the first on whose
    values are no power of two, and the XOR hashes."""
    bits = memory.field_bits()
    place, at = {}, 0
    for name in ("bank", "bankgroup", "stack", "rank", "pseudochannel"):
        place[name] = at
        at += bits[name]
    taken = dict.fromkeys(bits, 0)
    fields: list[list[int]] = []
    odd: list[list[int]] = []
    shift = 0
    for name, width, values in memory.address_sizes():
        destination = {"column": 0, "row": 2}.get(name, 1)
        left = taken[name] + (place[name] if destination == 1 else 0)
        if odd or values != 1 << width:
            odd.append([values, left, destination])
        else:
            fields.append([shift, (1 << width) - 1, left, destination])
        taken[name] += width
        shift += width
    hashes = [[h.row_bit, (1 << bits[h.field]) - 1, place[h.field]] for h in memory.bank_hash]
    return fields, odd, hashes


_lowered: dict[int, tuple[MemorySpec, NDArray[np.void]]] = {}
"""The last memories that were lowered, by identity; each kept alive with its record."""
_MOST_LOWERED = 64


def lower(memory: MemorySpec) -> NDArray[np.void]:
    """`memory` as one CONSTANTS record, shape (1,), which is never changed; kept for the last
    memories, for it takes milliseconds. Raises ValueError where bursts can collide on DQ and last
    longer than DQ_TICKS, latency included."""
    known = _lowered.get(id(memory))
    if known is None:
        if len(_lowered) >= _MOST_LOWERED:
            _lowered.pop(next(iter(_lowered)))
        known = _lowered[id(memory)] = memory, _lower(memory)
    return known[1]


def _lower(memory: MemorySpec) -> NDArray[np.void]:
    levels = _levels(memory)
    result = zeroed(1, CONSTANTS)
    r = result[0]
    o = memory.organisation
    _lower_rows(memory, levels, r)
    reach, instance = _reach(memory, levels)
    r["reach"][:, : o.bank_numbers] = reach
    r["instance"][: len(levels), : o.bank_numbers] = instance
    r["fours"][: len(levels)] = [o.bank_numbers // o.count(level) == 4 for level in levels]
    bank = np.arange(o.bank_numbers)
    r["pc_of"][: o.bank_numbers] = bank // (o.bank_numbers // o.pseudochannels)
    r["rank_of"][: o.bank_numbers] = bank // (o.bank_numbers // (o.pseudochannels * o.ranks))
    buses = list(memory.buses)
    for name, command in memory.commands.items():
        shared = memory.buses[command.bus].scope == "channel"
        i = COMMANDS.index(name)
        own = np.zeros(MAX_PCS, np.int64) if shared else np.arange(MAX_PCS)
        r["bus"][:, i] = buses.index(command.bus) * MAX_PCS + own
        r["slots"][i] = memory.tick_clock.ticks(Fraction(str(command.slots)))
    r["segments"] = _segments(memory)
    r["n_segments"] = (r["segments"][:, :, 0] > NEVER).sum(axis=1)
    if memory.sync:
        hold = memory.sync.hold
        r["hold"] = [memory.ticks(e) for e in (hold.CAS, hold.RD, hold.WR)]
    sets = memory.refresh_sets()
    r["sets"][: len(sets), : len(sets[0])] = sets
    for name, rows in zip(("fields", "odd", "hashes"), _address_fields(memory), strict=True):
        r["n_" + name] = len(rows)
        if rows:
            r[name][: len(rows)] = rows
    r["odd_from"] = sum(int(mask).bit_length() for _, mask, _, _ in r["fields"][: r["n_fields"]])
    low = np.arange(1 << LOW_BITS)
    for right, mask, left, where in r["fields"][: r["n_fields"]]:
        r["low"][:, where] |= ((low >> right) & mask) << left
    for row_bit, mask, left in r["hashes"][: r["n_hashes"]]:
        r["low"][:, 1] ^= ((r["low"][:, 2] >> row_bit) & mask) << left
    windows, delays = _windows(memory, levels)
    r["windows"] = len(windows)
    if windows:
        r["window"][: len(windows)] = windows
        r["window_delay"][: len(windows)] = delays
        r["counted"] = np.bitwise_or.reduce(r["window"][:, 2])
    _scalars(memory, r)
    return result


def _lower_rows(memory: MemorySpec, levels: list[str], r: np.void) -> None:
    """Lower the rows: those that every bank of a pseudo-channel feels to tables of delays."""
    o = memory.organisation
    own, other = _delays(memory, levels)
    counts = np.array([o.count(level) for level in levels])
    r["bank_levels"] = (counts > o.pseudochannels).sum()
    r["pc_delay"], r["channel_delay"] = NEVER, NEVER
    for count, delay in zip(counts, own, strict=True):
        if count <= o.pseudochannels:
            r["pc_delay"] = np.maximum(r["pc_delay"], delay)
        if count == 1 < o.pseudochannels:
            r["channel_delay"] = delay
    r["half"] = (r["pc_delay"][:, LANES // 2 :] == NEVER).all(axis=1)
    r["channel_rows"] = (r["channel_delay"] > NEVER).any()
    for table, scope in ((own, 0), (other, MAX_LEVELS)):
        for level, issued, then in np.argwhere(table > NEVER):
            if counts[level] > o.pseudochannels:
                at = r["n_bank_rules"][issued]
                r["bank_rules"][issued, at] = scope + level, then, table[level, issued, then]
                r["n_bank_rules"][issued] += 1
        if scope == 0:
            r["n_own_rules"] = r["n_bank_rules"]


def _patience(memory: MemorySpec) -> int:
    """Ticks from when a refresh is due to when it is urgent (rules.md: postponing)."""
    c, interval = memory.controller, memory.refresh_ticks()
    if c.refresh_postpone == 0:
        return 0
    sets = memory.refreshes_per_round
    extra = 0 if sets == 1 else interval if c.refresh_order == "idle_first" else interval // sets
    return max(0, c.refresh_postpone * interval - memory.postpone_margin_ticks() - extra)


def _scalars(memory: MemorySpec, r: np.void) -> None:
    o, c = memory.organisation, memory.controller
    refresh = {"none": REFRESH_NONE, "all_bank": REFRESH_ALL_BANK, "per_bank": REFRESH_PER_BANK}
    pages = {"open": PAGE_OPEN, "closed": PAGE_CLOSED, "timeout": PAGE_TIMEOUT,
             "adaptive": PAGE_ADAPTIVE}  # fmt: skip
    schedulers = {"frfcfs": FRFCFS, "frfcfs_oldest_ready": OLDEST_READY, "fcfs": FCFS}
    sets = memory.refresh_sets()
    one_bus = len({command.bus for command in memory.commands.values()}) == 1
    stops = memory.sync is not None and not memory.sync.always_on
    collide = _dq_can_collide(memory, r["segments"])
    r["queue"] = c.read_queue, c.write_queue
    r["data_end"] = r["segments"].max(axis=(1, 2))
    values = {
        "pcs": o.pseudochannels, "ranks": o.pseudochannels * o.ranks,
        "banks_per_pc": o.bank_numbers // o.pseudochannels,
        "banks_per_rank": o.bank_numbers // (o.pseudochannels * o.ranks),
        "first": COMMANDS.index("ACT1" if memory.activate.steps == 2 else "ACT"),
        "steps": memory.activate.steps, "lazy": memory.activate.second == "lazy",
        "max_gap": memory.ticks(memory.activate.max_gap) if memory.activate.max_gap else 0,
        # compared as integers: writes > high x capacity, writes < low x capacity
        "drain_high": np.floor(c.write_drain_high * c.write_queue + 1e-9),
        "drain_low": np.ceil(c.write_drain_low * c.write_queue - 1e-9),
        "scheduler": schedulers[c.scheduler], "page_policy": pages[c.page_policy],
        "page_timeout": memory.tick_clock.ticks(memory.tick_clock.clocks_of_ns(c.page_timeout)),
        "queue_per_bank": c.queue_scope == "bank",
        "joint_queue": c.queue_scope == "both_pseudochannels" and o.pseudochannels > 1,
        "late_entry": c.queue_reuse == "next_tick", "shared_queue": c.queues == "shared",
        "one_queue": o.pseudochannels == 1
        and c.queue_scope != "bank" and c.queues == "separate",
        "forwarding": c.write_forwarding,
        "read_modify_write": c.partial_write == "read_modify_write",
        "masked_writes": memory.masked_writes, "hit_limit": c.row_hit_limit,
        "activation_buffer": c.activation_buffer, "refresh": refresh[c.refresh],
        "refresh_interval": memory.refresh_ticks(), "refresh_sets": memory.refreshes_per_round,
        "idle_first": c.refresh_order == "idle_first", "patience": _patience(memory),
        "set_size": len(sets[0]),
        "to_sets": sum(1 << COMMANDS.index(name) for name in SET_COMMANDS),
        "protects": c.inline_ecc, "first_check": memory.data_bytes // o.burst_bytes,
        "sync": stops, "data_clocks": o.ranks if stops else 1,
        "check_dq": collide, "burst_bytes": o.burst_bytes,
        "plain_columns": c.page_policy != "closed" and c.queues != "shared",
        "one_bus": o.pseudochannels == 1 and one_bus,
    }  # fmt: skip
    for name, place in lanes(memory).items():
        r["lane"][COMMANDS.index(name)] = place
    if memory.sleeps:
        values |= _sleep(memory, r)
    for name, value in values.items():
        r[name] = int(value)
    for name, given in lowered_mechanisms(memory).items():
        if np.ndim(given):
            r[name][: len(given)] = given
        else:
            r[name] = given
    if r["check_dq"] and r["data_end"].max() >= DQ_TICKS:
        raise ValueError(f"{memory.name}: data {DQ_TICKS} ticks or more after its command")


def _sleep(memory: MemorySpec, r: np.void) -> dict[str, int]:
    """Lower what power-down and self-refresh need."""
    c, clock = memory.controller, memory.tick_clock
    assert memory.power_states is not None
    for i, name in enumerate(COMMANDS):
        lasts = 0
        if name in ("REFPB", "REFAB", "RFM", "RFMAB", *PERIODIC_COMMANDS):
            lasts = row_delay(memory, name, memory.activate_command, LEVELS)
        elif name in COLUMN_COMMANDS:
            lasts = r["data_end"][int(name in WRITE_COMMANDS)]
        r["lasts"][i] = max(r["slots"][i], lasts)
    values = {"sleeps": 1}
    entries = {"power_down": "PDE PDX", "self_refresh": "SRE SRX", "deep_sleep": "SRE SRX"}
    for name, commands in entries.items():
        after, leave = getattr(c, f"{name}_after"), getattr(memory.power_states, f"{name}_exit")
        stay = getattr(memory.power_states, f"{name}_stay")
        enter, back = (int(r["slots"][COMMANDS.index(each)]) for each in commands.split())
        values[f"{name}_exit"] = max(memory.ticks(leave or "0"), back)
        values[f"{name}_stay"] = max(memory.ticks(stay), enter)
        if name != "deep_sleep":
            values[f"{name}_named"] = enter > 0
        values[f"{name}_after"] = (
            FOREVER if after is None else clock.ticks(clock.clocks_of_ns(after))
        )
    return values
