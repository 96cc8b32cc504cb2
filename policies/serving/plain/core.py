"""The compiled loop of a plain run: steps of one card from arrival to arrival, as
`policies.serving.replica` and `policies.engines.engine_v1` make them one by one.

What it does is theirs, and said there: it joins the line, schedules running requests first, grows
or migrates or preempts, continues the prefill under way, admits in order while there is room and
budget, asks for a probe, advances as many steps as are equal and nothing cuts, and takes back what
ended. `policies.serving.plain.plain_run` calls it, and looks at its state in between.
"""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called, simulation
from policies.serving.plain import plain_blocks as blocks
from policies.serving.plain import plain_joining as joining
from policies.serving.plain import plain_pools as pools
from policies.serving.plain import plain_runs as runs
from policies.serving.plain import plain_texts as texts
from policies.serving.plain import plain_times as times
from policies.serving.plain import plain_tokens as tokens
from policies.serving.plain.plain_state import (
    ADMIT,
    BEGIN,
    BLOCKS,
    BUCKETS,
    COUNT,
    END,
    ENDED,
    FIT,
    FUTILE,
    GO,
    KEEP,
    KV_MEMORY,
    LEARN,
    LOOK,
    NEVER,
    OFFERED_LOAD,
    PROBE,
    RUNS,
    SEQUENCE_CAP,
    TOKEN_BUDGET,
    TOKENS,
    WANT,
    WARM,
    Blocks,
    PlainQueue,
    PlainRequests,
    PlainRuns,
    Rows,
)
from policies.serving.plain.plain_state import ROWS as FULL
from policies.serving.stretch_rows import MOST_ROWS, MOST_STEPS

NONE = -1
"""No reason to return."""
NEVER_S = 1e300
"""When nothing cuts a stretch."""
NO_ROW = 1 << 62


@called
def _join(s: Any, c: PlainQueue) -> bool:
    """Who has come waits; whether there is anybody. If not, it is the time of the next arrival."""
    while s.next < s.coming and c.coming_s[s.next] <= s.now_s:
        c.line[(s.first + s.waiting) % len(c.line)] = c.arriving[s.next]
        s.waiting += 1
        s.next += 1
    if s.running == 0 and s.waiting == 0:
        at_s = c.coming_s[s.next]
        s.idle_s += at_s - s.now_s
        s.now_s = at_s
        return False
    return True


@called
def _preempt(
    s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns, request: int
) -> bool:
    """A request gives its memory back and waits in front of the line; False where so many were and
    nothing was made (`TokenProgress.preempted`)."""
    if rule.kind == BLOCKS:
        blocks.release(s, rule, q, b, request, False)
    elif rule.kind == TOKENS:
        tokens.release(s, q, r, request)
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
    if rule.kind == TOKENS:
        return min(end - at, s.free_slots)
    for place in range(at, end):
        request = c.batch[place]
        if q.reserved[request] <= q.stored[request]:
            return place - at
    return end - at


@called
def _advance(
    s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, begin: int, end: int, rounds: int
) -> None:
    """So many tokens more for each of the batch from `begin` to `end`."""
    if rule.kind == BLOCKS:
        blocks.advance(s, rule, q, b, c.batch, begin, end, rounds)
    elif rule.kind == TOKENS:
        for place in range(begin, end):
            tokens.store(s, q, c.batch[place], rounds)
    else:
        for place in range(begin, end):
            q.stored[c.batch[place]] += rounds


@called
def _decode(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns) -> bool:
    """A token more for each that decodes; who has no room migrates, or one is preempted
    (`Growth.decode_one_by_one`). False as of `_preempt`."""
    grown = 0
    while grown < s.running - s.partial:
        fitting = _fitting(s, rule, q, c, b, grown, s.running - s.partial)
        if fitting:
            _advance(s, rule, q, c, b, grown, grown + fitting, 1)
            grown += fitting
            continue
        request = c.batch[grown]
        if rule.kind == BUCKETS and runs.migrate(s, rule, q, c, r, request):
            continue
        if rule.kind == BLOCKS or rule.kind == TOKENS or rule.preempts_last:
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
def _chunk(
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
    elif rule.kind == TOKENS:
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
        tokens.store(s, q, request, many)
    else:
        q.stored[request] = start + many
    _chunk(s, q, c, request, start, many, many == rest)
    return True


@called
def _begin(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns) -> bool:
    """What runs is scheduled. False as of `_preempt`."""
    unsent = s.to_send < len(c.to_send)
    lasts = s.waiting > 0 or s.next < s.coming or unsent  # `SteadyPart.began`
    if rule.sessions:
        s.steady_s = NEVER_S if unsent else rule.last_s
        lasts = s.now_s <= s.steady_s
    if lasts:
        s.close_s = s.now_s
        s.close_made = s.made
        s.close_more = -1
    s.chunks = s.begun = s.chunked = s.pairs = s.behind = s.moves = s.preempted = s.cached = 0
    if not _decode(s, rule, q, c, b, r):
        return False
    s.budget = rule.budget - s.decoding
    if s.partial and s.budget and not _continue(s, rule, q, c, b, r):
        return False
    s.before = s.running
    s.limit = KV_MEMORY
    return True


@called
def _reserve(
    s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns, request: int
) -> int:
    """Admit a request if it has room for all of its tokens; how many it found, -1 if it has not."""
    total = q.prompt[request] + q.output[request] - q.left[request]
    if rule.kind == BLOCKS:
        wanted = rule.spared if s.free < rule.space else rule.spared_idle
        wanted += (total + rule.block - 1) // rule.block
        if b.shares[request]:
            found = texts.find(b, rule.block, request, total - 1)
            wanted -= found - texts.free_among(b, found)
        else:
            found = blocks.own_left(b, rule.block, request, total - 1)
        if wanted > s.free:
            return -1
        blocks.enter(s, rule, q, b, request, found)
        found *= rule.block
        blocks.extend(s, rule, q, b, request, found + min(total - found, s.budget))
        return found
    if rule.kind == TOKENS:
        return tokens.enter(s, rule, q, r, request, total)
    if not rule.joins and runs.decided(s, rule, q, r, request) > runs.largest_place(s, rule, r):
        return -1
    return 0 if runs.admit(s, rule, q, c, r, request, min(total, s.budget)) else -1


@called
def _admit(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns) -> int:
    """Admit from the head of the line (`Admission._admit_from_line`); why it returns."""
    s.limit = OFFERED_LOAD
    while s.waiting > 0:
        request = c.line[s.first]
        s.asked = request
        if s.running >= rule.cap:
            s.limit = SEQUENCE_CAP
            return NONE
        if s.budget == 0 or s.partial:
            s.limit = TOKEN_BUDGET
            return NONE
        if rule.kind == BUCKETS and r.epoch[request] != s.epoch:
            return WANT
        found = _reserve(s, rule, q, c, b, r, request)
        if found < 0:
            s.limit = KV_MEMORY
            return NEVER if s.running == 0 else NONE
        s.first = (s.first + 1) % len(c.line)
        s.waiting -= 1
        c.batch[s.running] = request
        s.running += 1
        if rule.kind == RUNS or rule.kind == BUCKETS:
            r.fit_size[request] = 0
        s.cached += found
        total = q.prompt[request] + q.output[request] - q.left[request]
        many = min(total - found, s.budget)
        _chunk(s, q, c, request, found, many, found + many == total)
    return NONE


@called
def _fit(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, r: PlainRuns) -> int:
    """Slots that the next requests in line would reserve if all free slots were one run
    (`Admission.fitting`); why it returns."""
    s.fitting = 0
    if rule.kind == BLOCKS or rule.kind == TOKENS or s.limit != KV_MEMORY or s.preempted:
        return NONE
    if s.fit_changes != s.changes or s.fit_free != s.free_slots:
        slots = 0
        for nth in range(s.waiting):
            request = c.line[(s.first + nth) % len(c.line)]
            if rule.kind == BUCKETS and r.epoch[request] != s.epoch:
                s.asked = request
                return WANT
            if s.fit_epoch != s.epoch:
                r.fit_size[:] = 0
                s.fit_epoch = s.epoch
            if r.fit_size[request] == 0:
                r.fit_size[request] = runs.decided(s, rule, q, r, request)
            size = r.fit_size[request]
            if slots + size > s.free_slots:
                break
            slots += size
        s.fit_changes = s.changes
        s.fit_free = s.free_slots
        s.fit_slots = slots
    s.fitting = s.fit_slots
    return NONE


@called
def _asks(s: Any, rule: Any, clock: Any, gone: float, spent: float) -> bool:
    """Whether to probe a phase now, of which placement has changed so much, and on which so many
    seconds hang (`Clock.asks`, `SampledMemory._wants`)."""
    most, wide = clock.most, False
    if clock.known:
        wide = clock.wide != 0
        half = clock.half if clock.half >= 0 and s.spent_all != 0 else 0.0
        if half > 0 and spent / s.spent_all * half / clock.mean > rule.again / 2:
            most *= clock.more
    if clock.taken >= most:
        return False
    if clock.taken and s.step < clock.due:
        near = s.step - clock.last < rule.spacing * (s.step - clock.begin)
        if gone <= rule.another and (near or (gone <= rule.change and not wide)):
            return False
    return True


@called
def _changed(now: float, then: float) -> float:
    """How much one of two is larger."""
    return max(now / then, then / now) - 1


@called
def _looks(s: Any, rule: Any, c: PlainQueue, b: Blocks, clocks: Any) -> bool:
    """Whether any phase of the step is to be probed."""
    found = False
    clock = clocks[0]
    if s.decoding and not clock.given and (s.changes != s.seen or s.step >= clock.due):
        extents = s.decoding * rule.runs_each
        if rule.kind == BLOCKS:
            extents = 0
            for place in range(s.decoding):
                extents += b.runs[b.row[c.batch[place]]]
        gone = 0.0
        if clock.taken:
            gone = _changed(float(s.decoding), clock.decoding)
            gone = max(gone, _changed(float(extents), clock.extents))
            gone = max(gone, _changed(s.context / extents, clock.run))
        found = _asks(s, rule, clock, gone, s.spent_attention)
    if not found and s.chunks and not clocks[1].given:
        found = _asks(s, rule, clocks[1], 0.0, s.spent_prefill)
    if not found and s.moves and not clocks[2].given:
        found = _asks(s, rule, clocks[2], 0.0, s.spent_migration)
    return found


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
    if rule.kind == TOKENS:
        return 1 + (min(limit, s.free_slots // s.decoding) if s.decoding else limit)
    for place in range(s.decoding):
        request = c.batch[place]
        limit = min(limit, q.reserved[request] - q.stored[request])
    return 1 + limit


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
def _held_twice(s: Any, rule: Any, q: PlainRequests, c: PlainQueue) -> int:
    """Slots that those who run have together, as often as another one has them, too."""
    twice = -(rule.space - s.free) * rule.block
    for place in range(s.running):
        twice += q.reserved[c.batch[place]]
    return max(twice, 0)


@called
def _stretch(
    s: Any,
    rule: Any,
    q: PlainRequests,
    c: PlainQueue,
    b: Blocks,
    r: PlainRuns,
    clocks: Any,
    kept: Rows,
) -> int:
    """The steps pass, and are a row more; how many."""
    rounds = _rounds(s, rule, q, c, b, clocks)
    event_s = NEVER_S
    if s.waiting == 0 and s.next < s.coming:
        event_s = c.coming_s[s.next]
    row, begin_s, base, decoding = kept.stretches[s.rows], s.now_s, s.steps, s.decoding
    for column in range(len(row)):
        row[column] = 0.0
    rounds = times.passed(s, rule, c, kept, rounds, event_s, row)
    if rule.sessions and rounds > 1 and begin_s <= s.steady_s:
        _steady_until(s, kept, begin_s, base, rounds)
    if s.close_more < 0:
        s.close_more = _made_before(s, kept, begin_s, base, rounds)
    row[0] = begin_s
    row[5] = rounds
    row[6] = s.running
    row[7] = decoding
    row[9] = (rule.space - s.free) * rule.block if rule.kind == BLOCKS else s.reserved
    if rounds > 1:
        _advance(s, rule, q, c, b, 0, decoding, rounds - 1)
    stored = s.context + decoding
    if decoding < s.running:
        stored = -decoding * (rounds - 1)
        for place in range(s.running):
            stored += q.stored[c.batch[place]]
    if rule.once:
        stored -= _held_twice(s, rule, q, c)
    row[8] = stored
    row[11] = rule.slots
    row[13] = decoding + s.begun
    row[14] = decoding
    row[15] = s.fitting
    row[18] = s.limit
    if rule.kind == BLOCKS:
        row[10] = (rule.space - s.free) * rule.block
        if rounds > 1:
            blocks.fewer(b, rule.block, c.batch, decoding, rounds)
            for step in range(rounds):
                row[17] += (rule.block * b.first[step]) * kept.times_s[base + step]
    elif rule.kind == TOKENS:
        row[10] = s.reserved
        if rounds > 1:
            for step in range(rounds):
                row[17] += (decoding * (rounds - 1 - step)) * kept.times_s[base + step]
    else:
        row[10] = s.reserved
        if s.free_slots and rule.parted:
            row[12] = pools.lost(r) / s.free_slots
        elif s.free_slots:
            row[12] = 1 - runs.largest_place(s, rule, r) / s.free_slots
        unneeded = s.reserved
        for place in range(s.running):
            request = c.batch[place]
            unneeded -= min(q.reserved[request], q.prompt[request] + q.output[request] - 1)
        row[16] = unneeded
    s.rows += 1
    s.steps += rounds
    s.step += rounds
    return rounds


@called
def _count(s: Any, rule: Any, rounds: int) -> None:
    """What the steps did (`Sums.add`)."""
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
        q.reserved_ever[request] += tokens.release(s, q, r, request)
        r.held[request] = 0
    else:
        q.run_tokens[request] = q.stored[request] / rule.runs_each
        q.reserved_ever[request] += runs.dismiss(s, rule, q, r, request)


@called
def _complete(
    s: Any, rule: Any, q: PlainRequests, c: PlainQueue, r: PlainRuns, rounds: int
) -> None:
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
    least = NO_ROW
    for place in range(s.running):
        least = min(least, q.left[c.batch[place]])
    s.seen_place = s.kept_place = s.running if least else 0


@called
def _take_back(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns) -> bool:
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
        if rule.kind == BUCKETS:
            c.log[s.log] = request
            s.log += 1
            s.to_learn -= 1
            if rule.parted and s.to_learn <= 0 and s.seen_place < s.running:
                return False
    s.running = s.kept_place
    return True


@simulation
def core(
    now: Any,
    rules: Any,
    clocks: Any,
    q: PlainRequests,
    c: PlainQueue,
    b: Blocks,
    r: PlainRuns,
    kept: Rows,
) -> int:
    """Goes on until there is something for Python to do; what, is named in `plain_state`. now,
    rules: a record of `NOW` and `RULES`; clocks: of `CLOCK`, of each of `PHASES`."""
    s, rule = now[0], rules[0]
    for nth in range(s.resized):
        pools.resize(rule, r.pools, nth)
    s.resized = 0
    while s.ended < rule.count or s.stage == END:
        if s.stage == BEGIN:
            if not _join(s, c):
                continue
            if rule.kind == BLOCKS and rule.keeps and s.kept_unused < s.running:
                return KEEP
            if not _begin(s, rule, q, c, b, r):
                return FUTILE
            s.stage = ADMIT if s.preempted == 0 else COUNT
        if s.stage == ADMIT:
            why = _admit(s, rule, q, c, b, r)
            if why >= 0:
                return why
            s.stage = COUNT
        if s.stage == COUNT:
            if s.slid:
                joining.moved(s, q, c, r)
            s.changes += s.chunks + s.moves + s.preempted
            s.context = -s.decoding
            for place in range(s.decoding):
                s.context += q.stored[c.batch[place]]
            s.stage = FIT
        if s.stage == FIT:
            why = _fit(s, rule, q, c, r)
            if why >= 0:
                return why
            s.stage = LOOK
        if s.stage == LOOK:
            s.stage = GO
            if rule.sampled and _looks(s, rule, c, b, clocks):
                return PROBE
            s.seen = s.changes
        if s.stage == GO:
            s.ended_before = s.ended
            rounds = _stretch(s, rule, q, c, b, r, clocks, kept)
            _count(s, rule, rounds)
            _complete(s, rule, q, c, r, rounds)
            s.stage = END
        if not _take_back(s, rule, q, c, b, r):
            return LEARN
        waits = s.waiting > 0 or (s.next < s.coming and c.coming_s[s.next] < s.now_s)
        kept.waits[s.rows - 1] = s.to_send < len(c.to_send) if rule.clients else waits
        s.stage = BEGIN
        full = s.steps > MOST_STEPS or s.rows >= MOST_ROWS
        if s.ended_before < rule.warmup <= s.ended:
            return WARM
        if full:
            return FULL
        if rule.kind == BUCKETS and s.to_learn <= 0:
            return LEARN
    return ENDED
