"""vLLM's v1 engine (vllm/v1/core/sched/scheduler.py).

Running requests come first, one token each; the rest of the token budget prefills waiting requests
in order of arrival, in chunks. A request that cannot get a block preempts the last running one by
recompute, which returns to the front of the line; nothing is admitted in a step that preempted. A
request is admitted when all of its input fits, or, as in earlier versions, when its next chunk
does; the latter admits long prompts that preempt themselves again and again (`admit_on`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from policies.allocators.allocator import Demand
from policies.engines.engine import Chunk, Count, Engine, EngineOptions, Step


class EngineV1Spec(EngineOptions):
    """Options of v1; vLLM's defaults."""

    name: Literal["v1"] = "v1"
    max_num_batched_tokens: Count = 2048
    """Tokens a step may compute."""
    admit_on: Literal["input", "chunk"] = "input"
    """What must fit for a request to be admitted: all its tokens to prefill (vLLM's
    `scheduler_reserve_full_isl`, on by default), or the chunk of this step (before that)."""

    def token_budget(self, longest: int) -> int:
        return self.max_num_batched_tokens

    @model_validator(mode="after")
    def _budget_covers_running(self) -> EngineV1Spec:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens: must not be below max_num_seqs")
        return self


class EngineV1(Engine):
    """Requests that wait and run, as v1 schedules them."""

    spec: EngineV1Spec

    def schedule(self) -> Step:
        before = self.preemptions
        self._cached_tokens, self._relenting = 0, False
        decode, migrations = self._decode()
        budget = self.budget - self._sequences(decode)
        chunks: list[Chunk] = []
        if self._partial and budget:
            budget -= self._continue(chunks, budget)
        limit = "kv_memory"
        if self.preemptions == before:
            limit = self._admit(chunks, budget)
        return self._step(decode, chunks, migrations, self.preemptions - before, limit)

    def _token_budget(self) -> int:
        return self.spec.max_num_batched_tokens

    def _first_chunk(self, rest: int, budget: int) -> int:
        return min(rest, budget)

    def _reserve(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        whole = self.spec.admit_on == "input"
        stored = cached + self._first_chunk(total - cached, budget)
        growing = self._on_demand
        fits = not whole or growing is None or growing.fits(total, request, demand)
        if fits and self.allocator.reserve(request, demand, stored):
            return True
        # it asks for less when all that was cached is lost and a chunk is not the whole rest
        lost = self._caching is not None and not self._caching.loses_ends_first
        self._relenting |= not whole and cached > 0 and total > budget and lost
        return False

    def _continue(self, chunks: list[Chunk], budget: int) -> int:
        """The next chunk of the prefill under way; its tokens."""
        request = int(self.running[-1])
        start, total = int(self.allocator.stored[request]), self._total(request)
        tokens = min(total - start, budget)
        if not self.allocator.grow(request, tokens):  # the last running one preempts itself
            self.running = self.running[:-1]
            self._partial = False
            self._preempt(request)
            return 0
        self._partial = start + tokens < total
        chunks.append(Chunk(request, start, tokens, not self._partial, int(self.samples[request])))
        return tokens

    def _has_batch(self, begun: bool) -> bool:
        return begun or len(self.running) > 0

    def _preempt(self, request: int) -> None:
        self.allocator.release(request)
        self.reserved_ever[request] = 0
        self.waiting.appendleft(request)
        self.preemptions += 1
