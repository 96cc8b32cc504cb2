"""How requests that decode get room for their next tokens. With drafts `Verifier` has its place,
which says otherwise what is asked here."""

from __future__ import annotations

import numpy as np

from policies.allocators.capabilities import Batches, Migration
from policies.engines.engine_requests import EngineRequests
from policies.engines.memory_beside import NONE
from policies.engines.scheduled_step import Chunk, Step
from policies.requests.requests import IntArray


class Growth:
    """Of an engine; a token each. Those without room move, or preempt others."""

    alike = True
    """Whether steps may be alike, so that several are scheduled at once."""
    padding = 0
    """Rows that a prompt gets of which one token is left to compute, beside that."""
    behind_prefill = 0
    """Slots behind such a prompt."""

    def __init__(self, engine: EngineRequests) -> None:
        self._engine = engine

    # what a step takes

    def begins(self) -> None:
        """A step is about to be scheduled."""

    def rows_of(self, step: Step) -> IntArray:
        """Rows that each decoding request computes, int64 (n,)."""
        return np.ones(len(step.decode), np.int64)

    def rows(self, decode: IntArray) -> int:
        """Tokens of the budget that these take to decode."""
        return len(decode)

    def chunk_rows(self, chunk: Chunk) -> int:
        """Tokens of the budget that a chunk of an admitted request takes."""
        return chunk.tokens

    def step(self, step: Step) -> Step:
        """The step, with what else it computes."""
        return step

    # room

    def plan(self, decode: IntArray, budget: int) -> IntArray:
        """Those of these that so many tokens of the budget have a row for."""
        return decode

    def decode(self) -> tuple[IntArray, list[Migration]]:
        """Reserve one more token for every decoding request, or all that it verifies."""
        engine = self._engine
        if engine.batching is not None:
            return self._retract(engine.batching), []
        decode = engine.scheduler.to_decode()
        if engine.allocator.headroom(decode, 1):
            engine.allocator.advance(decode, 1)
            return decode, []
        return self.decode_one_by_one(decode)

    def decode_one_by_one(self, decode: IntArray) -> tuple[IntArray, list[Migration]]:
        """As `decode` when a request has no free slot: migrate it, or preempt one."""
        engine = self._engine
        running, grown = engine.running, list[IntArray]()
        partial = int(running[-1]) if engine.partial else -1
        migrations: list[Migration] = []
        while len(decode):
            if fitting := self.store_first(decode):
                grown.append(decode[:fitting])
                decode = decode[fitting:]
                continue
            request = int(decode[0])
            if engine.migrating is not None and (moved := engine.migrating.migrate(request)):
                migrations.append(moved)
                engine.reserved_ever[request] += moved.left
                continue
            victim = int(running[-1]) if engine.allocator.preempts == "last" else request
            running, decode = running[running != victim], decode[decode != victim]
            engine.scheduler.preempt(victim)
        engine.partial = partial >= 0 and partial in running
        engine.running = running
        return np.concatenate(grown) if grown else NONE, migrations

    def store_first(self, decode: IntArray) -> int:
        """Store what was planned of as many of the first of these as have room; how many."""
        if fitting := self._engine.allocator.growing(decode):
            self._engine.allocator.advance(decode[:fitting], 1)
        elif self._engine.windowed and self._engine.on_demand is not None:
            # in vain, but windows give up old blocks
            self._engine.allocator.grow(int(decode[0]), 1)
        return fitting

    def store_one(self, request: int) -> bool:
        """The same of one alone; whether it has room."""
        return self._engine.allocator.grow(request, 1)

    def store_again(self, request: int, budget: int) -> bool:
        """The same of one that has just got its memory back."""
        alone = np.array([request], np.int64)
        if fits := self._engine.allocator.headroom(alone, 1) > 0:
            self._engine.allocator.advance(alone, 1)
        return fits

    def fit(self, running: IntArray, page: int) -> bool:
        """Whether all of these have room, in pages of so many tokens."""
        return bool(self._engine.allocator.headroom(running, 1))

    def store_all(self, running: IntArray) -> None:
        """Store what was planned of all of these, which fit."""
        if self._engine.batching is not None:
            self._engine.batching.advance_later(running)
        else:
            self._engine.allocator.advance(running, 1)

    def pad(self, request: int) -> None:
        """It is admitted with one token left to compute, and as many rows as one that drafts."""

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

    # what is known of the step before

    def certain(self, ended: list[int]) -> list[int]:
        """Those of these that were known to end."""
        return ended

    def unnamed(self, request: int) -> int:
        """Tokens at the end of what it stores that are not named yet."""
        return 0

    def stored_last(self, request: int) -> int:
        """Tokens that it stored in the last step."""
        return 1

    def seen(self, step: Step) -> None:
        """A step is done."""

    def made(self, decode: IntArray, rounds: int) -> int | IntArray:
        """Tokens that each of these has made in so many steps, an int or int64 (n,)."""
        return rounds

    def completed(self, step: Step, prefilled: list[int], ended: list[int]) -> None:
        """These made their first token in it, and those their last."""
