"""Back-offs of a command log: is each alert answered, and does nothing else ask for an RFMAB?

It counts the rows of each rank by itself, from the description (`refresh.alerts`) and the log.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from hwmodel.oracle.command_log import CommandLog, Ints
from hwmodel.oracle.refresh_audit import (
    Finding,
    bank_in_rank,
    closing_ticks,
    rank_in_channel,
)
from hwmodel.specs.commands import COMMANDS
from hwmodel.specs.memory_fields import Alerts
from hwmodel.specs.memory_spec import MemorySpec


class _Rows:
    """The rows of one rank: those open, and how often each was."""

    def __init__(self, memory: MemorySpec, alerts: Alerts) -> None:
        o = memory.organisation
        self.alerts, self.rows = alerts, o.rows
        self.banks = list(range(o.banks // (o.pseudochannels * o.ranks)))
        self.sets = {banks[0]: banks for banks in memory.refresh_sets()}
        self.open: dict[int, int] = {}
        self.counts: dict[int, Counter[int]] = {bank: Counter() for bank in self.banks}
        self.turns: Counter[int] = Counter()
        self.critical: set[tuple[int, int]] = set()
        self.closed = -1
        """Rows that closed since the last back-off; below 0: there was none."""

    def close(self, bank: int) -> bool:
        """A bank closes; whether a row of the rank is critical, and it may alert."""
        if (row := self.open.pop(bank, None)) is None:
            return False
        self.counts[bank][row] += 1
        if self.counts[bank][row] >= self.alerts.threshold:
            self.critical.add((bank, row))
        self.closed += self.closed >= 0
        return bool(self.critical) and not 0 <= self.closed < self.alerts.delay

    def reset(self, bank: int, row: int) -> None:
        self.counts[bank].pop(row, None)
        self.critical.discard((bank, row))

    def after_refresh(self, bank: int) -> None:
        """The rows whose turn it is start from 0, where refreshes reset them."""
        if self.alerts.reset == "refresh":
            turn, each = self.turns[bank] % self.alerts.refreshes, self.alerts.refreshes
            for row in range(turn * self.rows // each, (turn + 1) * self.rows // each):
                self.reset(bank, row)
            self.turns[bank] += 1

    def after_rfm(self, bank: int) -> None:
        """The row of the most activations, the first of equals, starts from 0."""
        if counts := self.counts[bank]:
            most = max(counts.values())
            self.reset(bank, min(row for row, count in counts.items() if count == most))


def back_offs(memory: MemorySpec, log: CommandLog) -> tuple[list[Finding], dict[int, Ints]]:
    """Rules that are broken in some rank, with the places in the log; and of each rank when it
    backed off, (n, 2) ticks from the end of its reaction to that of its last RFMAB."""
    o, rank = memory.organisation, rank_in_channel(memory, log)
    found: list[Finding] = []
    spans = {}
    for number in range(o.pseudochannels * o.ranks):
        index = np.flatnonzero(rank == number)
        broken, of_rank = _of_rank(memory, log.take(index), index) if memory.alerts else ([], [])
        found += broken
        spans[number] = np.array(of_rank, np.int64).reshape(-1, 2)
    return found, spans


def _of_rank(
    memory: MemorySpec, log: CommandLog, index: np.ndarray
) -> tuple[list[Finding], list[tuple[int, int]]]:
    alerts = memory.alerts
    assert alerts is not None
    rows, react = _Rows(memory, alerts), memory.ticks(alerts.react)
    rfmab = (row for row in memory.constraints if "RFMAB" in memory.in_rows(row.after))
    takes = max((memory.ticks(row.delay) for row in rfmab), default=0)
    due, left, spans = -1, 0, []
    late, needless = [], []
    for at, tick, code, bank, row in zip(
        *(v.tolist() for v in (index, log.tick, log.command, bank_in_rank(memory, log), log.row)),
        strict=True,
    ):
        name = COMMANDS[code]
        backs_off = left > 0 and tick >= due
        if name in ("ACT", "ACT1") and backs_off:
            late.append(at)
        if name in ("ACT", "ACT2"):
            rows.open[bank] = row
        elif name in ("PRE", "RDA", "WRA", "MWRA", "PREA"):
            alerted = [rows.close(each) for each in (rows.banks if name == "PREA" else [bank])]
            if any(alerted) and not left:
                due, left = tick + react, alerts.rfms
        elif name in ("REFPB", "REFAB"):
            for each in rows.banks if name == "REFAB" else rows.sets[bank]:
                rows.after_refresh(each)
        elif name in ("RFM", "RFMAB"):
            for each in rows.banks if name == "RFMAB" else rows.sets[bank]:
                rows.after_rfm(each)
            if name == "RFMAB":
                needless += [] if backs_off else [at]
                left = max(0, left - 1)
                if backs_off and not left:
                    spans.append((due, tick + takes))
                rows.closed = rows.closed if left else 0
    found = [
        (np.array(late, np.int64), "alert: activation in a back-off"),
        (np.array(needless, np.int64), "alert: RFMAB outside a back-off"),
    ]
    if left and len(index) and int(log.tick[-1]) - due > closing_ticks(memory):
        found.append((index[-1:], f"alert: a back-off still lacks {left} RFMAB at the end"))
    if left and len(index):
        spans.append((due, int(log.tick[-1])))
    return found, spans
