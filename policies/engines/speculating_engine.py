"""v1 with speculative decoding, as vLLM schedules it (vllm/v1/core/sched/scheduler.py).

Each decoding request computes its last token and k drafts, k + 1 rows of the token budget, which
cuts the drafts of the last ones. Slots are reserved for all of them and for what the drafter writes
behind; those of rejected drafts are the next step's. Under asynchronous scheduling a step is
scheduled as if all drafts of the one before held, and an end is foreseen only where none need hold.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator, Demand
from policies.allocators.capabilities import Drafts, Migration
from policies.engines.engine import Engine, Offered
from policies.engines.engine_v1 import EngineV1, EngineV1Spec
from policies.engines.scheduled_step import Chunk, Step
from policies.engines.speculation import Drawn, SpeculationSpec
from policies.requests.requests import IntArray


class SpeculatingEngine(EngineV1):
    """`drawn`: drafts that hold. Sums of the run: `drafted`, `accepted`, `verified` times."""

    def __init__(
        self, spec: EngineV1Spec, allocator: Allocator, offered: Offered,
        speculation: SpeculationSpec, drawn: Drawn,
    ) -> None:  # fmt: skip
        """Raises DescriptionError for what is not modelled with drafts."""
        super().__init__(spec, allocator, offered)
        plain = spec.batching == "any" and not self.in_turn
        sparse, groups = allocator.layout.sparse is not None, allocator.layout.groups
        if not plain or self.several or sparse or self._batching is not None:
            raise DescriptionError(
                "serving.speculation: not modelled with batching, thresholds of prefills, several "
                "samples in a request, sparse attention or policy radix"
            )
        if groups is not None and groups.kind == "ring" and self._contiguous is not None:
            raise DescriptionError(
                "serving.speculation: rejected drafts would overwrite the ring of a window; "
                "expected policy paged, or window_kv: full"
            )
        if not isinstance(allocator, Drafts):
            raise DescriptionError(
                f"serving.speculation: policy {allocator.options.name} has no slots for drafts; "
                "expected paged, static, odma, s3, orca, oracle or ideal"
            )
        self._drafts, self._drafting = speculation, allocator
        self._drawn = drawn
        self._names_next = allocator.limits.lookahead.hit == "next_known"
        self._longest = allocator.limits.max_model_len
        self._planned = np.zeros(0, np.int64)
        """Requests that decode in the step being scheduled."""
        count = len(offered.requests)
        self._row_count = np.zeros(count, np.int64)
        """Rows of each in the last step scheduled."""
        self._tokens = np.zeros(count, np.int64)
        """Output tokens that it makes of them."""
        self._behind = np.zeros(count, np.int64)
        """Slots that it reserves behind those."""
        self._late_tokens = np.zeros(count, np.int64)
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
        self._fills = False
        """Whether a request that runs is in its prefill."""
        self.drafted = self.accepted = self.verified = 0

    def rounds(self, step: Step, limit: int) -> int:
        return 1

    def complete(self, step: Step, rounds: int) -> tuple[list[int], list[int]]:
        self._late_tokens[:] = self._optimistic[:] = 0
        self._late_tokens[step.decode] = self._tokens[step.decode]
        done = super().complete(step, rounds)
        self._prefilled = set(done[0])
        if self._late:
            self._certain = {each for each in done[1] if self._late_tokens[each] <= 1}
            self._optimistic[step.decode] = (self._row_count - self._tokens)[step.decode]
            self._optimistic[list(self._padded)] = self._drafts.tokens
        return done

    @property
    def _foreseen(self) -> list[int]:
        return [each for each in super()._foreseen if each in self._certain]

    def rows_of(self, step: Step) -> IntArray:
        return self._row_count[step.decode]

    def _kept(self, step: Step, rounds: int) -> IntArray:
        return self._tokens[step.decode]

    def _unknown(self, request: int) -> int:
        return int(self._late_tokens[request])

    def _release(self, request: int) -> int:
        unknown, stored = 0, int(self.allocator.stored[request])
        if self._late:  # the name of a block hangs on the token behind it, which is under way
            unknown = int(request in self._prefilled and self._names_next)
        elif not self._recent and self.spec.like is not None:
            # blocks are named when the next step is scheduled, so not those that drafts fill
            unknown = max(int(self._late_tokens[request]) - 1, 0)
        if not unknown or self._caching is None:
            return super()._release(request)
        return self._caching.release_known(request, stored - unknown)

    def _rows(self, decode: IntArray) -> int:
        return int(self._row_count[decode].sum())

    def _decoding(self) -> IntArray:
        return self._planned

    def _decode(self) -> tuple[IntArray, list[Migration]]:
        self._padded.clear()
        self._fills = self._partial
        self._plan(self.running[:-1] if self._partial else self.running)
        return self._decode_one_by_one()

    def _plan(self, running: IntArray) -> None:
        """Rows, output tokens and further slots of those that decode."""
        foreseen = self._foreseen
        decode = running[~np.isin(running, foreseen)] if foreseen else running
        stored, spec = self.allocator.stored[decode], self._drafts
        at = stored + self._optimistic[decode]
        rows = np.minimum(1 + spec.tokens, self._longest - 1 - at)
        before = np.cumsum(rows) - rows
        rows = np.minimum(rows, self.budget - before)
        decode, rows, at, stored = (each[rows > 0] for each in (decode, rows, at, stored))
        left = self.left[decode]
        made = np.minimum(self.output[decode] - left, self.output[decode])
        held = np.minimum(self._drawn.at(decode, made), rows - 1)
        tokens = 1 + np.clip(left - 1, 0, held)
        end = np.minimum(at + rows + spec.lookahead, self._longest)
        self._planned = decode
        self._row_count[decode], self._tokens[decode] = rows, tokens
        self._behind[decode] = np.maximum(end - stored - tokens, 0)

    def _first_chunk(self, rest: int, budget: int) -> int:
        tokens = super()._first_chunk(rest, budget)
        return 0 if self._pads(rest) and budget <= self._drafts.tokens else tokens

    def _reserve(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        behind = self._drafts.tokens + self._drafts.lookahead
        pads = self._pads(total - cached) and (len(self._planned) > 0 or cached > 0)
        growing = self._on_demand
        if pads and growing is not None and not growing.fits(total + behind, request, demand):
            return False
        if not super()._reserve(request, demand, total, cached, budget):
            return False
        if pads:
            self._padded.add(request)
            none = np.zeros(1, np.int64)
            self._drafting.store_ahead(np.array([request]), none, none + behind, none)
        return True

    def _pads(self, rest: int) -> bool:
        """Whether a request with so many tokens left to compute is admitted like one that
        drafts."""
        return self._recent and rest == 1 and not self._fills

    def chunk_rows(self, chunk: Chunk) -> int:
        return chunk.tokens + self._drafts.tokens * (chunk.request in self._padded)

    def _grow_those_that_fit(self, growing: list[int]) -> int:
        ahead = np.array(growing, np.int64)
        given = (each[ahead] for each in (self._tokens, self._behind, self._optimistic))
        return self._drafting.store_ahead(ahead, *given)

    def _step(
        self, decode: IntArray, chunks: list[Chunk], migrations: list[Migration], preempted: int,
        limit: str, swapped: int = 0,
    ) -> Step:  # fmt: skip
        step = super()._step(decode, chunks, migrations, preempted, limit, swapped)
        rows, tokens = self._row_count[decode], self._tokens[decode]
        stored = self.allocator.stored[decode] - tokens
        drafts, accepted = int((rows - 1).sum()), int((tokens - 1).sum())
        pairs = (rows - 1) * stored + rows * (rows + 1) // 2 - 1
        self.drafted += drafts
        self.accepted += accepted
        self.verified += len(decode)
        step = step._replace(
            context=int(stored.sum()), drafts=drafts, pairs=int(pairs.sum()), accepted=accepted
        )
        return step._replace(lengths=stored, rows=rows) if self._windowed else step


def acceptance(engines: Iterable[Engine]) -> dict[str, float]:
    """Drafts that were verified and output, and tokens a sequence and step, of a whole run."""
    own = [each for each in engines if isinstance(each, SpeculatingEngine)]
    drafted, held, verified = (
        sum(getattr(each, name) for each in own) for name in ("drafted", "accepted", "verified")
    )
    return {"drafted": drafted, "accepted": held, "tokens_a_step": 1 + held / max(verified, 1)}
