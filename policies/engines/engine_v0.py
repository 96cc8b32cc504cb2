"""vLLM's first engine, as of 0.6 (vllm/core/scheduler.py, block_manager_v1.py).

A step either prefills or decodes. Prefills come first: whole prompts from the head of the line, as
many as the token budget, the sequence cap and the memory allow. Otherwise every running request
decodes; when one has no free slot, the last running ones are preempted until it has. Preemption
recomputes (back to the front of the line) or swaps: a connector takes the KV
(`policies.transfers.swap_space`), and gives it back when there is room again, before waiting
requests are admitted and not in a step that preempted. A step waits for its copies.

With `chunked_prefill` a step decodes first and fills the token budget with the chunks of prefills.
A prompt has all its memory from its admission on, and admission continues after a preemption, so
another request may take the room. (vLLM queues newly admitted requests before running ones; here
they follow them in order of arrival.)

Not modelled: vLLM 0.6 asks for a free block for each decoding sequence whether it needs one or not;
here only those that need one do. vLLM aborts when the swap space is full; here the request is
recomputed (assumed).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from hwmodel.description.description import DescriptionError, checked
from hwmodel.description.units import PositiveBytes
from policies.allocators.allocator import Demand
from policies.allocators.capabilities import Migration
from policies.engines.connector import Connector
from policies.engines.engine_options import Count, EngineOptions
from policies.engines.engine_requests import EngineRequests
from policies.engines.host_memory import HostMemory, Swapping
from policies.engines.preempted_kv import PreemptedKv
from policies.engines.scheduled_step import Chunk, Step, SwapCopies
from policies.engines.scheduler import Scheduler
from policies.requests.requests import IntArray

CHUNKED_BUDGET = 512
"""Default token budget of a step with chunked prefill (vLLM 0.6)."""
LEAST_BUDGET = 2048
"""Least token budget of a step without it."""

PAGED_V0 = {
    "watermark": 0.01,
    "free_list": "lifo",
    "cached_recompute": False,
    "prefix_caching": False,
    "shared_samples": True,
}
"""Default options of `paged` under this engine (block_manager_v1.py; prefix caching was off)."""


class EngineV0Spec(EngineOptions):
    """Options of v0; vLLM 0.6's defaults."""

    name: Literal["v0"] = "v0"
    max_num_batched_tokens: Count | None = None
    """Tokens a step may compute. None: max(max_model_len, 2048), or 512 with chunked prefill."""
    chunked_prefill: bool = False
    """Prefill in chunks together with decoding."""
    preemption: Literal["recompute", "swap", "least"] = "recompute"
    """Of a request without room, which is one sequence: vLLM 0.6 recomputed those. `least`: what
    wastes least (InferCept, arXiv 2402.01869): swapped where the copy hides behind the step, else
    the lesser of recomputing and a copy that the step waits for. One comes back a step, or as many
    as hide."""
    contention: bool | None = None
    """With `least`: whether copies that hide behind a step take their bytes from the bandwidth of
    the card's DRAM meanwhile. None: they do."""
    swap_space: PositiveBytes = 4 << 30
    """Host memory for swapped KV, of each card."""
    swap_dram: HostMemory | None = None
    """That memory, which the copies of all cards share. None: it carries all that links do."""
    swap_link: str | None = None
    """A shipped link, or a file, between card and host, which says what a copy costs by its
    descriptors: pieces of a layer's K or V in a block, as the KV layout has them. None: bytes over
    `host.bandwidth` of the card alone, which copies never beat."""

    @checked
    def _swaps_to_dram(self) -> None:
        for name in ("swap_dram", "swap_link"):
            if getattr(self, name) is not None and self.preemption == "recompute":
                raise ValueError(f"{name}: nothing is swapped with preemption recompute")

    @checked
    def _weighs_bytes(self) -> None:
        if self.swap_link is not None and self.preemption == "least":
            raise ValueError("swap_link: not with preemption least, which weighs copies by bytes")

    @checked
    def _contends_what_hides(self) -> None:
        if self.contention is not None and self.preemption != "least":
            raise ValueError(
                f"contention: needs preemption least; steps wait for copies with {self.preemption}"
            )

    @classmethod
    def policy_defaults(cls, given: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        return {"paged": PAGED_V0}

    @property
    def swapping(self) -> Swapping | None:
        if self.preemption == "recompute":
            return None
        contends = self.contention is not False
        return Swapping(self.preemption, self.swap_space, self.swap_dram, contends, self.swap_link)

    def token_budget(self, longest: int) -> int:
        default = CHUNKED_BUDGET if self.chunked_prefill else max(longest, LEAST_BUDGET)
        return self.max_num_batched_tokens or default

    @checked
    def _budget_covers_running(self) -> None:
        given = self.max_num_batched_tokens
        if given is not None and given < self.sequence_cap:
            raise ValueError("max_num_batched_tokens: must not be below max_num_seqs")


class EngineV0(Scheduler):
    """Requests that wait, run, or are swapped out."""

    Options = EngineV0Spec
    spec: EngineV0Spec

    def __init__(self, engine: EngineRequests) -> None:
        super().__init__(engine)
        self._keepers: list[PreemptedKv] = []
        """Who may have KV of those that are swapped out."""
        self._keeper: dict[int, PreemptedKv] = {}
        """Who has that of each."""
        self._set_back: list[int] = []  # requests that this step preempts by recompute
        self._computed_tokens = 0  # tokens of the current prefill that are computed
        self._cut_short: dict[int, int] = {}  # the same of requests preempted in their prefill

    def connected(self, connector: Connector) -> None:
        if connector.swap is not None:
            self._keepers.append(connector.swap)

    def schedule(self) -> Step:
        before = self.engine.preemptions
        self.engine.cached_tokens = 0
        chunks: list[Chunk] = []
        decode: IntArray = np.zeros(0, np.int64)
        moves: list[Migration] = []
        limit = "kv_memory"
        chunked = self.spec.chunked_prefill
        if self.engine.loads.decodes:
            self.engine.loads.decode_on()
        if not chunked and not self.swapped:
            limit = self.engine.line.admit(chunks, self.engine.budget)
        if not chunks:
            decode, moves = self.engine.growth.decode()
            budget = self.engine.budget - self.engine.growth.rows(decode)
            if chunked and self.engine.partial and budget:
                budget -= self._continue(chunks, budget)
            if self.swapped and self.engine.preemptions == before:
                back = self._swap_in(budget)
                budget -= self.engine.growth.rows(back)
                decode = np.concatenate((decode, back))
            if chunked and (len(self.engine.running) or self.engine.preemptions == before):
                limit = self.engine.line.admit(chunks, budget)
        self.engine.waiting.extendleft(self._set_back)
        self._set_back.clear()
        preempted = self.engine.preemptions - before
        swaps = self._swaps() if self._keepers else None
        return self.engine.step(decode, chunks, moves, preempted, limit, swaps)

    def _swaps(self) -> SwapCopies | None:
        """What all connectors copy in this step."""
        found = [each for keeper in self._keepers if (each := keeper.swaps()) is not None]
        if len(found) < 2:
            return found[0] if found else None
        moved = tuple([tokens for each in found for tokens in each.moved])
        return SwapCopies(moved, sum(each.hidden for each in found))

    def leaves(self) -> list[int]:
        gone = [*self.swapped, *reversed(self._set_back)]
        self.swapped.clear()
        self._keeper.clear()
        self._set_back.clear()
        self._cut_short.clear()
        return gone

    def token_budget(self) -> int:
        longest = self.engine.allocator.limits.max_model_len
        chunked, most = self.spec.chunked_prefill, self.spec.sequence_cap
        budget = self.spec.token_budget(longest)
        if budget < most:
            raise DescriptionError(
                f"engine.max_num_seqs: {most} sequences decode a token each, and a step computes "
                f"{budget} tokens where max_num_batched_tokens is not given"
            )
        if budget < longest and not chunked:
            raise DescriptionError(
                f"engine.max_num_batched_tokens: v0 without chunked prefill computes a prompt in "
                f"one step, so expected at least max_model_len, {longest} tokens; got {budget}"
            )
        return budget

    def findable(self, request: int, total: int) -> int:
        # slots are reserved for the whole prompt, so blocks that were never filled may be cached
        return min(self._cut_short.get(request, total), total - 1)

    def first_stored(self, rest: int, budget: int, total: int) -> int:
        return rest

    def first_chunk(self, rest: int, budget: int) -> int:
        if self.spec.chunked_prefill:
            return min(rest, budget)
        return rest if rest <= budget or budget == self.engine.budget else 0

    def reserve(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        return self.engine.allocator.reserve(request, demand, total)

    def begun(self, request: int, chunk: Chunk | None) -> None:
        if chunk is not None:
            self._computed_tokens = chunk.start + chunk.tokens
            self._cut_short.pop(request, None)

    def reserve_loaded(self, request: int, demand: Demand, total: int, stored: int) -> bool:
        growing = self.engine.on_demand
        if growing is not None and not growing.fits(total, request, demand):
            return False
        if not self.engine.allocator.reserve(request, demand, stored):
            return False
        self._computed_tokens = stored
        self._cut_short.pop(request, None)
        return True

    def extend(self, request: int, tokens: int, total: int) -> bool:
        start = int(self.engine.allocator.stored[request])
        if not self.engine.allocator.grow(request, total - start):
            return False
        self._computed_tokens = start + tokens
        return True

    def _continue(self, chunks: list[Chunk], budget: int) -> int:
        request = int(self.engine.running[-1])
        start, total = self._computed_tokens, self.engine.total(request)
        tokens = min(total - start, budget)
        self._computed_tokens += tokens
        self.engine.partial = self._computed_tokens < total
        start = min(start, int(self.engine.allocator.stored[request]))  # the rest may lie elsewhere
        chunks.append(Chunk(request, start, tokens, not self.engine.partial))
        return tokens

    def has_batch(self, begun: bool) -> bool:
        return begun

    def put_back(self, request: int) -> None:
        self._cut(request)
        self.engine.loads.release(request)
        self.engine.waiting.appendleft(request)

    def _cut(self, request: int) -> bool:
        """A request loses its memory; whether in its prefill."""
        self.engine.loads.tell_preempted(request)
        self.engine.was_preempted(request)
        partial = (
            self.engine.partial
            and len(self.engine.running) > 0
            and request == self.engine.running[-1]
        )
        if partial:
            self._cut_short[request] = self._computed_tokens
        return bool(partial)

    def preempt(self, request: int) -> None:
        partial = self._cut(request)
        keepers = self._keepers if not partial and self.engine.loads.whole(request) else ()
        keeper = next((each for each in keepers if each.swap_out(request)), None)
        if keeper is not None:
            self._keeper[request] = keeper
            self.swapped.append(request)
        else:
            self.engine.loads.release(request)
            self._set_back.append(request)

    def _swap_in(self, budget: int) -> IntArray:
        """Requests whose KV comes back, in order, and that decode in this step."""
        back: list[int] = []
        room = min(budget, self.spec.sequence_cap - len(self.engine.running))
        while self.swapped:
            request = self.swapped[0]
            room -= 1
            if room < 0:
                break
            while not (came := self._returns(request, budget)):
                if back or len(self.engine.running) or not self.engine.loads.gives_up():
                    break
            if not came:
                break
            back.append(self.swapped.popleft())
            budget -= self.engine.growth.rows(np.array([request]))
            del self._keeper[request]
        if (
            self.swapped
            and not back
            and not len(self.engine.running)
            and not self.engine.loads.holding
        ):
            raise self.engine.line.never_fits(self.swapped[0])
        returned = np.array(back, np.int64)
        # the request in its prefill stays the last
        at = len(self.engine.running) - self.engine.partial
        self.engine.running = np.insert(self.engine.running, at, returned)
        return returned

    def _returns(self, request: int, budget: int) -> bool:
        """Reserve the slots of a swapped-out request and of its next token, or of what it
        verifies."""
        keeper = self._keeper[request]
        if not keeper.swap_in(request):
            return False
        if not (fits := bool(self.engine.growth.store_again(request, budget))):
            keeper.undo_swap_in(request)
        return fits
