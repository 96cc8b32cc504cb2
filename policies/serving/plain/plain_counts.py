"""What is counted of the steps of a plain run, compiled: a row of `Stretches`, and sums as
`policies.serving.metrics` has them."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain import plain_blocks as blocks
from policies.serving.plain import plain_pools as pools
from policies.serving.plain import plain_runs as runs
from policies.serving.plain.plain_state import (
    BLOCKS,
    TOKENS,
    Blocks,
    PlainQueue,
    PlainRequests,
    PlainRuns,
    Rows,
)


@called
def _steady_until(s: Any, kept: Rows, begin_s: float, base: int, rounds: int) -> None:
    """The steady part of sessions lasts to the last of these steps that begins by `steady_s`
    (`SteadyPart.done`)."""
    at_s = s.close_s = begin_s
    for step in range(rounds - 1):
        at_s += kept.times_s[base + step]
        if at_s > s.steady_s:
            break
        s.close_s = at_s
    s.close_made = s.made
    s.close_more = -1


@called
def _made_before(s: Any, kept: Rows, begin_s: float, base: int, rounds: int) -> int:
    """Output tokens of those of these steps that begin before `close_s` (`Stretch.made`, where a
    step may begin earlier by a rounding)."""
    after_s, begun = 0.0, 0
    for step in range(rounds):
        after_s += kept.times_s[base + step]
        if begin_s + after_s - kept.times_s[base + step] >= s.close_s:
            break
        begun += 1
    return begun * s.decoding + (s.begun if begun else 0)


@called
def count_made(s: Any, rule: Any, kept: Rows, begin_s: float, base: int, rounds: int) -> None:
    """Output tokens before the steady part of the run closes, if it does in these steps."""
    if rule.sessions and rounds > 1 and begin_s <= s.steady_s:
        _steady_until(s, kept, begin_s, base, rounds)
    if s.close_more < 0:
        s.close_more = _made_before(s, kept, begin_s, base, rounds)


@called
def _stored(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, rounds: int) -> int:
    """Tokens in memory in the first of these steps, of which all are done; each once, however many
    have it."""
    stored = s.context + s.decoding
    if s.decoding < s.running:
        stored = -s.decoding * (rounds - 1)
        for place in range(s.running):
            stored += q.stored[c.batch[place]]
    if rule.once:
        twice = -(rule.space - s.free) * rule.block
        for place in range(s.running):
            twice += q.reserved[c.batch[place]]
        stored -= max(twice, 0)
    return stored


@called
def fill_row(
    s: Any,
    rule: Any,
    q: PlainRequests,
    c: PlainQueue,
    b: Blocks,
    r: PlainRuns,
    kept: Rows,
    rounds: int,
) -> None:
    """The row of these steps, but for their times, and for what was reserved as they began."""
    row, decoding, base = kept.stretches[s.rows], s.decoding, s.steps
    row[5] = rounds
    row[6] = s.running
    row[7] = decoding
    row[8] = _stored(s, rule, q, c, rounds)
    row[10] = (rule.space - s.free) * rule.block if rule.kind == BLOCKS else s.reserved
    row[11] = rule.slots
    row[13] = decoding + s.begun
    row[14] = decoding
    row[15] = s.fitting
    row[18] = s.limit
    if rule.kind == BLOCKS:
        if rounds > 1:
            blocks.fewer(b, rule.block, c.batch, decoding, rounds)
            for step in range(rounds):
                row[17] += (rule.block * b.first[step]) * kept.times_s[base + step]
    elif rule.kind == TOKENS:
        if rounds > 1 and not rule.ahead:
            for step in range(rounds):
                row[17] += (decoding * (rounds - 1 - step)) * kept.times_s[base + step]
    else:
        if s.free_slots and rule.parted:
            row[12] = pools.lost(r) / s.free_slots
        elif s.free_slots:
            row[12] = 1 - runs.largest_place(s, rule, r) / s.free_slots
        unneeded = s.reserved
        for place in range(s.running):
            request = c.batch[place]
            unneeded -= min(q.reserved[request], q.prompt[request] + q.output[request] - 1)
        row[16] = unneeded


@called
def count_bytes(s: Any, rule: Any, rounds: int) -> None:
    """Tokens and bytes of the steps (`Sums.add`)."""
    decoding, size = s.decoding, rule.kv_bytes
    s.made += decoding * rounds + s.begun
    s.new_preempted += s.preempted
    s.new_prefilled += s.chunked
    if s.chunks:
        s.new_cached += s.cached
    s.weight_bytes += rule.weight_bytes * rounds
    s.read_bytes += (s.context * rounds + decoding * (rounds * (rounds - 1) // 2)) * size
    s.written_bytes += decoding * size * rounds
    s.chunk_read_bytes += s.behind * size
    s.chunk_written_bytes += s.chunked * size
