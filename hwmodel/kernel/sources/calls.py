"""Accesses that a host submits by calls, and which of them are complete.

Each cycle stages some of the accesses that wait, and lets every channel run as far as its input is
known. Which access a command serves is read from the log of commands.

An access completes when its last burst does: at the end of its data, or one tick after it was taken
where a waiting write answers it. So no command at tick t completes before t + `lookahead`, and
after running up to `now` all completions up to `now` are known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernel.channel_state import INBOX, RUN_KIND, RUN_ROW, RUN_TAKEN
from hwmodel.kernel.driver import AccessSource, driver
from hwmodel.kernel.host import DONE, LOG_KEPT, MORE, array_at
from hwmodel.kernel.jit import c_function, called, inlined
from hwmodel.kernel.kernel_names import MWRA, RD, RDA, READ, Record
from hwmodel.kernel.limits import Int
from hwmodel.kernel.sources.port import (
    A_END,
    A_LEFT,
    A_NEXT,
    A_SEEN,
    A_TAG,
    A_WRITE,
    ACCESS_FIELDS,
    B_FIRST,
    B_FORWARDED,
    B_HALF,
    BACKLOG_FIELDS,
    CHECK_READS,
    CHECK_WRITES,
    LINE,
    LOG_LINES,
    PORT,
    SERVED_LINE,
    TO_COMPLETION,
    TO_END,
    TO_INPUT,
)
from hwmodel.kernel.sources.staging import fill_inbox, next_arrival, stage
from hwmodel.kernel.timing import CONSTANTS


@inlined
def _finish(port: Record, accesses: Int, row: int) -> None:
    """An access is complete: write its completion and free its row."""
    ticks, tags = (
        array_at(port.done_tick, (port.done + 1,), np.int64),
        array_at(port.done_tag, (port.done + 1,), np.int64),
    )
    place = port.done
    while port.ordered == 1 and place > 0 and ticks[place - 1] > accesses[row, A_END]:
        ticks[place], tags[place] = ticks[place - 1], tags[place - 1]
        place -= 1
    ticks[place], tags[place] = accesses[row, A_END], accesses[row, A_TAG]
    port.done += 1
    port.accesses_held -= 1
    port.writes -= accesses[row, A_WRITE]
    accesses[row, A_NEXT] = port.access_free
    port.access_free = row


@inlined
def _served(port: Record, memory: Record, state: Record, channel: int, marked: int) -> None:
    """Book the bursts whose commands a channel has logged; `marked`: 1 if answered reads are
    noted."""
    log = array_at(port.log, (LOG_LINES, port.log_fields), np.int64)
    accesses = array_at(port.accesses, (port.access_rows, ACCESS_FIELDS), np.int64)
    last = port.log_fields - 1
    for i in range(state.logged):
        command = log[i, 1]
        if command >= RD and command <= MWRA:
            row = log[i, last]
            read = command <= RDA
            if not read or accesses[row, A_WRITE] == 0:  # not the read before a partial write
                end = log[i, 0] + (memory.data_end[0] if read else memory.data_end[1])
                accesses[row, A_END] = max(accesses[row, A_END], end)
                accesses[row, A_SEEN] += marked
                accesses[row, A_LEFT] -= 1
                if memory.protects > 0 and row == CHECK_WRITES:
                    port.writes -= 1
                if accesses[row, A_LEFT] == 0:
                    _finish(port, accesses, row)
    if port.keeps > 0:
        kept = array_at(port.kept, (port.keeps, LINE), np.int64)
        for i in range(state.logged):
            for field in range(LINE - 1):
                kept[port.kept_lines, field] = log[i, field]
            kept[port.kept_lines, LINE - 1] = channel
            port.kept_lines += 1
    state.logged = 0


@called
def _forwarded(port: Record, state: Record) -> None:
    """Book the bursts of reads that were taken when the channel ran and answered by waiting writes.

    Only runs that were taken whole are looked at: none of their bursts was taken later.
    """
    accesses = array_at(port.accesses, (port.access_rows, ACCESS_FIELDS), np.int64)
    bytes_answered = array_at(port.completions, (port.access_rows, 2), np.int64)
    for taken in range(port.head, state.head):
        place = taken & (INBOX - 1)
        if state.inbox[RUN_KIND, place] == READ:
            row = state.inbox[RUN_ROW, place]
            answered = (bytes_answered[row, 0] + bytes_answered[row, 1]) >> port.burst_bits
            answered -= accesses[row, A_SEEN]
            if answered > 0 and accesses[row, A_LEFT] > 0:
                accesses[row, A_END] = max(accesses[row, A_END], state.inbox[RUN_TAKEN, place] + 1)
                accesses[row, A_SEEN] += answered
                accesses[row, A_LEFT] -= answered
                if accesses[row, A_LEFT] == 0:
                    _finish(port, accesses, row)


@inlined
def _step(port: Record, memory: Record, to: int) -> int:
    """Tick to which channels may run so that no completion is passed, at most `to`."""
    arrival = next_arrival(port)
    if port.accesses_held > 0:
        to = min(to, port.now + port.lookahead)
    if port.settled < port.done:
        to = min(to, array_at(port.done_tick, (port.done,), np.int64)[port.settled])
    if memory.forwarding == 1:  # may complete a read one tick after it is taken
        if port.untaken > 0 and port.writes > 0:
            return port.now + 1
        return min(to, arrival + 1)
    return min(to, max(arrival, port.now) + port.lookahead)


@inlined
def _nothing_under_way(memory: Record, port: Record) -> bool:
    """Whether every access that was staged is complete, those to checks included."""
    if memory.protects > 0:
        accesses = array_at(port.accesses, (port.access_rows, ACCESS_FIELDS), np.int64)
        if accesses[CHECK_READS, A_LEFT] > 1 or accesses[CHECK_WRITES, A_LEFT] > 1:
            return False
    return bool(port.accesses_held == 0)


@inlined
def _horizon(port: Record, to: int) -> int:
    memory = array_at(port.constants, (1,), CONSTANTS)[0]
    stepwise = port.window > 0 or port.how == TO_COMPLETION
    port.ordered = 1 if stepwise or port.channels == 1 else 0
    if stepwise:
        before = port.settled
        while (
            port.settled < port.done
            and array_at(port.done_tick, (port.done,), np.int64)[port.settled] <= port.now
        ):
            port.settled += 1
        if port.how == TO_COMPLETION and port.settled > before:
            return -1
    idle = port.how == TO_END and _nothing_under_way(memory, port) and port.staged == port.waiting
    if port.now >= to or idle:
        return -1
    return _step(port, memory, to) if stepwise else to


@inlined
def _give(port: Record, until: int) -> int:
    return stage(array_at(port.constants, (1,), CONSTANTS)[0], port, until)


@called
def _fill(port: Record, state: Record, channel: int, last: bool) -> int:
    """A channel without requests stands still until one arrives; what refreshes fell due meanwhile
    is issued then."""
    if port.keeps > 0 and port.kept_lines + LOG_LINES > port.keeps:
        return LOG_KEPT
    memory = array_at(port.constants, (1,), CONSTANTS)[0]
    behind = array_at(port.backlog, (port.channels, BACKLOG_FIELDS), np.int64)[channel]
    fill_inbox(port, state, behind)
    waits = behind[B_FIRST] >= 0
    state.stream_closed = 1 if last and port.how != TO_INPUT and not waits else 0
    port.head = state.head
    marked = port.writes > 0 and memory.forwarding == 1  # otherwise no write answers a read
    port.completion_rows, port.completion_ticks = port.access_rows, 2 if marked else 1
    port.log_rows, port.log_fields = LOG_LINES, LINE if port.keeps > 0 else SERVED_LINE
    return MORE if waits else DONE


@called
def _took(port: Record, state: Record, channel: int, outcome: int) -> int:
    memory = array_at(port.constants, (1,), CONSTANTS)[0]
    behind = array_at(port.backlog, (port.channels, BACKLOG_FIELDS), np.int64)[channel]
    port.untaken -= state.head - port.head
    _served(port, memory, state, channel, 1 if port.completion_ticks > 1 else 0)
    if state.forwarded != behind[B_FORWARDED] or behind[B_HALF] == 1:
        _forwarded(port, state)
        behind[B_HALF] = state.offset > 0
        behind[B_FORWARDED] = state.forwarded
    return DONE


@inlined
def _passed(port: Record, until: int) -> int:
    if port.how == TO_INPUT:
        return DONE
    port.now = until
    return MORE


_drive: Any = driver(AccessSource(_horizon, _give, _fill, _took, _passed))


@c_function(3)
def run_calls(address: int, to: int, how: int) -> int:
    """Run a PORT, which lies at an address, up to tick `to`, `how` TO_TICK, TO_COMPLETION, TO_END
    or TO_INPUT; DONE, WANTS_ROOM or LOG_KEPT. After TO_COMPLETION, `now` is the tick of the
    completion, if there was one."""
    port = array_at(address, (1,), PORT)[0]
    port.how = how
    return int(_drive(port, to))
