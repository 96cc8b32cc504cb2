"""Everything that changes in one simulated DRAM channel: one record, so that it passes as one
pointer.

Arrays have fixed sizes (the largest channel that a description may have), which lets one compiled
kernel serve every memory; only the part that a memory uses is ever touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodel.kernel.hooks import MECHANISMS
from hwmodel.kernel.lanes import PADDING
from hwmodel.kernel.limits import (
    DQ_TICKS,
    FOREVER,
    LANES,
    MAX_BANKS,
    MAX_PCS,
    MAX_RANKS,
    N_COMMANDS,
    NEVER,
    REFRESH_NONE,
    in_lines,
    zeroed,
    zeroed_bytes,
)
from hwmodel.specs.commands import (
    COMMANDS,
    MAX_REQUESTS,
    MAX_WINDOW,
    MAX_WINDOW_INSTANCES,
    MAX_WINDOWS,
)
from hwmodel.specs.memory_spec import MemorySpec

INBOX = 1 << 12
"""Runs of bursts that may wait before a channel's queues (a power of two)."""
EXACT_LATENCIES, OCTAVE_BITS, OCTAVES = 2048, 7, 50
"""Latencies below the first number have a bin each. Above it each octave has 2 ** OCTAVE_BITS bins,
which states a latency at most 1 / 128 too high; the last octave ends above any tick."""
LATENCY_BINS = EXACT_LATENCIES + (OCTAVES << OCTAVE_BITS)
WRITE_KEYS = 512
"""Counts of waiting writes, by a hash of their burst (a power of two)."""
MAX_SLOTS = MAX_REQUESTS * MAX_PCS
BANKS = MAX_BANKS + PADDING
"""Length of a row of banks that `hwmodel.kernel.lanes` reads."""

# fields of a queue slot; TAG is the row of `completions` that its bytes return to
Q_ROW, Q_COLUMN, Q_BANK, Q_SEQ, Q_TIME, Q_FLAGS, Q_TAG, Q_NEXT, Q_PREV, Q_KIND = range(10)
SLOT_FIELDS = 10
MOST_POWER_EVENTS = 8
"""Entries and exits between two commands, at most."""

# fields of a run in the inbox
RUN_TICK, RUN_FIRST, RUN_BURSTS, RUN_KIND, RUN_ROW, RUN_TAKEN = range(6)
"""Tick of arrival; index of its first burst; bursts; READ, WRITE or PARTIAL_WRITE; row of
`completions` that its bytes return to; tick at which its last burst was taken."""
RUN_FIELDS = 6

_SCALARS = {
    "now": "tick of the next decision",
    "seq": "requests that entered a queue so far: the age of the next",
    "end": "tick at which the last data beat so far ends",
    "hits": "requests served without a row command",
    "misses": "requests served after an ACT",
    "conflicts": "requests served after a PRE",
    "bytes": "bytes moved on DQ",
    "requests": "requests served, without the reads before partial writes",
    "forwarded": "reads answered by a waiting write",
    "rmw_reads": "reads served before partial writes",
    "masked": "waiting writes that take MWR or MWRA",
    "head": "runs of the inbox taken so far",
    "tail": "runs put into the inbox so far",
    "released": "runs taken that engines know of, where the inbox is finite",
    "endpoint_free": "1/1024 ticks at which another request may reach it, where they are spaced",
    "last_check": "burst of checks of the last request x 2, + 1 of a write, or -1",
    "checks": "requests for bursts of checks so far",
    "offset": "bursts of the head run that were taken",
    "stream_closed": "1: nothing follows what is in the inbox",
    "stalled": "1: the head has arrived and finds no room, until a queue changes",
    "left_at": "tick at which a request left a queue last, or NEVER",
    "pairs": "banks between their ACT1 and ACT2",
    "logged": "lines of the log written so far",
    "next_due": "tick at which refreshes are looked at again",
    "urgent": "ranks whose refresh is urgent, a bit mask",
    "postponed": "ranks that owe a refresh, not yet urgent, a bit mask",
    "maintained": "ranks for which a mechanism wants a command, a bit mask",
    "commands_over": "tick at which all that commands do is over, where the channel sleeps",
    "data_over": "tick at which the last data end, or an exit does",
    "sleep_booked": "tick up to which time asleep was booked",
    "power_events": "entries of power states, and exits, not yet logged",
    "refreshing_itself": "1: SRE was issued, and SRX not yet",
    "refreshes_asleep": "refreshes that stand for those of self-refresh",
    "high": "upper bits of the burst index decoded last (above LOW_BITS), or -1",
    "high_column": "column bits that these give",
    "high_bank": "flat bank that these give, hashed with their row bits",
    "high_row": "row bits that these give",
    "phase": "ticks by which refreshes are shifted",
    "response": "ticks from the end of data to its engine",
}
"""Scalars of CHANNEL: unit and meaning."""
_PER_PC = {
    "mode": "0: reads are served, 1: writes",
    "active_banks": "banks with an activation-buffer request, a bit mask",
    "active_writes": "those whose request is a write, a bit mask",
    "active_count": "activation-buffer requests",
    "blocked": "banks blocked by an urgent refresh, a bit mask",
    "act_blocked": "banks that may not open, a bit mask",
    "pair_bank": "flat bank between its ACT1 and ACT2, or -1",
    "pair_slot": "slot of its request",
    "pair_deadline": "last tick for its ACT2",
    "open_banks": "banks with an open row, a bit mask",
    "hit_cap_reached": "banks that served their limit of row hits, a bit mask",
    "free_count": "free queue slots",
    "reserved": "places held in the write queue for writes whose burst is read first",
    "above_high": "write queues of a bank above the high watermark",
    "at_low": "write queues of a bank that are not below the low watermark",
    "choice_kept": "1: `choice` is what its requests offer, until something of it changes",
}
"""What a pseudo-channel has one of: unit and meaning. Bit masks have a bit for each bank of it, so
that one `and` says which banks may take a command, and one loop over lanes which is first."""

CHANNEL = in_lines(
    [(name, np.int64) for name in _SCALARS]
    + [(name, np.int64, (MAX_PCS,)) for name in _PER_PC]
    + [
        ("choice", np.int64, (MAX_PCS, 5)),  # the candidate that its requests offered last
        ("waiting", np.int64, (MAX_PCS, 2)),  # requests in the read and write queues
        ("pending", np.int64, (MAX_PCS, 2)),  # banks with queued requests, a bit mask
        ("hit_banks", np.int64, (MAX_PCS, 2)),  # banks with a queued hit, a bit mask
        ("in_order", np.int64, (MAX_PCS, 2)),  # those whose oldest request is the hit, a bit mask
        ("ready", np.int64, (N_COMMANDS, BANKS)),  # earliest tick by rows of less than a pc
        ("floor", np.int64, (MAX_PCS, LANES)),  # of each command by rows that all its banks share
        ("bus_free", np.int64, (4 * MAX_PCS,)),  # tick from which a bus is free
        ("sync_until", np.int64, (MAX_RANKS,)),  # last tick at which the data clock runs
        ("refresh_issued", np.int64, (MAX_RANKS,)),  # refreshes issued so far
        ("refresh_done", np.int64, (MAX_RANKS,)),  # sets refreshed in this round, a bit mask
        ("refresh_set", np.int64, (MAX_RANKS,)),  # settled set of an urgent refresh, or -1
        ("rank_open", np.int64, (MAX_RANKS,)),  # banks open
        ("active_since", np.int64, (MAX_RANKS,)),  # tick from which a bank is open, or -1
        ("active_ticks", np.int64, (MAX_RANKS,)),  # time with a bank open before that
        # ticks in power-down, self-refresh and deep sleep, each with rows closed and open
        ("asleep", np.int64, (MAX_RANKS, 6)),
        ("power_event", np.int64, (MOST_POWER_EVENTS, 2)),  # tick and command of each
        ("refresh_due", np.int64),  # refreshes that have fallen due so far
        # ticks of the last N commands that each window counts, and the place of the last one
        ("window_tick", np.int64, (MAX_WINDOWS, MAX_WINDOW_INSTANCES, MAX_WINDOW)),
        ("window_at", np.int64, (MAX_WINDOWS, MAX_WINDOW_INSTANCES)),
        ("dq_taken", np.int64, (MAX_PCS, DQ_TICKS)),  # a ring of ticks at which DQ is taken
        ("commands", np.int64, (len(COMMANDS),)),  # commands issued
        ("open_row", np.int64, (MAX_BANKS,)),  # or -1
        ("bank_commands", np.int64, (MAX_BANKS, 4)),  # ACT, RD, WR, MWR (A forms too)
        ("queued", np.int64, (2, MAX_BANKS)),  # requests in the queues, by kind and bank
        ("bank_reserved", np.int64, (MAX_BANKS,)),  # places held for writes of partial writes
        ("last_use", np.int64, (MAX_BANKS,)),  # last column command, or when the row opened
        ("timeout", np.int64, (MAX_BANKS,)),  # how long an unwanted row stays open
        ("timed_out_row", np.int64, (MAX_BANKS,)),  # row that the timeout closed last, or -1
        ("streak", np.int64, (MAX_BANKS,)),  # column commands since the row opened
        ("active", np.int64, (MAX_BANKS,)),  # slot of the activation-buffer request, or -1
        ("first", np.int64, (2, MAX_BANKS)),  # oldest queued slot of each kind, or -1
        ("last", np.int64, (2, MAX_BANKS)),  # youngest
        ("hit", np.int64, (2, MAX_BANKS)),  # oldest slot that hits the open row, or -1
        ("first_age", np.int64, (2, BANKS)),  # packed age of `first` where there is one
        ("hit_age", np.int64, (2, BANKS)),  # of `hit`
        ("active_age", np.int64, (BANKS,)),  # of `active`
        ("slot", np.int64, (MAX_SLOTS, SLOT_FIELDS)),  # queue entries by the Q_ names
        ("writes", np.int64, (WRITE_KEYS,)),  # waiting writes that fill their burst, by hash
        ("free", np.int64, (MAX_PCS, MAX_REQUESTS)),  # free slots
        # of served reads and writes: their number, and ticks from entry to the end of data, as
        # the sum, the longest, and by `latency_bin`
        ("latencies", np.int64, (2,)),
        ("latency_sum", np.int64, (2,)),
        ("latency_max", np.int64, (2,)),
        ("latency", np.int64, (2, LATENCY_BINS)),
        ("inbox", np.int64, (RUN_FIELDS, INBOX)),  # a ring of runs by the RUN_ names
    ]
    + [(n, np.int64, shape) for each in MECHANISMS.values() for n, shape in each.state.items()]
)


COUNT = np.dtype(np.int32)
"""Of a count in a table of a mechanism."""
NO_LOG = np.zeros((0, 5), np.int64)
"""In place of a log, where commands are not wanted."""


def idle_channels(
    memory: MemorySpec, constants: NDArray[np.void], channels: int, response_ticks: int = 0,
    passed_ticks: int = 0, owed: ArrayLike | None = None,
) -> NDArray[np.void]:  # fmt: skip
    """`channels` idle channels at tick 0 as CHANNEL records; refreshes phased as the controller
    says. passed_ticks: for how long what comes at intervals has come already, in time, as it does
    where banks are always busy (rules.md: what has passed); owed: how many refreshes each rank owes
    then instead, (channels, ranks)."""
    c = constants[0]
    on = [each for each in MECHANISMS.values() if c[each.on]]
    tables = [each.table for each in on if each.table is not None]
    sizes = [int(c[table.length]) * COUNT.itemsize for table in tables]
    state = zeroed(channels, CHANNEL, channels * sum(sizes))
    place = _behind(state).ctypes.data
    for table, size in zip(tables, sizes, strict=True):
        state[table.pointer] = place + np.arange(channels) * size
        place += channels * size
    for each in on:
        for name, value in (each.first(c) if each.first else {}).items():
            state[name] = value
    state["high"], state["left_at"], state["last_check"] = -1, NEVER, -1
    for name in ("ready", "floor", "window_tick", "dq_taken", "sync_until"):
        state[name] = NEVER
    unset = ["open_row", "first", "last", "hit", "active", "pair_bank"]
    for name in [*unset, "refresh_set", "active_since", "timed_out_row"]:
        state[name] = -1
    state["timeout"] = c["page_timeout"]
    slots = memory.requests_held
    for pc in range(int(c["pcs"])):
        state["free"][:, pc, :slots] = pc * slots + np.arange(slots)
        state["free_count"][:, pc] = slots
    state["response"] = response_ticks
    interval, sets = int(c["refresh_interval"]), int(c["refresh_sets"])
    if memory.controller.refresh_phase == "staggered":
        state["phase"] = np.arange(channels) * interval // (channels * sets)
    state["next_due"] = (
        FOREVER if c["refresh"] == REFRESH_NONE else state["phase"] + interval // sets
    )
    if passed_ticks:
        for each in on:
            for name, value in (each.passed(c, passed_ticks) if each.passed else {}).items():
                state[name] = value
        _refreshed_before(state, c, passed_ticks, owed)
    if on:
        state["next_due"] = 0  # they say when they are to be asked again
    return state


def _refreshed_before(
    state: NDArray[np.void], c: np.void, passed: int, owed: ArrayLike | None
) -> None:
    """Those refreshes were issued that were urgent by then, or all but those `owed`, and what is
    due comes as much sooner."""
    if c["refresh"] == REFRESH_NONE:
        return
    interval, sets, ranks = (int(c[n]) for n in ("refresh_interval", "refresh_sets", "ranks"))
    patience = int(c["patience"]) if owed is None else 0
    by_then = ((passed - patience - state["phase"] + 1) * sets - 1) // interval
    less = np.zeros((1, ranks), np.int64) if owed is None else np.asarray(owed, np.int64)
    issued = np.maximum(by_then[:, None] - less, 0)
    state["phase"] -= passed
    state["refresh_due"] = first = issued.min(axis=1)
    state["refresh_issued"][:, :ranks] = issued
    state["refresh_done"][:, :ranks] = (1 << (issued % sets)) - 1
    state["next_due"] = np.maximum(state["phase"] + (first + 1) * interval // sets, 0)


def _behind(states: NDArray[np.void]) -> NDArray[np.uint8]:
    """What lies behind the states in their block (`zeroed`): the tables of mechanisms, which live
    as long as they do."""
    block: Any = states
    while isinstance(block.base, np.ndarray):
        block = block.base
    return np.asarray(block.view(np.uint8)[zeroed_bytes(len(states), states.dtype) :])


def copied(states: NDArray[np.void]) -> NDArray[np.void]:
    """A copy of what `idle_channels` or this gave, with tables of its own."""
    tables = _behind(states)
    result = zeroed(len(states), CHANNEL, tables.nbytes)
    result[:] = states
    own = _behind(result)
    own[:] = tables
    for each in MECHANISMS.values():
        if each.table is not None and states[each.table.pointer].any():
            result[each.table.pointer] += own.ctypes.data - tables.ctypes.data
    return result
