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
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Contiguous, Drafts
from policies.engines.scheduled_step import Step
from policies.engines.speculation import DrawnDrafts, SpeculationSpec
from policies.requests.requests import IntArray


class Verifier:
    """Drafts of the requests of an engine. `drawn`: how many of them hold."""

    def __init__(
        self,
        speculation: SpeculationSpec,
        drawn: DrawnDrafts,
        allocator: Allocator,
        output: IntArray,
    ) -> None:
        """output: int64 (n,), output tokens of each request. Raises DescriptionError for a policy
        that has no room for drafts."""
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
        self.spec, self._allocator, self._output, self._drawn = (
            speculation, allocator, output, drawn,
        )  # fmt: skip
        self._room = room
        self._longest = allocator.limits.max_model_len
        self._names_next = allocator.limits.lookahead.hit == "next_known"
        count = len(output)
        self.rows = np.zeros(count, np.int64)
        """Rows of each in the last step scheduled."""
        self.tokens = np.zeros(count, np.int64)
        """Output tokens that it makes of them."""
        self._behind = np.zeros(count, np.int64)
        """Slots that it reserves behind those."""
        self.under_way = np.zeros(count, np.int64)
        """Stored by the step under way: not known to be so many (asynchronous scheduling)."""
        self._optimistic = np.zeros(count, np.int64)
        """Drafts rejected there, which the next step does not know of."""
        self._certain: set[int] = set()
        """Requests that ended in the last step without a draft."""
        self.padded: set[int] = set()
        """Requests that are admitted in the step with one token left to compute, and as many rows
        as if they had drafts (vLLM 0.33: `pad_spec_decode`)."""
        self._prefilled: set[int] = set()
        """Requests whose prefill ended in the last step."""

    def plan(self, decode: IntArray, left: IntArray, budget: int) -> IntArray:
        """Rows, output tokens and further slots of those of `decode` that the budget has a row for,
        int64 (m,); those. left: int64 (n,), output tokens that each request has still to make."""
        stored, spec = self._allocator.stored[decode], self.spec
        at = stored + self._optimistic[decode]
        rows = np.minimum(1 + spec.tokens, self._longest - 1 - at)
        before = np.cumsum(rows) - rows
        rows = np.minimum(rows, budget - before)
        decode, rows, at, stored = (each[rows > 0] for each in (decode, rows, at, stored))
        to_come = left[decode]
        made = np.minimum(self._output[decode] - to_come, self._output[decode])
        held = np.minimum(self._drawn.at(decode, made), rows - 1)
        tokens = 1 + np.clip(to_come - 1, 0, held)
        end = np.minimum(at + rows + spec.lookahead, self._longest)
        self.rows[decode], self.tokens[decode] = rows, tokens
        self._behind[decode] = np.maximum(end - stored - tokens, 0)
        return decode

    def store(self, requests: IntArray) -> int:
        """Store what was planned of these, in order until one has no room; how many had."""
        given = (each[requests] for each in (self.tokens, self._behind, self._optimistic))
        return self._room.store_ahead(requests, *given)

    def lacking(self, requests: IntArray, block: int) -> int:
        """Slots that `store` takes of these together, in whole blocks."""
        held = self._allocator
        ends = held.stored[requests] + self.tokens[requests] + self._behind[requests]
        return int(np.maximum(-(-ends // block) * block - held.reserved[requests], 0).sum())

    @property
    def behind_prefill(self) -> int:
        """Slots behind a prompt of which one token is left to compute, where it is padded."""
        return self.spec.tokens + self.spec.lookahead

    def pad(self, request: int) -> None:
        """It is admitted like one that drafts."""
        self.padded.add(request)
        none = np.zeros(1, np.int64)
        self._room.store_ahead(np.array([request]), none, none + self.behind_prefill, none)

    def certain(self, ended: list[int]) -> list[int]:
        """Those that were known to end, since no draft need hold for it."""
        return [each for each in ended if each in self._certain]

    def unnamed(self, request: int) -> int:
        """Tokens at the end of what it stores that are not named yet: the name of a block hangs on
        the token behind it, which is under way."""
        return int(request in self._prefilled and self._names_next)

    def seen(self, step: Step) -> None:
        """A step is done."""
        self.under_way[:] = self._optimistic[:] = 0
        self.under_way[step.decode] = self.tokens[step.decode]

    def completed(
        self, step: Step, prefilled: list[int], ended: list[int], late: bool
    ) -> None:  # fmt: skip
        """These made their first token in it, and those their last. late: the next step is
        scheduled before it is done."""
        self._prefilled = set(prefilled)
        if late:
            self._certain = {each for each in ended if self.under_way[each] <= 1}
            self._optimistic[step.decode] = (self.rows - self.tokens)[step.decode]
            self._optimistic[list(self.padded)] = self.spec.tokens

    def verify(self, step: Step) -> Step:
        """The step with the drafts that it verifies."""
        decode = step.decode
        rows, tokens = self.rows[decode], self.tokens[decode]
        stored = self._allocator.stored[decode] - tokens
        step = step._replace(context=int(stored.sum()), accepted=int((tokens - 1).sum()))
        return step.verifying(stored, rows)
