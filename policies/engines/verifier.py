"""Drafts as a part of a scheduler: what its decode steps verify, and the slots that they take.

Each decoding request computes its last token and k drafts, k + 1 rows of the token budget, which
cuts the drafts of the last ones. Slots are reserved for all of them and for what the drafter writes
behind; those of rejected drafts are the next step's. Under asynchronous scheduling a step is
scheduled as if all drafts of the one before held, and an end is foreseen only where none need hold
(vllm/v1/core/sched/scheduler.py). v0 and SGLang take as many rows and slots (vLLM 0.6:
`num_lookahead_slots`; SGLang 0.5.23: `alloc_len_per_decode`, half of it without overlap); that
their drafts are cut by a budget is assumed.
"""

from __future__ import annotations

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.capabilities import Contiguous, Drafts, Migration
from policies.engines.engine_requests import EngineRequests
from policies.engines.growth import Growth
from policies.engines.scheduled_step import Chunk, Step
from policies.engines.speculation import DrawnDrafts, SpeculationSpec
from policies.requests.requests import IntArray


class Verifier(Growth):
    """Drafts of the requests of an engine. `drawn`: how many of them hold."""

    alike = False

    def __init__(
        self, engine: EngineRequests, speculation: SpeculationSpec, drawn: DrawnDrafts
    ) -> None:
        """Raises DescriptionError for a policy that has no room for drafts."""
        super().__init__(engine)
        allocator = engine.allocator
        layout, options = allocator.layout, allocator.options
        ring = layout.groups is not None and layout.groups.kind == "ring"
        if ring and allocator.able(Contiguous) is not None:
            raise DescriptionError(
                "serving.speculation: rejected drafts would overwrite the ring of a window; "
                "expected policy paged, or window_kv: full"
            )
        if (room := allocator.able(Drafts)) is None:
            raise DescriptionError(
                f"serving.speculation: policy {options.name} has no slots for drafts; expected one "
                "that reserves behind what requests store, such as paged"
            )
        self._spec, self._allocator, self._drawn = speculation, allocator, drawn
        self._room = room
        self.padding = speculation.tokens
        self.behind_prefill = speculation.tokens + speculation.lookahead
        self._longest = allocator.limits.max_model_len
        self._names_next = allocator.limits.lookahead.hit == "next_known"
        count = len(engine.output)
        self._rows = np.zeros(count, np.int64)
        """Rows of each in the last step scheduled."""
        self._tokens = np.zeros(count, np.int64)
        """Output tokens that it makes of them."""
        self._behind = np.zeros(count, np.int64)
        """Slots that it reserves behind those."""
        self._under_way = np.zeros(count, np.int64)
        """Stored by the step under way: not known to be so many (asynchronous scheduling)."""
        self._optimistic = np.zeros(count, np.int64)
        """Drafts rejected there, which the next step does not know of."""
        self._certain: set[int] = set()
        """Requests that ended in the last step without a draft."""
        self._padded: set[int] = set()
        """Requests that are admitted in the step with one token left to compute, and as many rows
        as if they had drafts (vLLM 0.33: `pad_spec_decode`)."""
        self._prefilled: set[int] = set()
        """Requests whose prefill ended in the last step."""

    def begins(self) -> None:
        self._padded.clear()

    def rows_of(self, step: Step) -> IntArray:
        return self._rows[step.decode]

    def rows(self, decode: IntArray) -> int:
        return int(self._rows[decode].sum())

    def chunk_rows(self, chunk: Chunk) -> int:
        return chunk.tokens + self.padding * (chunk.request in self._padded)

    def step(self, step: Step) -> Step:
        """The step with the drafts that it verifies."""
        decode = step.decode
        rows, tokens = self._rows[decode], self._tokens[decode]
        stored = self._allocator.stored[decode] - tokens
        step = step._replace(context=int(stored.sum()), accepted=int((tokens - 1).sum()))
        return step.verifying(stored, rows)

    def plan(self, decode: IntArray, budget: int) -> IntArray:
        """Rows, output tokens and further slots of those of `decode` that the budget has a row for,
        int64 (m,); those."""
        engine, stored, spec = self._engine, self._allocator.stored[decode], self._spec
        at = stored + self._optimistic[decode]
        rows = np.minimum(1 + spec.tokens, self._longest - 1 - at)
        before = np.cumsum(rows) - rows
        rows = np.minimum(rows, budget - before)
        decode, rows, at, stored = (each[rows > 0] for each in (decode, rows, at, stored))
        to_come = engine.left[decode]
        made = np.minimum(engine.output[decode] - to_come, engine.output[decode])
        held = np.minimum(self._drawn.at(decode, made), rows - 1)
        tokens = 1 + np.clip(to_come - 1, 0, held)
        end = np.minimum(at + rows + spec.lookahead, self._longest)
        self._rows[decode], self._tokens[decode] = rows, tokens
        self._behind[decode] = np.maximum(end - stored - tokens, 0)
        return decode

    def decode(self) -> tuple[IntArray, list[Migration]]:
        decode = self._engine.scheduler.to_decode()
        return self.decode_one_by_one(self.plan(decode, self._engine.budget))

    def store_first(self, decode: IntArray) -> int:
        given = (each[decode] for each in (self._tokens, self._behind, self._optimistic))
        return self._room.store_ahead(decode, *given)

    def store_one(self, request: int) -> bool:
        return self.store_first(np.array([request])) == 1

    def store_again(self, request: int, budget: int) -> bool:
        return self.store_first(self.plan(np.array([request], np.int64), budget)) == 1

    def fit(self, running: IntArray, page: int) -> bool:
        if self._engine.batching is not None:
            self._engine.batching.settle_step()
        rows = (1 + self._spec.tokens) * len(running)  # no budget cuts them
        planned, of = self.plan(running, rows), self._allocator
        ends = of.stored[planned] + self._tokens[planned] + self._behind[planned]
        lacking = np.maximum(-(-ends // page) * page - of.reserved[planned], 0).sum()
        return int(lacking) <= of.free_slots

    def store_all(self, running: IntArray) -> None:
        self.store_first(running)

    def pad(self, request: int) -> None:
        self._padded.add(request)
        none = np.zeros(1, np.int64)
        self._room.store_ahead(np.array([request]), none, none + self.behind_prefill, none)

    def certain(self, ended: list[int]) -> list[int]:
        """Those that were known to end, since no draft need hold for it."""
        return [each for each in ended if each in self._certain]

    def unnamed(self, request: int) -> int:
        """The name of a block hangs on the token behind it, which is under way."""
        return int(request in self._prefilled and self._names_next)

    def stored_last(self, request: int) -> int:
        return int(self._under_way[request])

    def seen(self, step: Step) -> None:
        self._under_way[:] = self._optimistic[:] = 0
        self._under_way[step.decode] = self._tokens[step.decode]

    def made(self, decode: IntArray, rounds: int) -> IntArray:
        return self._tokens[decode]

    def completed(self, step: Step, prefilled: list[int], ended: list[int]) -> None:
        self._prefilled = set(prefilled)
        if self._engine.late:  # the next step is scheduled before this one is done
            self._certain = {each for each in ended if self._under_way[each] <= 1}
            self._optimistic[step.decode] = (self._rows - self._tokens)[step.decode]
            self._optimistic[list(self._padded)] = self._spec.tokens
