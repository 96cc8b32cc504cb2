"""Slots of a plain run as tokens come, compiled, wherever they lie, as `IdealAllocator` has them:
`held` of a request are the tokens that it left when it was preempted. Where reservations are for
all that will be stored (`ahead`), the one that was made last may lack slots, which others leave."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain.plain_state import PlainRequests, PlainRuns


@called
def _take(s: Any, q: PlainRequests, request: int, slots: int) -> None:
    """A request reserves so many more, which are free."""
    q.reserved[request] += slots
    s.reserved += slots
    s.free_slots -= slots


@called
def store(s: Any, rule: Any, q: PlainRequests, request: int, tokens: int) -> None:
    """A request stores so many more; there is room."""
    q.stored[request] += tokens
    if not rule.ahead:
        _take(s, q, request, tokens)


@called
def _fill(s: Any, q: PlainRequests, request: int) -> None:
    """A request, if any, takes the free slots that its reservation still lacks."""
    s.short = -1
    if request < 0:
        return
    lacks = q.prompt[request] + q.output[request] - 1 - q.reserved[request]
    more = min(lacks, s.free_slots)
    if lacks > 0:
        _take(s, q, request, more)
        s.short = request if more < lacks else -1


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
    tokens = found + min(total - found, s.budget)
    q.stored[request] = tokens
    _take(s, q, request, tokens)
    if rule.ahead:
        _fill(s, q, request)
    return found


@called
def release(s: Any, rule: Any, q: PlainRequests, r: PlainRuns, request: int) -> int:
    """A request gives all back, and finds it again; the slots it had."""
    slots = q.reserved[request]
    r.held[request] = q.stored[request]
    s.reserved -= slots
    s.free_slots += slots
    q.reserved[request] = q.stored[request] = 0
    q.resident[request] = False
    if rule.ahead:
        _fill(s, q, -1 if s.short == request else s.short)
    return slots
