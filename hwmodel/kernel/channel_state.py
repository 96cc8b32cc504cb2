"""Everything that changes in one simulated DRAM channel: one record, so that it passes as one
pointer.

Arrays have fixed sizes (the largest channel that a description may have), which lets one compiled
kernel serve every memory; only the part that a memory uses is ever touched.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.timing import (
    MAX_BANKS,
    MAX_NODES,
    MAX_PCS,
    MAX_RANKS,
    N_COMMANDS,
    NEVER,
    REFRESH_NONE,
)
from hwmodel.specs.commands import MAX_REQUESTS, MAX_WINDOW, MAX_WINDOW_INSTANCES, MAX_WINDOWS
from hwmodel.specs.memory_spec import MemorySpec

FOREVER = 1 << 60
"""An instant after every other."""
INBOX = 1 << 12
"""Runs of bursts that may wait before a channel's queues (a power of two)."""
LATENCY_BINS = 2048
DQ_MEMORY = 16
"""Column commands remembered for the DQ check; more than fit between a command and its data."""
MAX_SLOTS = MAX_REQUESTS * MAX_PCS

# fields of a queue slot
Q_ROW, Q_COLUMN, Q_BANK, Q_SEQ, Q_TIME, Q_FLAGS, Q_TAG, Q_NEXT, Q_PREV, Q_KIND = range(10)
# of the whole queue, whatever the bank
Q_YOUNGER, Q_OLDER = 10, 11
SLOT_FIELDS = 12

_SCALARS = [
    "now",
    "seq",
    "end",
    "hits",
    "misses",
    "conflicts",
    "bytes",
    "requests",
    "forwarded",
    "rmw_reads",
    "reads",
    "latency_sum",
    "latency_max",
    "head",
    "tail",
    "offset",
    "stream_closed",
    "logged",
    "next_due",
    "urgent",
    "postponed",
    "high",
    "high_column",
    "high_bank",
    "high_row",
    "best_key",
    "best_seq",
    "best_command",
    "best_bank",
    "best_slot",
    "phase",
    "response",
]

_PER_PC = [
    "mode",
    "active_banks",
    "active_count",
    "blocked",
    "held",
    "pair_bank",
    "pair_slot",
    "pair_deadline",
    "open_banks",
    "close_bound",
    "open_bound",
    "dq_at",
    "free_count",
    "reserved",
    "above_high",
    "at_low",
]

CHANNEL = np.dtype(
    [(name, np.int64) for name in _SCALARS]
    + [(name, np.int64, (MAX_PCS,)) for name in _PER_PC]
    + [
        ("waiting", np.int64, (MAX_PCS, 2)),  # requests in the read and write queues
        ("oldest", np.int64, (MAX_PCS, 2)),  # slot of each kind, or -1
        ("youngest", np.int64, (MAX_PCS, 2)),
        ("pending", np.int64, (MAX_PCS, 2)),  # banks with queued requests, a bit mask
        ("hit_banks", np.int64, (MAX_PCS, 2)),  # banks with a queued hit, a bit mask
        ("earliest", np.int64, (MAX_NODES, N_COMMANDS)),  # tick of each command at each node
        ("bus_free", np.int64, (4 * MAX_PCS,)),  # tick from which a bus is free
        ("sync_until", np.int64, (MAX_RANKS,)),  # last tick at which the data clock runs
        ("refresh_issued", np.int64, (MAX_RANKS,)),
        ("refresh_done", np.int64, (MAX_RANKS,)),  # sets refreshed in this round, a bit mask
        ("refresh_set", np.int64, (MAX_RANKS,)),  # settled set of an urgent refresh, or -1
        ("rank_open", np.int64, (MAX_RANKS,)),  # banks open
        ("active_since", np.int64, (MAX_RANKS,)),  # tick from which a bank is open, or -1
        ("active_ticks", np.int64, (MAX_RANKS,)),  # time with a bank open before that
        ("refresh_due", np.int64),  # refreshes that have fallen due so far
        (
            "ring",
            np.int64,
            (MAX_WINDOWS, MAX_WINDOW_INSTANCES, MAX_WINDOW),
        ),  # last N of each window
        ("ring_at", np.int64, (MAX_WINDOWS, MAX_WINDOW_INSTANCES)),
        ("dq", np.int64, (MAX_PCS, DQ_MEMORY, 2)),  # last column commands: tick, kind
        ("commands", np.int64, (N_COMMANDS,)),  # commands issued
        ("open_row", np.int64, (MAX_BANKS,)),  # or -1
        ("bank_commands", np.int64, (MAX_BANKS, 3)),  # activations, reads, writes
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
        ("slot", np.int64, (MAX_SLOTS, SLOT_FIELDS)),  # queue entries by the Q_ names
        ("free", np.int64, (MAX_PCS, MAX_REQUESTS)),  # free slots
        ("latency", np.int64, (LATENCY_BINS,)),  # reads by latency in ticks, the last bin open
        (
            "inbox",
            np.int64,
            (4, INBOX),
        ),  # a ring of runs: tick, first burst, bursts, engine x 4 + kind
    ]
)


def idle_channels(
    memory: MemorySpec, constants: NDArray[np.void], channels: int, response_ticks: int = 0
) -> NDArray[np.void]:
    """`channels` idle channels at tick 0 as CHANNEL records; refreshes phased as the controller
    says."""
    state = np.zeros(channels, CHANNEL)
    c = constants[0]
    state["high"] = -1
    for name in ("earliest", "ring", "dq", "sync_until", "close_bound", "open_bound"):
        state[name] = NEVER
    unset = ["oldest", "youngest", "open_row", "first", "last", "hit", "active", "pair_bank"]
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
    return state
