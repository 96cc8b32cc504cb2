"""Kernel: per-row activation counting (rules.md). Activations of each row are counted when
it closes; a row that has too many makes its rank alert, which then backs off for RFMABs."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernel.host import array_at
from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import REFAB, REFPB, RFM, RFMAB, URGENT_REFRESH, Record
from hwmodel.kernel.limits import FOREVER, MAX_BANKS, MAX_RANKS
from hwmodel.kernel.maintenance import (
    Candidate,
    bank_of,
    banks_in,
    first_of,
    rank_mask,
    step_for_rank,
)
from hwmodel.kernel.mechanism import CountTable, Mechanism
from hwmodel.specs.memory_spec import MemorySpec


def _lower(memory: MemorySpec) -> dict[str, int]:
    alerts, o = memory.alerts, memory.organisation
    if alerts is None:
        return {}
    return {
        "alert_from": alerts.threshold, "alert_react": memory.ticks(alerts.react),
        "alert_rfms": alerts.rfms, "alert_delay_rows": alerts.delay,
        "alert_refreshes": alerts.refreshes if alerts.reset == "refresh" else 0,
        "rows": o.rows, "rows_counted": o.rows * o.bank_numbers,
    }  # fmt: skip


@inlined
def _closed(memory: Record, state: Record, bank: int, row: int) -> None:
    if memory.alert_from == 0:
        return
    _count_row(memory, state, bank, row)


@called
def _count_row(memory: Record, state: Record, bank: int, row: int) -> None:
    """A row closes: it was activated once more, and its rank may alert."""
    counts = array_at(state.row_counts, (memory.rows_counted,), np.int32)
    rank, place = memory.rank_of[bank], bank * memory.rows + row
    counts[place] += 1
    if counts[place] == memory.alert_from:
        state.critical[rank] += 1
    if state.alert_delay[rank] > 0:
        state.alert_delay[rank] -= 1
    ready = state.critical[rank] > 0 and state.alert_delay[rank] == 0
    if ready and state.back_off_at[rank] == FOREVER:
        state.alerts += 1
        state.back_off_at[rank] = state.now + memory.alert_react
        state.back_off_rfms[rank] = memory.alert_rfms
        state.next_due = state.now


@inlined
def _forget(memory: Record, state: Record, rank: int, counts: Any, place: int) -> None:
    """The counter at `place` becomes 0."""
    if counts[place] >= memory.alert_from:
        state.critical[rank] -= 1
    counts[place] = 0


@called
def _mitigate(memory: Record, state: Record, bank: int) -> None:
    """An RFM of a bank takes care of its row of the most activations, the first of equals."""
    if state.bank_commands[bank, 0] == 0:
        return
    counts = array_at(state.row_counts, (memory.rows_counted,), np.int32)
    most, first = 0, bank * memory.rows
    for place in range(bank * memory.rows, (bank + 1) * memory.rows):
        if counts[place] > most:
            most, first = counts[place], place
    _forget(memory, state, memory.rank_of[bank], counts, first)


@called
def _refresh_rows(memory: Record, state: Record, bank: int) -> None:
    """A refresh of a bank resets the counters of the rows whose turn it is."""
    counts, turn = (
        array_at(state.row_counts, (memory.rows_counted,), np.int32),
        state.refreshes[bank],
    )
    for row in range(
        turn * memory.rows // memory.alert_refreshes,
        (turn + 1) * memory.rows // memory.alert_refreshes,
    ):
        _forget(memory, state, memory.rank_of[bank], counts, bank * memory.rows + row)
    state.refreshes[bank] = turn + 1 if turn + 1 < memory.alert_refreshes else 0


@inlined
def _due(memory: Record, state: Record, rank: int) -> int:
    """All banks of a rank that backs off."""
    if memory.alert_from == 0:
        return 0
    if state.back_off_at[rank] > state.now:
        state.next_due = min(state.next_due, state.back_off_at[rank])
        return 0
    state.maintained |= 1 << rank
    return rank_mask(memory, rank)


@inlined
def _offer(memory: Record, state: Record, rank: int, pair_open: bool, best: Candidate) -> Candidate:
    """The next step of the next RFMAB of a back-off, which waits for what a REFAB waits for."""
    if memory.alert_from == 0:
        return best
    if state.back_off_at[rank] <= state.now:
        tick, command, bank = step_for_rank(memory, state, RFMAB, REFAB, 1, rank, pair_open)
        best = first_of(best, tick, URGENT_REFRESH, bank, command, bank, -1)
    return best


@inlined
def _done(memory: Record, state: Record, command: int, rank: int, which: int) -> None:
    if memory.alert_from == 0:
        return
    if command == REFPB or command == REFAB or command == RFM or command == RFMAB:
        _reset_rows(memory, state, command, rank, which)


@called
def _reset_rows(memory: Record, state: Record, command: int, rank: int, which: int) -> None:
    """A refresh, an RFM or an RFMAB resets what it does; the last RFMAB ends a back-off."""
    whole = command == REFAB or command == RFMAB
    for i in range(banks_in(memory, whole)):
        bank = bank_of(memory, whole, rank, which, i)
        if command == RFM or command == RFMAB:
            _mitigate(memory, state, bank)
        elif memory.alert_refreshes > 0:
            _refresh_rows(memory, state, bank)
    if command == RFMAB:
        state.back_off_rfms[rank] -= 1
        if state.back_off_rfms[rank] == 0:
            state.back_off_at[rank] = FOREVER
            state.alert_delay[rank] = memory.alert_delay_rows
    state.next_due = state.now


MECHANISM = Mechanism(
    on="alert_from",
    lower=_lower,
    constants={
        "alert_from": "activations of a row from which its rank alerts; 0: rows are not counted",
        "alert_react": "ticks from an alert to its back-off",
        "alert_rfms": "RFMABs of a back-off",
        "alert_delay_rows": "rows that close after it before the rank may alert again",
        "alert_refreshes": "refreshes of a bank that reset all its rows; 0: none does",
        "rows": "rows of a bank, where they are counted",
        "rows_counted": "rows of all banks, where they are counted",
    },
    state={
        "alerts": (),  # alerts so far
        "row_counts": (),  # address of the counters of rows, or 0
        "critical": (MAX_RANKS,),  # rows that have as many activations as alert
        "back_off_at": (MAX_RANKS,),  # tick from which it backs off, or FOREVER
        "back_off_rfms": (MAX_RANKS,),  # RFMABs of it to come
        "alert_delay": (MAX_RANKS,),  # rows to close before it may alert
        "refreshes": (MAX_BANKS,),  # refreshes of a bank in this turn of its rows
    },
    first=lambda c: {"back_off_at": FOREVER},
    table=CountTable("row_counts", "rows_counted"),
    closed=_closed,
    due=_due,
    offer=_offer,
    done=_done,
)
