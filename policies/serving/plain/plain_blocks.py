"""The blocks of a plain run, compiled: first freed, first reused, as `BlockAllocator`, `BlockPool`
and `BlockTables` have it."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.requests.requests import IntArray
from policies.serving.plain import plain_texts as texts
from policies.serving.plain.plain_state import Blocks, PlainRequests


@called
def take_next(s: Any, rule: Any, b: Blocks) -> int:
    """The next free block."""
    head = s.head
    while b.place[b.log[head]] != head:  # of one that was taken from the middle
        head += 1
    block = b.log[head]
    b.place[block] = -1
    b.written[block] += 1
    if rule.texts:
        texts.lose(b, block)
        b.users[block] = 1
    s.head = head + 1
    s.free -= 1
    return block


@called
def give_back(s: Any, b: Blocks, block: int) -> None:
    """A block is free, behind all others."""
    if s.tail == len(b.log):
        at = len(b.place)
        for entry in range(s.head, s.tail):
            other = b.log[entry]
            if b.place[other] == entry:
                b.log[at] = other
                b.place[other] = at
                at += 1
        s.head = len(b.place)
        s.tail = at
    b.log[s.tail] = block
    b.place[block] = s.tail
    s.tail += 1
    s.free += 1


@called
def append(b: Blocks, row: int, block: int) -> None:
    """A block follows those of a row."""
    at = b.places[row]
    if at == 0 or b.table[row, at - 1] + 1 != block:
        b.runs[row] += 1
    b.table[row, at] = block
    b.places[row] = at + 1


@called
def extend(s: Any, rule: Any, q: PlainRequests, b: Blocks, request: int, tokens: int) -> None:
    """A request stores so many tokens in all from now on; there is room."""
    row, block, before = b.row[request], rule.block, q.stored[request]
    lacking = (tokens + block - 1) // block - b.places[row]
    for _ in range(lacking):
        append(b, row, take_next(s, rule, b))
    if lacking > 0:
        q.reserved[request] += lacking * block
    b.tokens[row] = tokens
    q.stored[request] = tokens
    if rule.texts:
        texts.publish(b, block, request, before)


@called
def lacks(b: Blocks, block: int, request: int, tokens: int) -> int:
    """Blocks that a request needs for so many tokens in all."""
    return max((tokens + block - 1) // block - b.places[b.row[request]], 0)


@called
def fitting(s: Any, b: Blocks, block: int, batch: IntArray, at: int, end: int) -> int:
    """How many of the batch from `at` to `end` can store a token more, from the first on."""
    room = s.free
    for place in range(at, end):
        row = b.row[batch[place]]
        if b.places[row] * block == b.tokens[row]:
            room -= 1
            if room < 0:
                return place - at
    return end - at


@called
def rounds_of(s: Any, b: Blocks, block: int, batch: IntArray, end: int, limit: int) -> int:
    """How many tokens, up to `limit`, each of the first `end` of the batch can store."""
    if end * ((limit + block - 1) // block) <= s.free:
        return limit
    for turn in range(block):
        b.first[turn] = 0
    for place in range(end):
        row = b.row[batch[place]]
        b.first[b.places[row] * block - b.tokens[row]] += 1
    turns = s.free // end  # in so many rounds times a block's tokens each asks as often
    at = turns * block
    if at >= limit:
        return limit
    room = s.free - turns * end
    for turn in range(block):
        room -= b.first[turn]
        if room < 0:
            return min(at + turn, limit)
    return limit


@called
def advance(
    s: Any,
    rule: Any,
    q: PlainRequests,
    b: Blocks,
    batch: IntArray,
    begin: int,
    end: int,
    rounds: int,
) -> None:
    """So many tokens more for each of the batch from `begin` to `end`; there is room. A row asks in
    the rounds that find it full, and of all that ask in a round the first is first."""
    block = rule.block
    if rounds == 1:
        for place in range(begin, end):
            request = batch[place]
            row = b.row[request]
            if b.places[row] * block == b.tokens[row]:
                append(b, row, take_next(s, rule, b))
                q.reserved[request] += block
            b.tokens[row] += 1
            q.stored[request] += 1
        return
    first, wanted = b.first, 0
    for turn in range(rounds + 1):
        first[turn] = 0
    for place in range(begin, end):
        row = b.row[batch[place]]
        full = b.places[row] * block - b.tokens[row]
        while full < rounds:
            first[full + 1] += 1
            full += block
            wanted += 1
    for nth in range(wanted):
        b.handed[nth] = take_next(s, rule, b)
    for turn in range(1, rounds):
        first[turn] += first[turn - 1]
    for place in range(begin, end):
        request = batch[place]
        row = b.row[request]
        full = b.places[row] * block - b.tokens[row]
        while full < rounds:
            append(b, row, b.handed[first[full]])
            first[full] += 1
            full += block
            q.reserved[request] += block
        b.tokens[row] += rounds
        q.stored[request] += rounds


@called
def fewer(b: Blocks, block: int, batch: IntArray, end: int, rounds: int) -> None:
    """`first`: of each of the last rounds, how many blocks fewer the first `end` of the batch had
    after it than now."""
    for turn in range(rounds):
        b.first[turn] = 0
    for place in range(end):
        at = rounds - 1 - (b.tokens[b.row[batch[place]]] - 1) % block
        while at > 0:
            b.first[at - 1] += 1
            at -= block
    for at in range(rounds - 2, -1, -1):
        b.first[at] += b.first[at + 1]


@called
def own_left(b: Blocks, block: int, request: int, limit: int) -> int:
    """Blocks of its last residence that a request finds, of at most `limit` tokens."""
    kept = b.kept_row[request]
    if kept < 0:
        return 0
    most = min(limit // block, b.kept_count[kept])
    for place in range(most):
        if b.written[b.kept[kept, place]] != b.kept_written[kept, place]:
            return place
    return most


@called
def enter(s: Any, rule: Any, q: PlainRequests, b: Blocks, request: int, hits: int) -> None:
    """A request is resident and holds so many blocks that it found."""
    s.rows_unused -= 1
    row, block = b.rows_unused[s.rows_unused], rule.block
    b.row[request] = row
    b.owner[row] = request
    b.places[row] = b.tokens[row] = b.runs[row] = 0
    shares, kept = b.shares[request], b.kept_row[request]
    for place in range(hits):
        own = b.hit[place] if shares else b.kept[kept, place]
        append(b, row, own)
        if rule.texts:
            b.users[own] += 1
            if b.users[own] > 1:
                continue
        b.place[own] = -1
        s.free -= 1
    if shares:
        texts.count_hits(s, q, b, request, hits * block)
    b.reused[request] = hits
    b.tokens[row] = hits * block
    q.reserved[request] = hits * block
    q.stored[request] = hits * block
    q.resident[request] = True


@called
def _keep_own(s: Any, b: Blocks, block: int, request: int) -> None:
    """What a request has stored is found again by itself."""
    row, kept = b.row[request], b.kept_row[request]
    full = b.tokens[row] // block
    if kept < 0 and full:
        s.kept_unused -= 1
        kept = b.kept_unused[s.kept_unused]
        b.kept_row[request] = kept
        b.kept_count[kept] = 0
    for place in range(b.reused[request], full):
        own = b.table[row, place]
        b.kept[kept, place] = own
        b.kept_written[kept, place] = b.written[own]
    if full:
        b.kept_count[kept] = max(b.kept_count[kept], full)


@called
def release(s: Any, rule: Any, q: PlainRequests, b: Blocks, request: int, ends: bool) -> int:
    """A request gives all back, tail first; what is in full blocks is found again where that is
    kept. The slots it had."""
    row, block = b.row[request], rule.block
    if b.shares[request]:
        if b.goes_on[request] or (rule.keeps and not ends):
            texts.keep(b, block, request)
    elif rule.keeps and not ends:
        _keep_own(s, b, block, request)
    for place in range(b.places[row] - 1, -1, -1):
        own = b.table[row, place]
        if rule.texts:
            b.users[own] -= 1
            if b.users[own]:
                continue
        give_back(s, b, own)
    b.reused[request] = 0
    b.rows_unused[s.rows_unused] = row
    s.rows_unused += 1
    b.row[request] = -1
    slots = q.reserved[request]
    q.reserved[request] = q.stored[request] = 0
    q.resident[request] = False
    return slots


@called
def forget(s: Any, b: Blocks, request: int) -> None:
    """A request has ended: nothing is found of it."""
    kept = b.kept_row[request]
    if kept >= 0:
        b.kept_row[request] = -1
        b.kept_unused[s.kept_unused] = kept
        s.kept_unused += 1
