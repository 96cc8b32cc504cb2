"""Who is in an engine: requests that wait and run, what each asks for, and what it has beside."""

from __future__ import annotations

from abc import ABC
from collections import deque
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from policies.allocators.allocator import Allocator, Demand
from policies.allocators.capabilities import (
    Batches,
    Caches,
    Classifies,
    Contiguous,
    CopiesKv,
    KeepsStates,
    Migrates,
    OnDemand,
    Remembers,
)
from policies.engines.connector import Connector, Loading
from policies.engines.engine_options import EngineOptions
from policies.engines.verifier import Verifier
from policies.predictors.prediction import Predictions
from policies.requests.requests import FloatArray, IntArray, Requests

Kind = TypeVar("Kind", bound=Connector)


class Offered(NamedTuple):
    """What an engine is to serve. output_tokens: int64 (n,), as the engine cuts answers."""

    requests: Requests
    output_tokens: IntArray
    predicted: Predictions


class EngineRequests(ABC):
    """Base of all engines. `left[i]`: output tokens that request i must still produce."""

    Options: ClassVar[type[EngineOptions]]
    """Its options, whose `name` is that of the scheduler."""

    def __init__(self, spec: Any, allocator: Allocator, offered: Offered) -> None:
        self.requests, self.output, self._predicted = offered
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
        self.drafts: Verifier | None = None
        """What its decode steps verify."""
        self.connectors: list[Connector] = []
        """What it has beside: requests, KV and memory that are elsewhere, or are others'."""
        self.loading: dict[int, Loading] = {}
        """Requests that hold memory for KV which is on its way, or came, until they run."""
        self._cap = spec.sequence_cap
        self._sessions = requests.session
        self._partial = False  # the last running request is still in its prefill
        self._cached_tokens = 0  # of the step being scheduled
        self._relenting = False  # a refused request may be admitted though no request leaves
        self._demands: dict[int, Demand] = {}  # as `demand` made them last
        # what the allocator can do, or None
        self._on_demand = allocator.able(OnDemand)
        self._migrating = allocator.able(Migrates)
        self._caching = allocator.able(Caches)
        self._batching = allocator.able(Batches)
        self._copying = allocator.able(CopiesKv)
        self._remembering = allocator.able(Remembers)
        self._contiguous = allocator.able(Contiguous)
        self._classifying = allocator.able(Classifies)
        states = allocator.able(KeepsStates)
        self._state_block = 0 if states is None else states.state_block
        """Tokens at whose multiples a chunk ends; 0: anywhere."""

    def connector(self, kind: type[Kind]) -> Kind:
        """Its connector of this kind, which there is."""
        return next(each for each in self.connectors if isinstance(each, kind))

    @property
    def waits(self) -> bool:
        """Whether a request has arrived and does not run."""
        return bool(self.waiting)

    def decoding(self) -> IntArray:
        """The running requests that decode in the next step and have not ended, in order, int64
        (n,)."""
        decode = self._decoding()
        return decode[self.left[decode] > 0] if self.ending else decode

    @property
    def prefilling(self) -> bool:
        """Whether a running request is in its prefill."""
        return self._partial

    def _decoding(self) -> IntArray:
        """The running requests that decode, in order."""
        return self.running[:-1] if self._partial else self.running

    def stop(self, request: int) -> None:
        """A running request runs here no more; it has its memory."""
        if self._partial and request == self.running[-1]:
            self._partial = False
        self.running = self.running[self.running != request]
        self.changes += 1

    def whole(self, request: int) -> bool:
        """Whether all of a request that has its memory lies here, and stays."""
        return not any(connector.apart(request) for connector in self.connectors)

    def in_transit(self, request: int) -> bool:
        """Whether KV of a request is on its way from its memory here, or to it."""
        return any(connector.moves(request) for connector in self.connectors)

    def total(self, request: int) -> int:
        """Tokens to prefill: the prompt and what was generated before a preemption."""
        generated = self.output.item(request) - self.left.item(request)
        return int(self.prompt.item(request) + generated)

    def _stored(self, request: int) -> int:
        """Tokens that a request stores, here and elsewhere."""
        stored = int(self.allocator.stored[request])
        return stored + sum(connector.away(request) for connector in self.connectors)

    def demand(self, request: int) -> Demand:
        """What a request asks for now: the same object until it has generated more."""
        known = self._demands.get(request)
        generated = self.output.item(request) - self.left.item(request)
        if known is None or known.generated != generated:
            known = self._demands[request] = self._demanded(request)
        return known

    def _demanded(self, request: int) -> Demand:
        """The same of a request that may never come here."""
        own, output = self.requests, self.output.item(request)
        return Demand(
            self.prompt.item(request), output - self.left.item(request), self._predicted[request],
            own.prefix_id.item(request), own.prefix_tokens.item(request), output,
            own.parent.item(request), own.context.item(request), own.prefixes(request)[:-1],
        )  # fmt: skip
