"""The equal steps of a plain run that pass together, compiled: how many they are, and what becomes
of them."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain import plain_blocks as blocks
from policies.serving.plain import plain_times as times
from policies.serving.plain.plain_counts import count_bytes, count_made, fill_row
from policies.serving.plain.plain_growth import advance
from policies.serving.plain.plain_state import (
    BLOCKS,
    NEVER_S,
    TOKENS,
    Blocks,
    PlainQueue,
    PlainRequests,
    PlainRuns,
    Rows,
    SharesBySize,
)


@called
def _rounds(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, clocks: Any) -> int:
    """How many steps from this one on are equal (`Engine.rounds`)."""
    limit = rule.rounds
    if rule.sampled:
        limit = min(limit, max(clocks[0].due - s.step, 1))
    if limit == 1 or s.chunks or s.preempted or s.moves or s.partial:
        return 1
    for place in range(s.decoding):
        limit = min(limit, q.left[c.batch[place]])
    limit -= 1
    if rule.kind == BLOCKS:
        return 1 + blocks.rounds_of(s, b, rule.block, c.batch, s.decoding, limit)
    if rule.kind == TOKENS and not rule.ahead:
        return 1 + (min(limit, s.free_slots // s.decoding) if s.decoding else limit)
    for place in range(s.decoding):
        request = c.batch[place]
        limit = min(limit, q.reserved[request] - q.stored[request])
    return 1 + limit


@called
def pass_steps(
    s: Any,
    rule: Any,
    q: PlainRequests,
    c: PlainQueue,
    b: Blocks,
    r: PlainRuns,
    clocks: Any,
    kept: Rows,
    curve: SharesBySize,
) -> int:
    """The steps pass, and are a row more; how many. In a fleet 0 where they end after `until_s`:
    then the caller has to put back what is in s."""
    rounds = _rounds(s, rule, q, c, b, clocks)
    event_s = NEVER_S
    if s.waiting == 0 and s.next < s.coming:
        event_s = c.coming_s[s.next]
    row, begin_s, base = kept.stretches[s.rows], s.now_s, s.steps
    for column in range(len(row)):
        row[column] = 0.0
    rounds = times.passed(s, rule, c, kept, curve, rounds, event_s, row)
    if rule.fleet and s.now_s > s.until_s:
        return 0
    count_made(s, rule, kept, begin_s, base, rounds)
    row[0] = begin_s
    row[9] = (rule.space - s.free) * rule.block if rule.kind == BLOCKS else s.reserved
    if rounds > 1:
        advance(s, rule, q, c, b, 0, s.decoding, rounds - 1)
    fill_row(s, rule, q, c, b, r, kept, rounds)
    s.rows += 1
    s.steps += rounds
    s.step += rounds
    count_bytes(s, rule, rounds)
    return rounds
