"""Blocks that several requests may find, compiled, as `PrefixIndex` and `BlockCache` have it.

A name stands for a place of a text: of a system prompt, of a prompt with samples, of a session, or
of a request that shares with others. Blocks of one name hold the same; the oldest is found, until
it is handed out again.
"""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain.plain_state import Blocks, PlainRequests

NOBODY = -1


@called
def name(b: Blocks, number: int, block: int) -> None:
    """A block is found under a name from now on, behind those that are."""
    last = b.newest[number]
    b.name[block] = number
    b.older[block] = last
    b.newer[block] = NOBODY
    if last < 0:
        b.oldest[number] = block
    else:
        b.newer[last] = block
    b.newest[number] = block


@called
def lose(b: Blocks, block: int) -> None:
    """A block that is found under a name, if any, is not any more."""
    number = b.name[block]
    if number < 0:
        return
    older, newer = b.older[block], b.newer[block]
    if older < 0:
        b.oldest[number] = newer
    else:
        b.newer[older] = newer
    if newer < 0:
        b.newest[number] = older
    else:
        b.older[newer] = older
    b.name[block] = NOBODY


@called
def _hits(b: Blocks, base: int, at: int, end: int) -> int:
    """Adds to `hit` the blocks of places `at` to `end` of a text; up to which they are there."""
    for place in range(at, end):
        block = b.oldest[base + place]
        if block < 0:
            return place
        b.hit[place] = block
    return max(at, end)


@called
def find(b: Blocks, block: int, request: int, limit: int) -> int:
    """Blocks of the longest prefix of a request, of at most `limit` tokens, that are in memory:
    the first of `hit`."""
    full, at = limit // block, 0
    for part in range(b.part_at[request], b.part_at[request + 1]):
        end = max(min(b.part_end[part], full), at)
        reached = _hits(b, b.part_base[part], at, end)
        if reached < end:
            return reached
        at = end
    base = b.own_base[request]
    return at if base < 0 else _hits(b, base, at, full)


@called
def free_among(b: Blocks, count: int) -> int:
    """Of the first so many of `hit`, those that nobody holds."""
    free = 0
    for place in range(count):
        free += b.place[b.hit[place]] >= 0
    return free


@called
def publish(b: Blocks, block: int, request: int, before: int) -> None:
    """Others may find the full blocks of a prompt from now on, which held `before` tokens."""
    if before >= b.until[request]:
        return
    row, at = b.row[request], 0
    full = b.tokens[row] // block
    for part in range(b.part_at[request], b.part_at[request + 1]):
        end = max(min(b.part_end[part], full), at)
        for place in range(max(before // block, at), end):
            name(b, b.part_base[part] + place, b.table[row, place])
        at = end


@called
def keep(b: Blocks, block: int, request: int) -> None:
    """What a request has stored is found again: what is its own, or its session's."""
    row, at, base = b.row[request], 0, b.own_base[request]
    full = b.tokens[row] // block
    for part in range(b.part_at[request], b.part_at[request + 1]):
        at = max(min(b.part_end[part], full), at)
    for place in range(max(at, b.reused[request]), full):
        name(b, base + place, b.table[row, place])


@called
def count_hits(s: Any, q: PlainRequests, b: Blocks, request: int, tokens: int) -> None:
    """What is asked of prompts that may be found, and what is, at their first admission."""
    if b.counted[request]:
        b.counted[request] = 0
        s.looked_up_tokens += q.prompt[request]
        s.hit_tokens += tokens
