"""Of a step of a plain run, compiled: requests that wait are admitted in order while there is room
and budget, as `policies.engines.admission` has it."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain import plain_blocks as blocks
from policies.serving.plain import plain_runs as runs
from policies.serving.plain import plain_texts as texts
from policies.serving.plain import plain_tokens as tokens
from policies.serving.plain.plain_growth import compute
from policies.serving.plain.plain_state import (
    BLOCKS,
    BUCKETS,
    KV_MEMORY,
    NEVER,
    NONE,
    OFFERED_LOAD,
    RUNS,
    SEQUENCE_CAP,
    TOKEN_BUDGET,
    TOKENS,
    WANT,
    Blocks,
    PlainQueue,
    PlainRequests,
    PlainRuns,
)


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
    early = not rule.joins and not rule.prefills_first  # `WaitingLine.early`
    if early and runs.decided(s, rule, q, r, request) > runs.largest_place(s, rule, r):
        return -1
    return 0 if runs.admit(s, rule, q, c, r, request, min(total, s.budget)) else -1


@called
def admit(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, b: Blocks, r: PlainRuns) -> int:
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
        total = q.prompt[request] + q.output[request] - q.left[request]
        if rule.prefills_first and total > s.budget and s.budget != rule.budget:
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
        many = min(total - found, s.budget)
        compute(s, q, c, request, found, many, found + many == total)
    return NONE


@called
def fit_line(s: Any, rule: Any, q: PlainRequests, c: PlainQueue, r: PlainRuns) -> int:
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
