"""Fast-forward of periodic streams: a channel that is found in a state it has been in before
repeats what it did since.

A stream is periodic when each period asks for the same columns of the same banks and the same
kinds, its rows moved on by a constant (weights in address order). The state of a channel between
two periods, with ticks counted from now and rows from the period's first, determines everything
that follows. So the result is exact: the figures are those of simulating every burst.

Refresh is part of the state: the phase of tREFI against the period. Where no state comes back
within `patience` periods, the rest is extrapolated from them with a stated bound
(`Forecast.bound`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwmodel.kernel.channel_state import (
    Q_BANK,
    Q_COLUMN,
    Q_FLAGS,
    Q_KIND,
    Q_NEXT,
    Q_ROW,
    Q_SEQ,
    Q_TIME,
)
from hwmodel.kernel.timing import DQ_TICKS, NEVER, PAGE_TIMEOUT, Int
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.specs.memory_spec import MemorySpec

Past = dict[str, Any]
"""Counters of a channel between two periods."""
PATIENCE = 512
"""Periods simulated in search of a state that comes back (more while refreshes pile up)."""
_COUNTERS = (
    "now", "hits", "misses", "conflicts", "bytes", "requests", "forwarded", "rmw_reads", "reads",
    "latency_sum", "commands", "bank_commands", "latency", "refresh_due",
)  # fmt: skip
_CLOCKS = (
    "end", "next_due", "ready", "floor", "bus_free", "sync_until", "ring", "pair_deadline",
    "last_use", "active_since",
)  # fmt: skip


@dataclass(frozen=True)
class Stream:
    """One period of a stream on one channel.

    `address` (n,) local byte addresses and `kind` (n,) READ, WRITE or PARTIAL_WRITE of the first
    period; each later one is `rows` rows further on (around the end of the memory).
    """

    address: Int
    kind: Int
    rows: int


@dataclass(frozen=True)
class Forecast:
    """How a periodic run came about."""

    simulated: int
    """Periods simulated burst by burst."""
    cycle: int
    """Periods after which the state came back; 0 where it did not."""
    bound: float
    """Largest relative error of the time. 0 where a state came back or all was simulated; else the
    range of the time a period took, relative to its mean, for the share that was extrapolated: a
    bound as long as the channel goes on as it was seen to (it may settle into another rhythm with
    its refreshes later than that)."""


def row_period(memory: MemorySpec) -> int:
    """Rows after which the banks of a row's addresses repeat: 1, or more with bank hashes.

    Raises ValueError if rows are not the uppermost field of the address map.
    """
    if memory.resolved_address_map()[-1][0] != "row":
        raise ValueError(f"{memory.name}: a periodic stream needs rows on top of the address map")
    bits = memory.field_bits()
    return max((1 << (h.row_bit + bits[h.field]) for h in memory.bank_hash), default=1)


def sequential(memory: MemorySpec, written: float = 0.0) -> Stream:
    """Addresses in order; of every 1/`written` KiB the last is written."""
    rows = row_period(memory)
    o = memory.organisation
    address = np.arange(0, rows * _row_span(memory), o.burst_bytes, dtype=np.int64)
    every = round(1 / written) if written else 0
    kind = (address // 1024 % every == every - 1) if every else np.zeros(len(address), bool)
    return Stream(address, kind.astype(np.int64), rows)


def _row_span(memory: MemorySpec) -> int:
    """Bytes between an address and the same column and bank of the next row."""
    o = memory.organisation
    return o.capacity_bytes // o.rows


def run_periodic(run: OpenLoop, stream: Stream, periods: int, patience: int = PATIENCE) -> Forecast:
    """Feed `periods` periods of `stream` to the only channel of `run`, skipping what repeats, and
    finish it.

    Counters and ticks of `run` are those of all periods. Raises ValueError for a period of rows
    that moves addresses to other banks, or a run of several channels.
    """
    memory = run.memory
    if stream.rows % row_period(memory) or run.channels != 1:
        raise ValueError("a periodic stream needs one channel and a period of whole bank hashes")
    o = memory.organisation
    step = stream.rows * _row_span(memory)

    def feed(number: int) -> None:
        run.feed(0, (stream.address + number * step) % o.capacity_bytes, stream.kind)

    seen: dict[bytes, int] = {}
    past: list[Past] = []
    done = 0
    while done < periods:
        feed(done)
        done += 1
        key = _key(run, stream.rows * done)
        if (first := seen.get(key)) is not None:
            cycle = done - first
            times = (periods - done) // cycle
            _skip(run, past[first - 1], times, times * cycle * stream.rows)
            for number in range(done + times * cycle, periods):
                feed(number)
            simulated = periods - times * cycle
            run.finish()
            return Forecast(simulated, cycle, 0.0)
        seen[key] = done
        past.append(_counters(run))
        if done >= patience and not _debt_grows(past):
            return _extrapolate(run, past, periods, stream.rows, feed)
    run.finish()
    return Forecast(done, 0, 0.0)


def _key(run: OpenLoop, rows: int) -> bytes:
    """The state of the channel as far as it bears on what follows; ticks from now, rows from
    `rows`."""
    s, c = run.states[0], run._constants[0]
    now, size = int(s["now"]), run.memory.organisation.rows
    pages = int(c["page_policy"]) >= PAGE_TIMEOUT
    sets, interval = int(c["refresh_sets"]), int(c["refresh_interval"])
    due, issued = int(s["refresh_due"]), s["refresh_issued"][: int(c["ranks"])]
    is_open = s["open_row"] >= 0
    slots = _waiting(run)
    entries = s["slot"][slots][:, [Q_BANK, Q_COLUMN, Q_FLAGS, Q_KIND, Q_ROW, Q_TIME]]
    entries[:, 4] = (entries[:, 4] - rows) % size
    entries[:, 5] -= now
    pair = [slots.index(int(p)) if b >= 0 else -1 for b, p in zip(
        s["pair_bank"], s["pair_slot"], strict=True)]  # fmt: skip
    parts: list[Int] = [
        np.maximum(s["ready"] - now, 0), np.maximum(s["floor"] - now, 0),
        np.maximum(s["bus_free"] - now, 0),
        np.maximum(s["sync_until"] - now, -1), _windows(run, now), _data_bus(run, now),
        np.where(is_open, (s["open_row"] - rows) % size, -1),
        np.minimum(s["streak"], c["hit_limit"]), s["mode"], s["pair_bank"], np.array(pair),
        np.where(s["pair_bank"] >= 0, s["pair_deadline"] - now, 0),
        np.isin(slots, s["active"]).astype(np.int64), entries,
        np.array([s["next_due"] - now if interval else 0, due * interval % sets]),
        due - issued, issued % sets, s["refresh_set"], s["refresh_done"],
        np.where(is_open & pages, s["last_use"] - now, 0), s["timeout"],
        np.where(s["timed_out_row"] >= 0, (s["timed_out_row"] - rows) % size, -1),
    ]  # fmt: skip
    return b"".join(np.ascontiguousarray(part, np.int64).tobytes() for part in parts)


def _waiting(run: OpenLoop) -> list[int]:
    """Slots of all requests that wait, by age."""
    s = run.states[0]
    found = [int(slot) for slot in s["active"] if slot >= 0]
    for first in s["first"].ravel():
        slot = int(first)
        while slot >= 0:
            found.append(slot)
            slot = int(s["slot"][slot, Q_NEXT])
    return sorted(found, key=lambda slot: int(s["slot"][slot, Q_SEQ]))


def _windows(run: OpenLoop, now: int) -> Int:
    """The commands that activation windows remember, oldest first, as long as they matter."""
    s, c = run.states[0], run._constants[0]
    found = []
    for w in range(int(c["windows"])):
        length, delay = int(c["window"][w, 1]), int(c["window"][w, 2])
        for ring, at in zip(s["ring"][w], s["ring_at"][w], strict=True):
            found.append(np.maximum(np.roll(ring[:length], -int(at)) - now, -delay))
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _data_bus(run: OpenLoop, now: int) -> Int:
    """Whether DQ is taken (1) at each tick from now on; 0 where bursts cannot collide."""
    s = run.states[0]
    ticks = np.arange(now, now + DQ_TICKS)
    return (s["dq"][:, ticks % DQ_TICKS] == ticks).astype(np.int64)


def _counters(run: OpenLoop) -> Past:
    s = run.states[0]
    found = {name: s[name].copy() for name in _COUNTERS}
    open_now = np.where(s["active_since"] >= 0, s["now"] - s["active_since"], 0)
    found["debt"] = s["refresh_due"] - s["refresh_issued"][0]
    return found | {"active_ticks": s["active_ticks"] + open_now}


def _skip(run: OpenLoop, past: Past, times: int, rows: int) -> None:
    """Let what happened since `past` happen `times` times more; rows move on by `rows`."""
    s, c = run.states[0], run._constants[0]
    ticks = (int(s["now"]) - int(past["now"])) * times
    sets, interval = int(c["refresh_sets"]), int(c["refresh_interval"])
    before = int(s["refresh_due"])
    rounds = (before - int(past["refresh_due"])) * times // sets
    for name, value in _counters(run).items():
        if name != "debt":
            s[name] += (value - past[name]) * times
    s["refresh_due"] = before + rounds * sets
    s["refresh_issued"] += rounds * sets
    s["phase"] += ticks - rounds * interval  # 0 where the state came back
    for name in _CLOCKS:
        value = s[name]
        s[name] = np.where((value > NEVER) & (value != -1), value + ticks, value)
    s["dq"] = np.roll(np.where(s["dq"] > NEVER, s["dq"] + ticks, NEVER), ticks % DQ_TICKS, axis=1)
    s["slot"][:, Q_TIME] += ticks
    size = run.memory.organisation.rows
    for name in ("open_row", "timed_out_row"):
        s[name] = np.where(s[name] >= 0, (s[name] + rows) % size, s[name])
    s["slot"][:, Q_ROW] = (s["slot"][:, Q_ROW] + rows) % size


def _debt_grows(past: list[Past]) -> bool:
    """Whether more refreshes were owed of late than ever in the first half of what was seen (then
    the channel is not yet in its steady state)."""
    debt = [int(p["debt"]) for p in past]
    half = len(debt) // 2
    return max(debt[half:]) > max(debt[:half], default=0)


def _extrapolate(
    run: OpenLoop, past: list[Past], periods: int, rows: int,
    feed: Callable[[int], None],
) -> Forecast:  # fmt: skip
    """No state came back: the second half of what was simulated stands for the periods that are
    skipped; the last one is simulated."""
    done = len(past)
    half = done // 2
    skipped = max(0, (periods - done) // half * half)
    took = np.diff([int(p["now"]) for p in past])[1:]
    _skip(run, past[half - 1], skipped // half, skipped * rows)
    for number in range(done + skipped, periods):
        feed(number)
    run.finish()
    spread = float((took.max() - took.min()) / took.mean())
    return Forecast(periods - skipped, 0, spread * skipped / periods)
