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
from policies.serving.plain import plain_joining as joining
from policies.serving.plain import plain_pools as pools
from policies.serving.plain.plain_admission import admit, fit_line
from policies.serving.plain.plain_ends import complete, take_back
from policies.serving.plain.plain_growth import begin_step, decode
from policies.serving.plain.plain_probes import looks
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
    LEARN,
    LOOK,
    NEVER_S,
    PAUSE,
    PROBE,
    ROWS,
    WARM,
    Blocks,
    PlainQueue,
    PlainRequests,
    PlainRuns,
    Rows,
    SharesBySize,
)
from policies.serving.plain.plain_stretches import pass_steps
from policies.serving.stretch_rows import MOST_ROWS, MOST_STEPS


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
def _comes(s: Any, c: PlainQueue) -> bool:
    """Of a replica of a fleet: whether its next step begins before `until_s`."""
    if s.running or s.waiting:
        s.ahead_s = s.now_s
    elif s.next < s.coming:
        s.ahead_s = max(s.now_s, c.coming_s[s.next])
    else:
        s.ahead_s = NEVER_S
    return s.ahead_s < s.until_s


@called
def _count(s: Any, kept: Rows) -> None:
    """What the last stretch of a replica of a fleet did stands beside its row."""
    row = s.rows - 1
    kept.ends_s[row] = s.now_s
    counts = kept.counts[row]
    counts[0] = s.made
    counts[1] = s.new_preempted
    counts[2] = s.new_prefilled
    counts[3] = s.new_cached
    counts[4] = s.weight_bytes
    counts[5] = s.read_bytes
    counts[6] = s.written_bytes
    counts[7] = s.chunk_read_bytes
    counts[8] = s.chunk_written_bytes
    counts[9] = s.ended - s.ended_before
    counts[10] = s.lasts
    s.made = s.new_preempted = s.new_prefilled = s.new_cached = 0
    s.weight_bytes = s.read_bytes = s.written_bytes = 0
    s.chunk_read_bytes = s.chunk_written_bytes = 0


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
    curve: SharesBySize,
) -> int:
    """Goes on until there is something for Python to do; what, is named in `plain_state`. now,
    rules: a record of `NOW` and `RULES`; clocks: of `CLOCK`, of each of `PHASES`."""
    s, rule = now[0], rules[0]
    for nth in range(s.resized):
        pools.resize(rule, r.pools, nth)
    s.resized = 0
    while s.ended < rule.count or s.stage == END:
        if s.stage == BEGIN:
            if rule.fleet and not _comes(s, c):
                return PAUSE
            if not _join(s, c):
                continue
            if rule.kind == BLOCKS and rule.keeps and s.kept_unused < s.running:
                return KEEP
            if not begin_step(s, rule, q, c, b, r):
                return FUTILE
            s.stage = ADMIT if s.preempted == 0 else COUNT
        if s.stage == ADMIT:
            why = admit(s, rule, q, c, b, r)
            if why >= 0:
                return why
            if rule.prefills_first and s.chunks == 0 and not decode(s, rule, q, c, b, r):
                return FUTILE
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
            why = fit_line(s, rule, q, c, r)
            if why >= 0:
                return why
            s.stage = LOOK
        if s.stage == LOOK:
            s.stage = GO
            if rule.sampled and looks(s, rule, c, b, clocks):
                return PROBE
            s.seen = s.changes
        if s.stage == GO:
            s.ended_before = s.ended
            if rule.fleet:
                now[1] = now[0]
            rounds = pass_steps(s, rule, q, c, b, r, clocks, kept, curve)
            if rounds == 0:
                now[1].ahead_s = s.now_s
                now[0] = now[1]
                return PAUSE
            complete(s, rule, q, c, r, rounds)
            s.stage = END
        if not take_back(s, rule, q, c, b, r):
            return LEARN
        waits = s.waiting > 0 or (s.next < s.coming and c.coming_s[s.next] < s.now_s)
        kept.waits[s.rows - 1] = s.to_send < len(c.to_send) if rule.clients else waits
        s.stage = BEGIN
        if rule.fleet:
            _count(s, kept)
        full = s.steps > MOST_STEPS or s.rows >= MOST_ROWS
        if s.ended_before < rule.warmup <= s.ended:
            return WARM
        if full:
            return ROWS
        if rule.kind == BUCKETS and s.to_learn <= 0:
            return LEARN
    return ENDED
