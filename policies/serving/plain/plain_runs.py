"""Runs of slots of a plain run, compiled: an arena with holes, or slabs cut out of one, as `Arena`
and `Slabs` have it, and the places of buckets, as `OdmaAllocator` has it."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain import plain_pools as pools
from policies.serving.plain.plain_holes import give, largest, take
from policies.serving.plain.plain_joining import join
from policies.serving.plain.plain_state import BUCKETS, Holes, PlainQueue, PlainRequests, PlainRuns

SPLIT, MOST = 4, 8
"""As of `policies.allocators.slabs`."""


@called
def largest_place(s: Any, rule: Any, r: PlainRuns) -> int:
    """Slots of the largest hole, or of a larger free block."""
    most = largest(r.common)
    if rule.apart:
        most = max(most, largest(r.kept))
    if rule.parted:
        most = max(most, pools.largest_block(r.pools))
    if rule.slabs:
        for slab in range(s.slabs):
            if r.slab_free[slab]:
                most = max(most, r.slab_size[slab])
    return most


@called
def ready(s: Any, r: PlainRuns, size: int) -> int:
    """The lowest slab of blocks of this size that has a free one; -1: none."""
    found = -1
    for slab in range(s.slabs):
        lower = found < 0 or r.slab_start[slab] < r.slab_start[found]
        if lower and r.slab_size[slab] == size and r.slab_free[slab]:
            found = slab
    return found


@called
def cut(s: Any, rule: Any, r: PlainRuns, size: int) -> int:
    """A new slab of blocks of this size; -1: there is no room."""
    used = 0
    for slab in range(s.slabs):
        if r.slab_size[slab] == size:
            used += r.slab_blocks[slab]  # none of them is free
    blocks, room = min(1 + used // SPLIT, MOST), largest(r.common)
    while size * blocks > room:
        blocks //= 2
    if blocks == 0:
        return -1
    new = s.slabs
    r.slab_start[new] = take(r.common, size * blocks, rule.best_fit != 0)
    r.slab_size[new] = size
    r.slab_blocks[new] = blocks
    r.slab_free[new] = (1 << blocks) - 1
    s.slabs += 1
    return new


@called
def borrowed(s: Any, rule: Any, r: PlainRuns, size: int) -> int:
    """The lowest slab with a free block among those of the least size above; -1: none."""
    least = 0
    for slab in range(s.slabs):
        larger = r.slab_size[slab]
        fits = size < larger <= rule.borrow * size
        if fits and r.slab_free[slab] and (least == 0 or larger < least):
            least = larger
    return ready(s, r, least) if least else -1


@called
def _of_holes(s: Any, rule: Any, r: PlainRuns, h: Holes, request: int, size: int) -> int:
    """As `place`, of these holes."""
    start = take(h, size, rule.best_fit != 0)
    if start < 0:
        return 0
    r.start[request] = start
    s.free_slots -= size
    return size


@called
def place_large(s: Any, rule: Any, r: PlainRuns, request: int, size: int) -> int:
    """As `place`, of a large reservation (`SharedPools.place_large`)."""
    if rule.apart:
        taken = _of_holes(s, rule, r, r.kept, request, size)
        if taken or not rule.overflows:
            return taken
    return place(s, rule, r, request, size, True)


@called
def place(s: Any, rule: Any, r: PlainRuns, request: int, size: int, larger: bool) -> int:
    """A request has its place from now on, of `size` slots or more, with `larger` in any block that
    is large enough; how many, 0 if there is none (nothing changes)."""
    if rule.parted:
        return pools.place(s, r, request, size, larger)
    if not rule.slabs:
        return _of_holes(s, rule, r, r.common, request, size)
    slab = ready(s, r, size)
    if slab < 0:
        slab = cut(s, rule, r, size)
    if slab < 0:
        slab = borrowed(s, rule, r, size)
    if slab < 0:
        return 0
    block = 0
    while not r.slab_free[slab] & (1 << block):
        block += 1
    r.slab_free[slab] -= 1 << block
    size = r.slab_size[slab]
    r.start[request] = r.slab_start[slab] + block * size
    s.free_slots -= size
    return size


@called
def leave(s: Any, rule: Any, r: PlainRuns, start: int, size: int) -> None:
    """A place is free."""
    s.free_slots += size
    if rule.apart and start >= rule.apart_at:
        give(r.kept, start, size)
        return
    if rule.parted:
        pools.leave(r.pools, start, size)
        return
    if not rule.slabs:
        give(r.common, start, size)
        return
    slab = 0
    while not 0 <= start - r.slab_start[slab] < r.slab_size[slab] * r.slab_blocks[slab]:
        slab += 1
    r.slab_free[slab] |= 1 << ((start - r.slab_start[slab]) // size)
    if r.slab_free[slab] == (1 << r.slab_blocks[slab]) - 1:
        give(r.common, r.slab_start[slab], size * r.slab_blocks[slab])
        s.slabs -= 1
        last = s.slabs
        r.slab_start[slab] = r.slab_start[last]
        r.slab_size[slab] = r.slab_size[last]
        r.slab_blocks[slab] = r.slab_blocks[last]
        r.slab_free[slab] = r.slab_free[last]


@called
def decided(s: Any, rule: Any, q: PlainRequests, r: PlainRuns, request: int) -> int:
    """Slots that a request should have; `large`: whether that is a large reservation
    (`OdmaAllocator._decide`)."""
    s.large = 0
    slots = r.slots[request]
    if rule.kind != BUCKETS:
        return slots
    if rule.parted:
        slots = pools.size_of(r.pools, slots)
    elif slots > rule.space:
        slots = 0
    generated = q.output[request] - q.left[request]
    outgrown = generated > 0 and slots < q.prompt[request] + generated + 1
    if r.unsure[request] or outgrown or slots == 0 or r.bucket[request] == rule.buckets:
        s.large = 1
        return r.large_slots[request]
    return slots


@called
def slots_in(rule: Any, q: PlainRequests, r: PlainRuns, request: int, bucket: int) -> int:
    """Slots that a request needs in a bucket (`OdmaAllocator._slots_in`)."""
    output = r.bounds[bucket]
    if rule.total:
        output -= q.prompt[request]
    slots = (q.prompt[request] + output + rule.align - 1) // rule.align * rule.align
    return min(slots, r.large_slots[request])


@called
def _place_anew(s: Any, rule: Any, r: PlainRuns, request: int, slots: int, large: int) -> int:
    """As `place`, of an admission (`OdmaSizes._place`)."""
    if large:
        return place_large(s, rule, r, request, slots)
    size = place(s, rule, r, request, slots, rule.bucket_larger != 0)
    if size == 0 and rule.bucket_larger:
        size = place_large(s, rule, r, request, r.large_slots[request])
    return size


@called
def _make_room(
    s: Any, rule: Any, q: PlainRequests, c: PlainQueue, r: PlainRuns, slots: int, large: int
) -> bool:
    """By joining holes, where they may be joined; whether there is one of so many slots now."""
    if not rule.joins:
        return False
    if not large or not rule.apart:
        return join(s, rule, q, c, r, r.common, slots)
    if join(s, rule, q, c, r, r.kept, slots):
        return True
    return rule.overflows != 0 and join(s, rule, q, c, r, r.common, slots)


@called
def admit(
    s: Any, rule: Any, q: PlainRequests, c: PlainQueue, r: PlainRuns, request: int, tokens: int
) -> bool:
    """Reserve what a request should have, and store its first tokens; whether there is room."""
    asked = decided(s, rule, q, r, request)
    large = s.large
    size = _place_anew(s, rule, r, request, asked, large)
    if size == 0 and _make_room(s, rule, q, c, r, asked, large):
        size = _place_anew(s, rule, r, request, asked, large)
    if size == 0:
        return False
    q.reserved[request] = size
    q.stored[request] = tokens
    q.resident[request] = True
    s.reserved += size
    if rule.kind == BUCKETS:
        r.held[request] = size
        if r.guess[request, 0] < 0:
            r.guess[request, 0] = s.epoch
            r.guess[request, 1] = r.raw[request]
            r.guess[request, 2] = _sized(rule, r, r.raw[request], r.raw_slots[request])
            r.guess[request, 3] = asked
            r.guess[request, 4] = size
            r.guess[request, 5] = large
    return True


@called
def _sized(rule: Any, r: PlainRuns, bucket: int, slots: int) -> int:
    """Slots of the place of so many in a bucket, as far as there is any."""
    if rule.parted and bucket < rule.buckets:
        block = pools.size_of(r.pools, slots)
        return block if block else slots
    return slots


@called
def migrate(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, r: PlainRuns, request: int) -> bool:
    """A request that has outgrown its place moves to a larger one; whether there is one
    (`OdmaAllocator.migrate`)."""
    large, start, old = r.large_slots[request], r.start[request], q.reserved[request]
    if large <= old:
        return False
    size = place_large(s, rule, r, request, large)
    if size == 0 and rule.next_larger:
        for bucket in range(rule.buckets):
            slots = slots_in(rule, q, r, request, bucket)
            if slots >= q.stored[request] + 1:
                size = place(s, rule, r, request, slots, False)
                if size:
                    break
    if size == 0:
        return False
    r.leaving[s.leaving, 0] = start
    r.leaving[s.leaving, 1] = old
    s.leaving += 1
    move = c.moves[s.moves]
    move[0] = request
    move[1] = start
    move[2] = r.start[request]
    move[3] = q.stored[request]
    move[4] = old
    s.moves += 1
    q.reserved[request] = size
    s.reserved += size
    r.held[request] += size
    r.moved[request] += 1
    q.reserved_ever[request] += old
    return True


@called
def settle(s: Any, rule: Any, r: PlainRuns) -> None:
    """What requests have left is free."""
    for nth in range(s.leaving):
        leave(s, rule, r, r.leaving[nth, 0], r.leaving[nth, 1])
        s.reserved -= r.leaving[nth, 1]
    s.leaving = 0


@called
def dismiss(s: Any, rule: Any, q: PlainRequests, r: PlainRuns, request: int) -> int:
    """A request gives its place back; the slots it had."""
    size = q.reserved[request]
    leave(s, rule, r, r.start[request], size)
    r.start[request] = -1
    s.reserved -= size
    q.reserved[request] = q.stored[request] = 0
    q.resident[request] = False
    return size
