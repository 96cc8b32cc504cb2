"""A stream of bursts for one channel: in its order, as fast as the queues take it, or each from its
tick of arrival on."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernel.driver import AccessSource, driver
from hwmodel.kernel.host import DONE, LOG_KEPT, MORE, array_at, host_type
from hwmodel.kernel.inbox import put
from hwmodel.kernel.inline_ecc import UNASKED, access_to_checks
from hwmodel.kernel.jit import c_function, inlined
from hwmodel.kernel.kernel_names import LOG_FULL, Record
from hwmodel.kernel.timing import CONSTANTS

_AT_ONCE = 256
"""Runs given to a channel between two looks at it, of the INBOX it has."""
TRACE = host_type(
    {
        "bursts": "bursts of the stream",
        "taken": "of these, those that were put into the inbox",
        "timed": "1: each has its tick of arrival",
        "outcome": "how the channel last returned (`hwmodel.kernel.kernel_names`)",
    },
    {
        "burst": "indices of bursts",
        "kind": "READ, WRITE or PARTIAL_WRITE of each",
        "arrival": "tick of each, where it is timed",
    },
)


@inlined
def _horizon(host: Record, to: int) -> int:
    return to if host.now < to else -1


@inlined
def _give(host: Record, until: int) -> int:
    return DONE  # a channel takes what it has room for when it runs


@inlined
def _fill(host: Record, state: Record, number: int, last: bool) -> int:
    """Neighbours of one kind and tick are a run, and an access to in-line ECC."""
    memory = array_at(host.constants, (1,), CONSTANTS)[0]
    burst = array_at(host.burst, (host.bursts,), np.int64)
    kind = array_at(host.kind, (host.bursts,), np.int64)
    arrival = array_at(host.arrival, (host.bursts,), np.int64)
    timed, protects, end = host.timed == 1, memory.protects, host.bursts
    place = host.taken
    while place < end and state.tail - state.head < _AT_ONCE:
        first = place
        place += 1
        while (
            place < end and burst[place] == burst[place - 1] + 1
            and kind[place] == kind[first] and (not timed or arrival[place] == arrival[first])
            and (protects == 0 or burst[place] % protects != 0)
        ):  # fmt: skip
            place += 1
        tick = arrival[first] if timed else 0
        if protects > 0:
            check = burst[first] // protects
            asked = access_to_checks(
                memory, state, check, burst[first], burst[place - 1], kind[first]
            )
            if asked != UNASKED:
                put(state, tick, memory.first_check + check, 1, asked, 0)
        put(state, tick, burst[first], place - first, kind[first], 0)
    host.taken = place
    return MORE if place < end else DONE


@inlined
def _took(host: Record, state: Record, number: int, outcome: int) -> int:
    host.outcome = outcome
    return LOG_KEPT if outcome == LOG_FULL else DONE


@inlined
def _passed(host: Record, until: int) -> int:
    return DONE


_drive: Any = driver(AccessSource(_horizon, _give, _fill, _took, _passed))


@c_function(2)
def run_trace(address: int, to: int) -> int:
    """Run the channel of a TRACE record, which lies at an address, up to tick `to`, until its
    stream is over (DONE), or its log full (LOG_KEPT)."""
    return int(_drive(array_at(address, (1,), TRACE)[0], to))
