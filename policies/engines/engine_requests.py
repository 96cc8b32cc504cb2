"""Who is in an engine: requests that wait and run, what each asks for, and what it has beside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator, Demand
from policies.allocators.capabilities import (
    Batches,
    Caches,
    Classifies,
    Contiguous,
    CopiesKv,
    KeepsStates,
    Migrates,
    Migration,
    OnDemand,
    Remembers,
)
from policies.allocators.columns import sum_of
from policies.engines.connector import Connector, Loading
from policies.engines.engine_progress import TokenProgress
from policies.engines.scheduled_step import Chunk, Step, SwapCopies
from policies.predictors.prediction import Predictions
from policies.requests.requests import FloatArray, IntArray, Requests

Kind = TypeVar("Kind", bound=Connector)


class Offered(NamedTuple):
    """What an engine is to serve. output_tokens: int64 (n,), as the engine cuts answers."""

    requests: Requests
    output_tokens: IntArray
    predicted: Predictions


class EngineRequests(ABC):
    """What an engine and its parts know of requests. `left[i]`: output tokens that request i must
    still produce. `scheduler`, `line`, `loads`, `growth`: its parts (`policies.engines.engine`)."""

    scheduler: Any
    line: Any
    loads: Any
    growth: Any

    def __init__(self, spec: Any, allocator: Allocator, offered: Offered) -> None:
        self.requests, self.output, self.predicted = offered
        """All requests of the run, their output tokens, and what is predicted of these."""
        requests = self.requests
        self.spec, self.allocator = spec, allocator
        self.prompt = requests.prompt_tokens
        self.left = self.output.copy()
        self.waiting: deque[int] = deque()
        self.running: IntArray = np.zeros(0, np.int64)
        self.ending: list[int] = []
        """Requests whose last token is made and that still hold memory (asynchronous scheduling);
        they run or, if preempted, wait."""
        self.changes = 0
        """Counts admissions, ends, preemptions and migrations: as long as it stays, the same
        requests run in the same places."""
        self.reserved_ever = np.zeros(len(requests), np.int64)
        """Slots of the last residence of each request, including places it migrated from."""
        self.run_tokens: FloatArray = np.full(len(requests), np.nan)
        """Mean tokens of a physically contiguous run of each request when it ended."""
        self.connectors: list[Connector] = []
        """What it has beside: requests, KV and memory that are elsewhere, or are others'."""
        self.loading: dict[int, Loading] = {}
        """Requests that hold memory for KV which is on its way, or came, until they run."""
        self.held: dict[int, set[Connector]] = {}
        """Requests that have ended and hold memory, and for whom."""
        self.cap = spec.sequence_cap
        self.sessions = requests.session
        self.partial = False  # the last running request is still in its prefill
        self.cached_tokens = 0  # of the step being scheduled
        self.relenting = False  # a refused request may be admitted though no request leaves
        self.demands: dict[int, Demand] = {}  # as `demand` made them last
        # what the allocator can do, or None
        self.on_demand = allocator.able(OnDemand)
        self.migrating = allocator.able(Migrates)
        self.caching = allocator.able(Caches)
        self.batching = allocator.able(Batches)
        self.copying = allocator.able(CopiesKv)
        self.remembering = allocator.able(Remembers)
        self.contiguous = allocator.able(Contiguous)
        self.classifying = allocator.able(Classifies)
        states = allocator.able(KeepsStates)
        self.state_block = 0 if states is None else states.state_block
        """Tokens at whose multiples a chunk ends; 0: anywhere."""
        self.budget = 0
        """Tokens a step may compute, as the scheduler says."""
        self.late = False
        """Whether the next step is scheduled before it is known which requests ended."""
        self.preemptions = 0
        self.windowed = allocator.layout.groups is not None
        self._uneven = self.windowed or allocator.layout.sparse is not None
        self.progress = TokenProgress(self.cap)

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether a request has arrived and has not ended, and something can be done about it."""

    @abstractmethod
    def stop(self, request: int) -> None:
        """A running request runs here no more; it has its memory."""

    def total(self, request: int) -> int:
        """Tokens to prefill: the prompt and what was generated before a preemption."""
        generated = self.output.item(request) - self.left.item(request)
        return int(self.prompt.item(request) + generated)

    def demand(self, request: int) -> Demand:
        """What a request asks for now: the same object until it has generated more."""
        known = self.demands.get(request)
        generated = self.output.item(request) - self.left.item(request)
        if known is None or known.generated != generated:
            known = self.demands[request] = self.demanded(request)
        return known

    def demanded(self, request: int) -> Demand:
        """The same of a request that may never come here."""
        own, output = self.requests, self.output.item(request)
        return Demand(
            self.prompt.item(request), output - self.left.item(request), self.predicted[request],
            own.prefix_id.item(request), own.prefix_tokens.item(request), output,
            own.parent.item(request), own.context.item(request), own.prefixes(request)[:-1],
        )  # fmt: skip

    def step(
        self, decode: IntArray, chunks: list[Chunk], migrations: list[Migration], preempted: int,
        limit: str, swaps: SwapCopies | None = None,
    ) -> Step:  # fmt: skip
        """The step, scheduled; every decoding request has room for its next tokens."""
        if self.batching is not None:
            self.batching.settle_step()
        if self.contiguous is not None and (moves := self.contiguous.moves()):
            migrations = [*migrations, *moves]
        self.changes += len(chunks) + len(migrations) + preempted + (swaps is not None)
        context = sum_of(self.allocator.stored, decode) - len(decode)
        lengths = self.allocator.stored[decode] - 1 if self._uneven else None
        step = self.growth.step(Step(
            decode, context, chunks, migrations, preempted, limit, self.cached_tokens, lengths,
            swaps=swaps,
        ))  # fmt: skip
        if self.copying is None or step.empty or not (copies := self.copying.copies()):
            return step
        self.changes += 1
        return step._replace(copies=tuple(copies))

    def was_preempted(self, request: int) -> None:
        """It has lost its memory. Raises DescriptionError as `TokenProgress.preempted` says."""
        self.reserved_ever[request] = 0
        self.preemptions += 1
        if (what := self.progress.preempted(request, self.left)) is not None:
            raise self.futile(what)

    def futile(self, what: str) -> DescriptionError:
        """That nothing comes of it."""
        policy = self.allocator.options.name
        return DescriptionError(f"{what} (policy {policy}, engine {self.spec.name})")
