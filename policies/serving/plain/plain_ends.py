"""What ends with the steps of a plain run, compiled: memory is taken back, and clients who waited
for an answer send their next request."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain import plain_blocks as blocks
from policies.serving.plain import plain_runs as runs
from policies.serving.plain import plain_tokens as tokens
from policies.serving.plain.plain_state import (
    BLOCKS,
    BUCKETS,
    TOKENS,
    Blocks,
    PlainQueue,
    PlainRequests,
    PlainRuns,
)

MOST_LEFT = 1 << 62
"""More tokens than any request has left."""


@called
def _answered(s: Any, q: PlainRequests, c: PlainQueue, request: int) -> None:
    """A client who waited for this sends its next request (`Clients.after`)."""
    head = c.head[request]
    c.unanswered[head] -= 1
    if c.unanswered[head]:
        return
    request = c.following[request]
    if request < 0:
        if s.to_send == len(c.to_send):
            return
        request = c.to_send[s.to_send]
        s.to_send += 1
    while request >= 0:
        at_s, at = s.now_s + c.think_s[request], s.coming
        q.arrival_s[request] = at_s
        while at > s.next and (
            c.coming_s[at - 1] > at_s
            or (c.coming_s[at - 1] == at_s and c.arriving[at - 1] > request)
        ):
            c.coming_s[at] = c.coming_s[at - 1]
            c.arriving[at] = c.arriving[at - 1]
            at -= 1
        c.coming_s[at] = at_s
        c.arriving[at] = request
        s.coming += 1
        request = c.sample[request]


@called
def _end(s: Any, rule: Any, q: PlainRequests, b: Blocks, r: PlainRuns, request: int) -> None:
    """A request has its last token."""
    q.end_s[request] = s.now_s
    s.ended += 1
    s.changes += 1
    if rule.kind == BLOCKS:
        q.run_tokens[request] = q.stored[request] / b.runs[b.row[request]]
        q.reserved_ever[request] += blocks.release(s, rule, q, b, request, True)
        blocks.forget(s, b, request)
    elif rule.kind == TOKENS:
        q.run_tokens[request] = q.stored[request] / rule.runs_each
        q.reserved_ever[request] += tokens.release(s, rule, q, r, request)
        r.held[request] = 0
    else:
        q.run_tokens[request] = q.stored[request] / rule.runs_each
        q.reserved_ever[request] += runs.dismiss(s, rule, q, r, request)


@called
def complete(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, r: PlainRuns, rounds: int) -> None:
    """The steps are done (`Engine.complete`), but for the memory of those that have ended."""
    if s.leaving:
        runs.settle(s, rule, r)
    for nth in range(s.chunks):
        if c.chunks[nth, 3]:
            request = c.chunks[nth, 0]
            q.left[request] -= 1
            if q.first_s[request] != q.first_s[request]:  # not yet
                q.first_s[request] = s.now_s
    for place in range(s.decoding):
        q.left[c.batch[place]] -= rounds
    least = MOST_LEFT
    for place in range(s.running):
        least = min(least, q.left[c.batch[place]])
    s.seen_place = s.kept_place = s.running if least else 0


@called
def take_back(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns) -> bool:
    """The memory of those that have ended; False where the policy learns before all of it is."""
    while s.seen_place < s.running:
        request = c.batch[s.seen_place]
        s.seen_place += 1
        if q.left[request]:
            c.batch[s.kept_place] = request
            s.kept_place += 1
            continue
        _end(s, rule, q, b, r, request)
        if rule.answers:
            _answered(s, q, c, request)
        if rule.kind == BUCKETS or rule.fleet:
            c.log[s.log] = request
            s.log += 1
        if rule.kind == BUCKETS:
            s.to_learn -= 1
            if rule.parted and s.to_learn <= 0 and s.seen_place < s.running:
                return False
    s.running = s.kept_place
    return True
