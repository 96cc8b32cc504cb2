"""Slots of a plain run as tokens come, compiled, wherever they lie, as `IdealAllocator` has them:
`held` of a request are the tokens that it left when it was preempted."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain.plain_state import PlainRequests, PlainRuns


@called
def store(s: Any, q: PlainRequests, request: int, tokens: int) -> None:
    """A request stores so many more; there is room."""
    q.stored[request] += tokens
    q.reserved[request] += tokens
    s.reserved += tokens
    s.free_slots -= tokens


@called
def enter(s: Any, rule: Any, q: PlainRequests, r: PlainRuns, request: int, total: int) -> int:
    """Admit a request if it has room; how many of its tokens it found, -1 if it has not."""
    wanted = total
    if rule.whole_output:
        wanted = max(total, q.prompt[request] + q.output[request] - 1)
    if wanted > s.free_slots:
        return -1
    found = min(r.held[request], total - 1)
    q.resident[request] = True
    store(s, q, request, found + min(total - found, s.budget))
    return found


@called
def release(s: Any, q: PlainRequests, r: PlainRuns, request: int) -> int:
    """A request gives all back, and finds it again; the slots it had."""
    slots = q.reserved[request]
    r.held[request] = q.stored[request]
    s.reserved -= slots
    s.free_slots += slots
    q.reserved[request] = q.stored[request] = 0
    q.resident[request] = False
    return slots
