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

from collections import deque
from typing import ClassVar

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator, Demand
from policies.allocators.capabilities import Migration
from policies.engines.connector import Connector
from policies.engines.engine import Engine
from policies.engines.engine_options import EngineOptions
from policies.engines.engine_requests import Offered
from policies.engines.engine_v1_options import EngineV1Spec
from policies.engines.scheduled_step import Chunk, Step
from policies.engines.vllm_version import VERSIONS
from policies.requests.requests import IntArray


class EngineV1(Engine):
    """Requests that wait and run, as v1 schedules them."""

    Options: ClassVar[type[EngineOptions]] = EngineV1Spec
    aligns_chunks = True
    spec: EngineV1Spec

    def __init__(
        self, spec: EngineV1Spec, allocator: Allocator, offered: Offered,
        priority: IntArray | None = None,
    ) -> None:  # fmt: skip
        """priority: int64 (n,), of each request; those of smaller ones go first and are preempted
        last, whatever the order of arrival (vLLM's `policy: priority`)."""
        super().__init__(spec, allocator, offered)
        shortest = min(self.budget, spec.long_prefill_token_threshold or self.budget)
        if self._state_block > shortest:
            raise DescriptionError(
                f"policy.state_caching: chunks end at the ends of blocks of {self._state_block} "
                f"tokens, and engine.max_num_batched_tokens or long_prefill_token_threshold, "
                f"{shortest}, is less"
            )
        self._late = spec.async_scheduling
        self.whole_inputs = spec.admit_on == "input"
        self._stops = spec.ends == "stop"
        self._under_way: IntArray = np.zeros(0, np.int64)
        """Requests that decode in the last step scheduled."""
        self._recent = spec.like is not None and VERSIONS[spec.like].others_first
        self._priority = priority
        options = spec.long_prefill_token_threshold > 0 or spec.prefill_schedule_interval > 1
        self.in_turn = options or priority is not None
        """Whether several requests may be in their prefill, among those that decode."""
        self._filling: set[int] = set()
        """Then: running requests that are in their prefill."""
        self._fills = self._any_decode = False
        """Whether a request was in its prefill when the step began, and whether any decodes."""
        self._threshold = spec.long_prefill_token_threshold
        self._since = spec.prefill_schedule_interval
        """Steps since the last one with a prefill."""
        self._again: dict[int, int] = {}
        """Requests whose KV has not come from elsewhere, and the tokens that they have."""
        self._line = False
        """Whether it left requests in line."""

    def connect(self, connector: Connector) -> None:
        super().connect(connector)
        self._stops &= not connector.foresees_ends

    @property
    def busy(self) -> bool:
        running = len(self.running)
        own = running > len(self._foreseen) if self.ending else running > 0
        own = own or self._unfinished
        return self._has_work(own) if self.connectors else own

    @property
    def _foreseen(self) -> list[int]:
        """Requests that have ended and were known to, so that they do not decode once more."""
        if self._stops or not self.ending:
            return []
        return self.ending if self.drafts is None else self.drafts.certain(self.ending)

    def _schedule(self) -> Step:
        before = self.preemptions
        self._cached_tokens, self._relenting = 0, False
        chunks: list[Chunk] = []
        defers = False
        self._fills = self._partial or bool(self._filling)
        if self.drafts is not None:
            self.drafts.padded.clear()
        if self._decodes:
            self._decode_on()
        if self.in_turn:
            defers = self._defers()
            decode, migrations, budget = self._run_in_turn(chunks, defers)
        else:
            decode, migrations = self._decode()
            budget = self.prefill_budget(self.budget - self._rows(decode))
            if self._partial and budget:
                budget -= self._continue(chunks, budget)
        self._any_decode = len(decode) > 0
        limit = "kv_memory"
        if self.preemptions == before:
            limit = "token_budget" if defers else self._admit(chunks, budget)
            self._line = self._line if defers else bool(self.waiting)
        if chunks:
            self._since = 0
        step = self._step(decode, chunks, migrations, self.preemptions - before, limit)
        self._under_way = decode
        if not self.ending:
            return step
        return step._replace(overrun=int((self.left[decode] == 0).sum()))

    def prefill_budget(self, left: int) -> int:
        """Tokens that the step being scheduled may prefill, of at most `left` of its budget: all.

        Called once a step, after decodes have taken theirs, or before where prefills stand among
        them (`in_turn`). A scheduler of one's own may say less (examples/own_scheduler.py).
        """
        return left

    def _decoding(self) -> IntArray:
        decode = super()._decoding()
        if not self.ending or not (foreseen := self._foreseen):
            return decode
        return decode[~np.isin(decode, foreseen)]

    def _first_chunk(self, rest: int, budget: int) -> int:
        if self.drafts is not None and self._pads(rest) and budget <= self.drafts.spec.tokens:
            return 0
        return min(rest, budget, self._threshold or rest)

    def rounds(self, step: Step, limit: int) -> int:
        between = self.waiting and self.spec.prefill_schedule_interval > 1
        return 1 if self._filling or between else super().rounds(step, limit)

    def _rank(self, request: int) -> tuple[int, int]:
        return (0 if self._priority is None else int(self._priority[request]), request)

    def _defers(self) -> bool:
        """Whether a step has no prefills; sets the threshold of the step."""
        lone = self._recent and len(self.running) + len(self.waiting) < 2
        self._threshold = 0 if lone else self.spec.long_prefill_token_threshold
        self._since += 1
        early = self._since < self.spec.prefill_schedule_interval and not self._line
        return early and len(self._filling) < len(self.running)

    def _run_in_turn(
        self, chunks: list[Chunk], defers: bool
    ) -> tuple[IntArray, list[Migration], int]:
        """Schedule running requests one after another, prefills among decodes: (those that decode,
        migrations, the budget that is left). Prefills go to `chunks`, unless the step defers."""
        running: list[int] = self.running.tolist()
        skipped = set(self._foreseen)
        skipped |= self._filling if defers else set()
        tokens: dict[int, int] = {}
        begins: dict[int, int] = {}  # tokens that those in their prefill have here
        migrations: list[Migration] = []
        at, budget = 0, self.budget
        room = self.prefill_budget(budget)
        while at < len(running) and budget > 0:
            request = running[at]
            at += 1
            if request in skipped:
                continue
            if self._again and (again := self._compute_again(request, chunks, budget)):
                budget, self._partial = budget - again, False
                continue
            wanted = 1
            if request in self._filling:
                begins[request] = int(self.allocator.stored[request])
                rest = self.total(request) - self._stored(request)
                wanted = self._chunk(rest, min(budget, room), self.total(request))
                if not wanted:
                    continue
            elif self.drafts is not None:
                wanted = self._rows(self.drafts.plan(np.array([request]), self.left, budget))
                if not wanted:
                    continue
            while request in running and not self._stores(request, wanted):
                if self._migrating is not None and (moved := self._migrating.migrate(request)):
                    migrations.append(moved)
                    self.reserved_ever[request] += moved.left
                    continue
                victim = self._victim(running, request)
                # vLLM goes back a place only for one that it has scheduled
                at -= victim in tokens or victim == request
                running.remove(victim)
                given = tokens.pop(victim, 0)
                budget += given
                room += given if victim in self._filling else 0
                self._preempt(victim)
            if request in running:
                tokens[request] = wanted
                budget -= wanted
                room -= wanted if request in self._filling else 0
            elif not self._recent:
                break
        self.running = np.array(running, np.int64)
        for request in [each for each in tokens if each in self._filling]:
            count = tokens.pop(request)
            last = self._stored(request) == self.total(request)
            chunks.append(Chunk(request, begins[request], count, last))
            if last:
                self._filling.remove(request)
        return np.array(list(tokens), np.int64), migrations, min(budget, room)

    def _stores(self, request: int, tokens: int) -> bool:
        """Reserve so many tokens of a running request, or what it verifies; whether it has room."""
        if request in self._filling:
            return self._grow(request, tokens)
        if self.drafts is None:
            return self.allocator.grow(request, tokens)
        return self.drafts.store(np.array([request])) == 1

    def _victim(self, running: list[int], request: int) -> int:
        """Who is preempted where a running request has no room."""
        if self._priority is not None:
            return max(running, key=self._rank)
        return running[-1] if self.allocator.preempts == "last" else request

    def _admit(self, chunks: list[Chunk], budget: int) -> str:
        if self._priority is not None:
            self.waiting = deque(sorted(self.waiting, key=self._rank))
        return super()._admit(chunks, budget)

    def _try(self, request: int, sequences: int, budget: int) -> tuple[str, Chunk | None]:
        limit, chunk = super()._try(request, sequences, budget)
        if self.in_turn and self._partial:
            self._filling.add(request)
            self._partial = False
        return limit, chunk

    def _reserve(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        whole, growing, drafts = self.whole_inputs, self._on_demand, self.drafts
        stored = cached + self._chunk(total - cached, budget, total)
        fits = not whole or growing is None or stored == total  # `reserve` asks for as much then
        if not fits and growing is not None:
            fits = growing.fits(total, request, demand)
        if drafts is not None and self._pads(total - cached) and (self._any_decode or cached):
            longer = total + drafts.behind_prefill
            if growing is not None and not growing.fits(longer, request, demand):
                return False
            if fits := fits and self.allocator.reserve(request, demand, stored):
                drafts.pad(request)
            return fits
        if fits and self.allocator.reserve(request, demand, stored):
            return True
        # it asks for less when all that was cached is lost and a chunk is not the whole rest
        lost = self._caching is not None and not self._caching.loses_ends_first
        self._relenting |= not whole and cached > 0 and total > budget and lost
        return False

    def _continue(self, chunks: list[Chunk], budget: int) -> int:
        """The next chunk of the prefill under way; its tokens."""
        request = int(self.running[-1])
        if self._again and (tokens := self._compute_again(request, chunks, budget)):
            return tokens
        start, total = int(self.allocator.stored[request]), self.total(request)
        rest = total - self._stored(request)
        if not (tokens := self._aligned(min(rest, budget), rest, total)):
            return 0
        if not self._grow(request, tokens):  # the last running one preempts itself
            self.running = self.running[:-1]
            self._partial = False
            self._preempt(request)
            return 0
        self._partial = tokens < rest
        chunks.append(Chunk(request, start, tokens, not self._partial))
        return tokens

    def retire(self) -> None:
        if self._foreseen:  # they did not decode once more: all is known
            self._under_way = np.setdiff1d(self._under_way, self._foreseen, assume_unique=True)
        super().retire()

    def _pads(self, rest: int) -> bool:
        """Whether a request with so many tokens left to compute is admitted like one that
        drafts."""
        return self._recent and rest == 1 and not self._fills

    def stop(self, request: int) -> None:
        super().stop(request)
        self._filling.discard(request)

    def decoding(self) -> IntArray:
        decode = super().decoding()
        if not self._filling:
            return decode
        return np.array([each for each in decode.tolist() if each not in self._filling], np.int64)

    @property
    def prefilling(self) -> bool:
        return self._partial or bool(self._filling)

    def _release(self, request: int) -> int:
        if request in self._again:
            self._computed(request)
            return self._release_known(request, self._again.pop(request))
        return super()._release(request)

    def _forget(self, request: int) -> int:
        if self._caching is None or not (unknown := self._unseen(request)):
            return self.allocator.release(request)
        return self._caching.release_known(request, int(self.allocator.stored[request]) - unknown)

    def _unseen(self, request: int) -> int:
        """Tokens that it stores and whose blocks have no name yet."""
        drafts = self.drafts
        if not self._late:
            # then blocks are named when the next step is scheduled, so not those that drafts fill
            named_late = drafts is not None and self.spec.like is not None and not self._recent
            return max(int(drafts.under_way[request]) - 1, 0) if drafts and named_late else 0
        if drafts is not None and (unnamed := drafts.unnamed(request)):
            return unnamed
        if request not in self._under_way:
            return 0
        # the last token of a decode under way is the output of a step not yet seen
        return 1 if drafts is None else int(drafts.under_way[request])

    def _reserve_loaded(self, request: int, demand: Demand, total: int, stored: int) -> bool:
        growing = self._on_demand
        whole = self.spec.admit_on == "input"
        fits = not whole or growing is None or growing.fits(total, request, demand)
        return fits and self.allocator.reserve(request, demand, stored)

    def _enter(self, request: int) -> None:
        super()._enter(request)
        if self.in_turn and self._partial:
            self._filling.add(request)
            self._partial = False

    def _recover(self, request: int) -> None:
        self._again[request] = self.loading[request].match.start  # it keeps its memory
        self._back.append(request)

    def _compute_again(self, request: int, chunks: list[Chunk], budget: int) -> int:
        start = self._again.get(request, -1)
        if start < 0:
            return 0
        stored = int(self.allocator.stored[request])
        tokens = self._first_chunk(stored - start, budget)
        self._again[request] += tokens
        if start + tokens == stored:
            del self._again[request]
            self._computed(request)
        self._partial = True
        chunks.append(Chunk(request, start, tokens, False))
        return tokens

    def _preempt(self, request: int) -> None:
        self._tell_preempted(request)
        self._release(request)
        self._filling.discard(request)
        self.waiting.appendleft(request)
        self._was_preempted(request)
