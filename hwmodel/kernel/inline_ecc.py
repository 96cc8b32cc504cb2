"""Kernel: what a request asks of the check bytes of in-line ECC (rules.md). They lie in
bursts of their own behind the data; each protects `protects` bursts of data."""

from __future__ import annotations

from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import PARTIAL_WRITE, READ, WRITE, Record

UNASKED = -1


@inlined
def access_to_checks(
    memory: Record, state: Record, check: int, first: int, last: int, kind: int
) -> int:
    """How a request for the bursts `first` to `last` accesses the burst of checks `check`, before
    them: READ; WRITE, where it writes all the data that the burst protects; PARTIAL_WRITE; or
    UNASKED, where the channel's last request has asked for it likewise."""
    written = 0 if kind == READ else 1
    if state.last_check == 2 * check + written:
        return UNASKED
    state.last_check = 2 * check + written
    state.checks += 1
    if kind == READ:
        return READ
    data = check * memory.protects
    whole = kind == WRITE and first <= data and data + memory.protects - 1 <= last
    return WRITE if whole else PARTIAL_WRITE
