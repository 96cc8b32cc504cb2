"""Kernel: commands that come at intervals, as ZQ calibration does (rules.md: commands at
intervals). Each is urgent once it is due, and keeps others off the banks whose commands its rows
make it wait for: of its rank, pseudo-channel or channel. Otherwise these would put it off."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import PERIODIC, URGENT_REFRESH, Record
from hwmodel.kernel.limits import MAX_PERIODIC, MAX_RANKS
from hwmodel.kernel.maintenance import Candidate, first_of, rank_mask, step_for_rank
from hwmodel.kernel.mechanism import Mechanism
from hwmodel.specs.memory_spec import MemorySpec

OF_RANK, OF_PSEUDOCHANNEL, OF_CHANNEL = 0, 1, 2


def _lower(memory: MemorySpec) -> dict[str, Any]:
    every, closed = memory.periodic, memory.periodic_closed
    holds = [_holds(memory, kind) for kind in every]
    return {
        "n_periodic": len(every), "periodic_every": list(every.values()),
        "periodic_closed": [kind in closed for kind in every],
        "periodic_holds": holds,
    }  # fmt: skip


def _holds(memory: MemorySpec, kind: str) -> int:
    """OF_RANK, OF_PSEUDOCHANNEL or OF_CHANNEL: what commands have to wait for it."""
    scopes = {row.scope for row in memory.constraints if kind in memory.in_rows(row.before)}
    if scopes & {"channel", "other_pseudochannel"}:
        return OF_CHANNEL
    return OF_PSEUDOCHANNEL if scopes & {"pseudochannel", "other_rank"} else OF_RANK


@inlined
def _due(memory: Record, state: Record, rank: int) -> int:
    blocked = 0
    for port in range(memory.n_periodic):
        if state.periodic_due[rank, port] > state.now:
            state.next_due = min(state.next_due, state.periodic_due[rank, port])
        else:
            state.maintained |= 1 << rank
            blocked |= rank_mask(memory, rank) if memory.periodic_holds[port] == OF_RANK else -1
            if memory.periodic_holds[port] == OF_CHANNEL:
                for pc in range(memory.pcs):
                    state.blocked[pc] = -1
    return blocked


@inlined
def _offer(memory: Record, state: Record, rank: int, pair_open: bool, best: Candidate) -> Candidate:
    for port in range(memory.n_periodic):
        if state.periodic_due[rank, port] <= state.now:
            kind, closes = PERIODIC + port, memory.periodic_closed[port]
            tick, command, bank = step_for_rank(
                memory, state, kind, memory.lane[kind], closes, rank, pair_open
            )
            best = first_of(best, tick, URGENT_REFRESH, bank, command, bank, -1)
    return best


@inlined
def _done(memory: Record, state: Record, command: int, rank: int, which: int) -> None:
    if memory.n_periodic > 0 and command >= PERIODIC:
        state.periodic_due[rank, command - PERIODIC] = (
            state.now + memory.periodic_every[command - PERIODIC]
        )
        state.next_due = state.now


MECHANISM = Mechanism(
    on="n_periodic",
    lower=_lower,
    constants={"n_periodic": "commands that come at intervals"},
    arrays={
        "periodic_every": (MAX_PERIODIC,),  # ticks from one to the next in a rank
        "periodic_closed": (MAX_PERIODIC,),  # 1: all banks of it have to be closed
        "periodic_holds": (MAX_PERIODIC,),  # OF_RANK, OF_PSEUDOCHANNEL or OF_CHANNEL
    },
    state={"periodic_due": (MAX_RANKS, MAX_PERIODIC)},  # tick of each
    first=lambda c: {"periodic_due": c["periodic_every"]},
    passed=lambda c, ticks: {
        "periodic_due": c["periodic_every"] - ticks % np.maximum(c["periodic_every"], 1)
    },
    due=_due,
    offer=_offer,
    done=_done,
)
