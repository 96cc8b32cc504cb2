"""Kernel: activations of each row are counted, and a row that has too many makes its rank alert
(docs/rfm-power.md: per-row activation counting)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.kernel_names import REFAB, REFPB, RFM, RFMAB, Record
from hwmodel.kernel.port import array_at
from hwmodel.kernel.timing import FOREVER, zeroed_bytes

COUNT = np.dtype(np.int32)
"""A row's counter."""


def counters(states: NDArray[np.void]) -> NDArray[Any]:
    """The counters of rows, (channels, rows of all banks), none where rows are not counted. They
    lie in one block behind the states (`zeroed`), so that they live as long."""
    block: Any = states
    while isinstance(block.base, np.ndarray):
        block = block.base
    behind = block.nbytes - zeroed_bytes(len(states), states.dtype)
    return np.asarray(block[block.nbytes - behind :].view(COUNT).reshape(len(states), -1))


def bind(states: NDArray[np.void]) -> None:
    """Tell each state where its counters lie."""
    found = counters(states)
    if found.size:
        first = found.__array_interface__["data"][0]
        states["row_counts"] = first + np.arange(len(states)) * found.strides[0]


@called
def count_row(c: Record, s: Record, bank: int, row: int) -> None:
    """A row closes: it was activated once more, and its rank may alert."""
    counts = array_at(s.row_counts, (c.rows_counted,), np.int32)
    rank, place = c.rank_of[bank], bank * c.rows + row
    counts[place] += 1
    if counts[place] == c.alert_from:
        s.critical[rank] += 1
    if s.alert_delay[rank] > 0:
        s.alert_delay[rank] -= 1
    ready = s.critical[rank] > 0 and s.alert_delay[rank] == 0
    if ready and s.back_off_at[rank] == FOREVER:
        s.alerts += 1
        s.back_off_at[rank] = s.now + c.alert_react
        s.back_off_rfms[rank] = c.alert_rfms
        s.next_due = s.now


@inlined
def _forget(c: Record, s: Record, rank: int, counts: Any, place: int) -> None:
    """The counter at `place` becomes 0."""
    if counts[place] >= c.alert_from:
        s.critical[rank] -= 1
    counts[place] = 0


@called
def _mitigate(c: Record, s: Record, bank: int) -> None:
    """An RFM of a bank takes care of its row of the most activations, the first of equals."""
    if s.bank_commands[bank, 0] == 0:
        return
    counts = array_at(s.row_counts, (c.rows_counted,), np.int32)
    most, first = 0, bank * c.rows
    for place in range(bank * c.rows, (bank + 1) * c.rows):
        if counts[place] > most:
            most, first = counts[place], place
    _forget(c, s, c.rank_of[bank], counts, first)


@called
def _refresh_rows(c: Record, s: Record, bank: int) -> None:
    """A refresh of a bank resets the counters of the rows whose turn it is."""
    counts, turn = array_at(s.row_counts, (c.rows_counted,), np.int32), s.refreshes[bank]
    for row in range(turn * c.rows // c.alert_refreshes, (turn + 1) * c.rows // c.alert_refreshes):
        _forget(c, s, c.rank_of[bank], counts, bank * c.rows + row)
    s.refreshes[bank] = turn + 1 if turn + 1 < c.alert_refreshes else 0


@called
def lower_row_counters(c: Record, s: Record, command: int, rank: int, which: int) -> None:
    """A refresh, an RFM or an RFMAB resets what it does; the last RFMAB ends a back-off."""
    whole = command == REFAB or command == RFMAB
    for i in range(c.banks_per_rank if whole else c.set_size):
        bank = rank * c.banks_per_rank + (i if whole else c.sets[which, i])
        if command == RFM or command == RFMAB:
            _mitigate(c, s, bank)
        elif c.alert_refreshes > 0 and (command == REFPB or command == REFAB):
            _refresh_rows(c, s, bank)
    if command == RFMAB:
        s.back_off_rfms[rank] -= 1
        if s.back_off_rfms[rank] == 0:
            s.back_off_at[rank] = FOREVER
            s.alert_delay[rank] = c.alert_delay
    s.next_due = s.now
