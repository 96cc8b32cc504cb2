"""What runs is scheduled first in a step of a plain run, compiled, as `policies.engines.growth` and
`EngineV1.schedule` have it: each that decodes gets a token; who has no room migrates, or one is
preempted; then the prefill under way goes on."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain import plain_blocks as blocks
from policies.serving.plain import plain_runs as runs
from policies.serving.plain import plain_tokens as tokens
from policies.serving.plain.plain_state import (
    BLOCKS,
    BUCKETS,
    KV_MEMORY,
    NEVER_S,
    TOKENS,
    Blocks,
    PlainQueue,
    PlainRequests,
    PlainRuns,
)


@called
def _preempt(
    s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns, request: int
) -> bool:
    """A request gives its memory back and waits in front of the line; False where so many were and
    nothing was made (`TokenProgress.preempted`)."""
    if rule.kind == BLOCKS:
        blocks.release(s, rule, q, b, request, False)
    elif rule.kind == TOKENS:
        tokens.release(s, rule, q, r, request)
    else:
        runs.dismiss(s, rule, q, r, request)
    s.first = (s.first - 1) % len(c.line)
    c.line[s.first] = request
    s.waiting += 1
    q.reserved_ever[request] = 0
    s.preempted += 1
    s.all_preempted += 1
    if q.futile[request] == 0:
        q.futile_turn[request] = s.turn
        s.turn += 1
    q.futile[request] += 1
    if s.all_preempted % rule.most_futile:
        return True
    made, before = 0, s.left_then
    for each in range(len(q.left)):
        made += q.left[each]
    s.left_then = made
    if made == before:
        return False
    for each in range(len(q.futile)):
        q.futile[each] = 0
    return True


@called
def _fitting(
    s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, at: int, end: int
) -> int:
    """How many of the batch from `at` to `end` have room for a token, from the first on."""
    if rule.kind == BLOCKS:
        return blocks.fitting(s, b, rule.block, c.batch, at, end)
    if rule.kind == TOKENS and not rule.ahead:
        return min(end - at, s.free_slots)
    for place in range(at, end):
        request = c.batch[place]
        if q.reserved[request] <= q.stored[request]:
            return place - at
    return end - at


@called
def advance(
    s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, begin: int, end: int, rounds: int
) -> None:
    """So many tokens more for each of the batch from `begin` to `end`."""
    if rule.kind == BLOCKS:
        blocks.advance(s, rule, q, b, c.batch, begin, end, rounds)
    elif rule.kind == TOKENS:
        for place in range(begin, end):
            tokens.store(s, rule, q, c.batch[place], rounds)
    else:
        for place in range(begin, end):
            q.stored[c.batch[place]] += rounds


@called
def decode(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns) -> bool:
    """A token more for each that decodes; who has no room migrates, or one is preempted
    (`Growth.decode_one_by_one`). False as of `_preempt`."""
    grown = 0
    while grown < s.running - s.partial:
        fitting = _fitting(s, rule, q, c, b, grown, s.running - s.partial)
        if fitting:
            advance(s, rule, q, c, b, grown, grown + fitting, 1)
            grown += fitting
            continue
        request = c.batch[grown]
        if rule.kind == BUCKETS and runs.migrate(s, rule, q, c, r, request):
            continue
        if rule.preempts_last:
            request = c.batch[s.running - 1]
            s.running -= 1
            s.partial = 0
        else:
            s.running -= 1
            for place in range(grown, s.running):
                c.batch[place] = c.batch[place + 1]
        if not _preempt(s, rule, q, c, b, r, request):
            return False
    s.decoding = s.running - s.partial
    return True


@called
def compute(
    s: Any, q: PlainRequests, c: PlainQueue, request: int, start: int, tokens: int, last: bool
) -> None:
    """The step computes so many tokens of a prompt."""
    chunk = c.chunks[s.chunks]
    chunk[0] = request
    chunk[1] = start
    chunk[2] = tokens
    chunk[3] = last
    s.chunks += 1
    s.begun += last
    s.chunked += tokens
    s.pairs += tokens * start + tokens * (tokens + 1) // 2
    s.behind += start
    s.budget -= tokens
    s.partial = not last


@called
def _continue(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns) -> bool:
    """The next chunk of the prefill under way, or it is preempted. False as of `_preempt`."""
    request = c.batch[s.running - 1]
    start = q.stored[request]
    rest = q.prompt[request] + q.output[request] - q.left[request] - start
    many = min(rest, s.budget)
    if rule.kind == BLOCKS:
        room = blocks.lacks(b, rule.block, request, start + many) <= s.free
    elif rule.kind == TOKENS and not rule.ahead:
        room = many <= s.free_slots
    else:
        room = start + many <= q.reserved[request]
    if not room:
        s.running -= 1
        s.partial = 0
        return _preempt(s, rule, q, c, b, r, request)
    if rule.kind == BLOCKS:
        blocks.extend(s, rule, q, b, request, start + many)
    elif rule.kind == TOKENS:
        tokens.store(s, rule, q, request, many)
    else:
        q.stored[request] = start + many
    compute(s, q, c, request, start, many, many == rest)
    return True


@called
def begin_step(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns) -> bool:
    """What runs is scheduled. False as of `_preempt`."""
    unsent = s.to_send < len(c.to_send)
    lasts = s.waiting > 0 or s.next < s.coming or unsent  # `SteadyPart.began`
    if rule.fleet:
        lasts = lasts or s.now_s < rule.lasts_s
    if rule.sessions:
        s.steady_s = NEVER_S if unsent else rule.last_s
        lasts = s.now_s <= s.steady_s
    s.lasts = lasts
    if lasts:
        s.close_s = s.now_s
        s.close_made = s.made
        s.close_more = -1
    s.chunks = s.begun = s.chunked = s.pairs = s.behind = s.moves = s.preempted = s.cached = 0
    s.decoding = 0
    if not rule.prefills_first and not decode(s, rule, q, c, b, r):
        return False
    s.budget = rule.budget - s.decoding
    if s.partial and s.budget and not _continue(s, rule, q, c, b, r):
        return False
    s.before = s.running
    s.limit = KV_MEMORY
    return True
