"""How requests that decode get room for their next tokens, or for what they verify."""

from __future__ import annotations

import numpy as np

from policies.allocators.capabilities import Batches, Migration
from policies.engines.connector import NONE
from policies.engines.engine_requests import EngineRequests
from policies.engines.scheduled_step import Step
from policies.requests.requests import IntArray


class Growth:
    """Of an engine; those without room move, or preempt others."""

    def __init__(self, engine: EngineRequests) -> None:
        self._engine = engine

    def rows_of(self, step: Step) -> IntArray:
        """Rows that each decoding request computes, int64 (n,)."""
        if self._engine.drafts is None:
            return np.ones(len(step.decode), np.int64)
        return self._engine.drafts.rows[step.decode]

    def rows(self, decode: IntArray) -> int:
        """Tokens of the budget that these take to decode."""
        if self._engine.drafts is None:
            return len(decode)
        return int(self._engine.drafts.rows[decode].sum())

    def decode(self) -> tuple[IntArray, list[Migration]]:
        """Reserve one more token for every decoding request, or all that it verifies."""
        if self._engine.drafts is not None:
            return self._decode_one_by_one(
                self._engine.drafts.plan(
                    self._engine.scheduler.to_decode(), self._engine.left, self._engine.budget
                )
            )
        if self._engine.batching is not None:
            return self._retract(self._engine.batching), []
        decode = self._engine.scheduler.to_decode()
        if self._engine.allocator.headroom(decode, 1):
            self._engine.allocator.advance(decode, 1)
            return decode, []
        return self._decode_one_by_one(decode)

    def _decode_one_by_one(self, decode: IntArray) -> tuple[IntArray, list[Migration]]:
        """As `_decode` when a request has no free slot: migrate it, or preempt one."""
        running, grown = self._engine.running, list[IntArray]()
        partial = int(running[-1]) if self._engine.partial else -1
        migrations: list[Migration] = []
        while len(decode):
            if fitting := self._grow_those_that_fit(decode):
                grown.append(decode[:fitting])
                decode = decode[fitting:]
                continue
            request = int(decode[0])
            if self._engine.migrating is not None and (
                moved := self._engine.migrating.migrate(request)
            ):
                migrations.append(moved)
                self._engine.reserved_ever[request] += moved.left
                continue
            victim = int(running[-1]) if self._engine.allocator.preempts == "last" else request
            running, decode = running[running != victim], decode[decode != victim]
            self._engine.scheduler.preempt(victim)
        self._engine.partial = partial >= 0 and partial in running
        self._engine.running = running
        return np.concatenate(grown) if grown else NONE, migrations

    def _retract(self, batching: Batches) -> IntArray:
        """Preempt the last ones until the others have room for a token; those."""
        while len(
            decode := self._engine.scheduler.to_decode()
        ) and not self._engine.allocator.headroom(decode, 1):
            victim, self._engine.partial = int(self._engine.running[-1]), False
            self._engine.running = self._engine.running[:-1]
            self._engine.scheduler.preempt(victim)
        if len(decode):
            batching.advance_later(decode)
        return decode

    def _grow_those_that_fit(self, decode: IntArray) -> int:
        """Reserve a token for as many of the first of `decode` as have room; how many."""
        if self._engine.drafts is not None:
            return self._engine.drafts.store(decode)
        if fitting := self._engine.allocator.growing(decode):
            self._engine.allocator.advance(decode[:fitting], 1)
        elif self._engine.windowed and self._engine.on_demand is not None:
            self._engine.allocator.grow(
                int(decode[0]), 1
            )  # in vain, but windows give up old blocks
        return fitting
