"""vLLM's v1 engine (vllm/v1/core/sched/scheduler.py).

Running requests come first, one token each; the rest of the token budget prefills waiting requests
in order of arrival, in chunks. A request that cannot get a block preempts the last running one by
recompute, which returns to the front of the line; nothing is admitted in a step that preempted. A
request is admitted when all of its input fits, or, as in earlier versions, when its next chunk
does; the latter admits long prompts that preempt themselves again and again (`admit_on`).

With `async_scheduling` a step is scheduled before the output of the one before is known
(vllm/v1/core/sched/async_scheduler.py): who ends holds memory and a sequence for one step more, and
where the end is not foreseen decodes once more in it. Not modelled: the time of the scheduler that
this hides, and that a request which arrives during a step is seen a step later.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from policies.allocators.allocator import Allocator, Demand
from policies.engines.engine import Chunk, Count, Engine, EngineOptions, Step
from policies.engines.vllm_version import VERSIONS, Usage, VersionName, device_class
from policies.predictors.prediction import Predictions
from policies.requests.requests import IntArray, Requests


class EngineV1Spec(EngineOptions):
    """Options of v1. Without `like`, those of vLLM 0.19 and 0.23 on a small device, scheduled
    synchronously and without the null block."""

    name: Literal["v1"] = "v1"
    like: VersionName | None = None
    """A version of vLLM, whose defaults the keys that are not given have, of `paged` too. Then each
    sample of a request is a request of its own."""
    usage: Usage = "server"
    """What vLLM runs as, on which its defaults hang with `like`."""
    max_num_batched_tokens: Count | None = 2048
    """Tokens a step may compute. None: by the class of the device (with `like`)."""
    admit_on: Literal["input", "chunk"] = "input"
    """What must fit for a request to be admitted: all its tokens to prefill (vLLM's
    `scheduler_reserve_full_isl`, on by default), or the chunk of this step (before that)."""
    async_scheduling: bool = False
    """Schedule a step before the output of the one before is known."""
    ends: Literal["stop", "length"] = "stop"
    """How outputs end under asynchronous scheduling: by a token that is not foreseen, so that each
    sample decodes one step too many (assumed: as most do that people chat with), or at a length
    that is known."""

    @model_validator(mode="before")
    @classmethod
    def completed(cls, data: Any) -> Any:
        """`data` with the keys that `like` decides filled in."""
        if not isinstance(data, dict) or data.get("like") not in VERSIONS:
            return data
        by_device = {"max_num_seqs": None, "max_num_batched_tokens": None}
        return {**by_device, **VERSIONS[data["like"]].engine, **data}

    def token_budget(self, longest: int) -> int:
        assert self.max_num_batched_tokens is not None  # given, or resolved by `on_device`
        return self.max_num_batched_tokens

    @property
    def ahead(self) -> int:
        return int(self.async_scheduling)

    @model_validator(mode="after")
    def _budget_covers_running(self) -> EngineV1Spec:
        budget, most = self.max_num_batched_tokens, self.max_num_seqs
        if self.like is None and (budget is None or most is None):
            raise ValueError("max_num_seqs, max_num_batched_tokens: null only with like")
        if budget is not None and most is not None and budget < most:
            raise ValueError("max_num_batched_tokens: must not be below max_num_seqs")
        return self

    def on_device(self, capacity_bytes: int, device: str, max_model_len: int) -> EngineV1Spec:
        """See `EngineOptions.on_device`; vLLM's `EngineArgs`."""
        budget, most = self.max_num_batched_tokens, self.max_num_seqs
        if self.like is None or (budget is not None and most is not None):
            return self
        chosen = device_class(self.like, capacity_bytes, device)
        cap = chosen.max_num_seqs if most is None else most
        if budget is None:
            longest = min(self.max_model_len or max_model_len, max_model_len)
            budget = max(min(chosen.max_num_batched_tokens[self.usage], cap * longest), most or 1)
        cap = min(cap, budget) if most is None else most
        return self.model_copy(update={"max_num_seqs": cap, "max_num_batched_tokens": budget})


class EngineV1(Engine):
    """Requests that wait and run, as v1 schedules them."""

    spec: EngineV1Spec

    def __init__(
        self, spec: EngineV1Spec, allocator: Allocator, requests: Requests, output_tokens: IntArray,
        predicted: Predictions,
    ) -> None:  # fmt: skip
        super().__init__(spec, allocator, requests, output_tokens, predicted)
        self._late = spec.async_scheduling
        self._stops = spec.ends == "stop"
        self._under_way: IntArray = np.zeros(0, np.int64)
        """Requests that decode in the last step scheduled."""

    @property
    def busy(self) -> bool:
        idle = 0 if self._stops else len(self.ending)
        return self.waits or len(self.running) > idle

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
        step = self._step(decode, chunks, migrations, self.preemptions - before, limit)
        self._under_way = decode
        if not self.ending:
            return step
        return step._replace(overrun=self._sequences(decode[self.left[decode] == 0]))

    def _decoding(self) -> IntArray:
        decode = super()._decoding()
        return decode if self._stops or not self.ending else decode[self.left[decode] > 0]

    def _token_budget(self) -> int:
        return self.spec.token_budget(self.allocator.limits.max_model_len)

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

    def retire(self) -> None:
        """See `Engine.retire`."""
        if not self._stops and self.ending:  # they did not decode once more: all is known
            self._under_way = np.setdiff1d(self._under_way, self.ending, assume_unique=True)
        super().retire()

    def _release(self, request: int) -> int:
        # the last token of a decode under way is the output of a step not yet seen
        if not self._late or self._caching is None or request not in self._under_way:
            return self.allocator.release(request)
        known = int(self.allocator.stored[request] - self.samples[request])
        return self._caching.release_known(request, known)

    def _preempt(self, request: int) -> None:
        self._release(request)
        self.reserved_ever[request] = 0
        self.waiting.appendleft(request)
        self.preemptions += 1
