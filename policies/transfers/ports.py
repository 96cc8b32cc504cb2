"""What a replica of a prefill or a decode pool sees of the KV that moves between them: a connector
of its engine, as vLLM's `NixlConnector` is.

At the prefill side a request has its first token and ends, but holds its memory until all of its KV
has arrived elsewhere. At the decode side it gets memory, waits until its KV is there, and decodes
from its second token on; if it is preempted there, it is computed again there (vLLM). It also waits
for KV of other requests that it found while that was on its way. A request that lost its KV comes
again with the tokens that it has made, as a longer prompt. With asynchronous scheduling memory is
free a step later; KV moves once it is computed, as without.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hwmodel.specs.link import LinkSpec
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator, Demand
from policies.engines.connector import ConnectedEngine, Connector, Ending, Match
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.engines.step_delays import StepDelays
from policies.memory.contention import Moving
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency, StepTimes
from policies.requests.requests import FloatArray, IntArray
from policies.transfers.fabric import Links
from policies.transfers.kv_link import IN, OUT, Transfer
from policies.transfers.located import Places, layers_of, places_of
from policies.transfers.pieces import Pieces
from policies.transfers.tier_options import Contends
from policies.transfers.transfer import (
    Index,
    Leg,
    Moved,
    TransferEnd,
    of_layers,
    states,
    transfer_legs,
)


@dataclass(eq=False, kw_only=True)
class Sent(Transfer):
    """KV of a request on its way from one replica to another. `bytes` and `descriptors`: of the
    busiest rank, each of which has a link of its own."""

    spread: float = 1.0
    """Bytes of a rank of the target for each of the source."""
    last: bool = True
    """Whether no other follows for the same request."""


class PortDelays(StepDelays):
    """What transfers of a port take of the DRAM of each card. `contention`: how they slow steps
    down. `bandwidth`: bytes a second of a card's DRAM at most."""

    bandwidth: float

    def __init__(self, links: Links, contention: Contends, direction: int) -> None:
        self._links, self.contention, self._direction = links, contention, direction
        self._waits: FloatArray = np.zeros(0)
        self.stalled_s = 0.0

    def moving(self, allocator: Allocator) -> list[Moving]:
        sent = self._sent
        if self.contention != "simulated" or sent is None:
            return []
        gone, write = 1 - self._links.network.left(sent), self._direction == IN
        return [Moving(self._rate, write, allocator.units(sent.request), gone, *sent.tokens)]

    @property
    def _sent(self) -> Sent | None:
        """What is sent or received now."""
        sent = self._links.network.at((self._links.place, self._direction))
        return sent if isinstance(sent, Sent) else None

    @property
    def _rate(self) -> float:
        """Bytes a second of a rank that are read or written for it."""
        if (sent := self._sent) is None:
            return 0.0
        return sent.rate * (sent.spread if self._direction == IN else 1.0)

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray:  # fmt: skip
        rate = self._rate if self.contention else 0.0
        self._waits = times.contended(rate, self.bandwidth * efficiency.attention, cost)
        return self._waits

    def done(self, times: StepTimes) -> None:
        self.stalled_s += float(self._waits[: len(times.total_s)].sum())


class Port(Connector):
    """Of a replica: transfers that have arrived."""

    name = "pools"
    direction: ClassVar[int]
    """In which its transfers go."""
    delays: PortDelays

    def __init__(self, links: Links, contention: Contends) -> None:
        self.delays = PortDelays(links, contention, self.direction)
        self.remote: set[int] = set()
        """Requests in line whose KV is elsewhere."""
        self.loading: dict[int, int] = {}
        """Requests with memory whose KV is on its way, and the tokens they found here."""
        self.requested: list[int] = []
        """Those that got their memory since the driver looked last."""
        self._came: list[tuple[float, int]] = []

    def joins(self, engine: Engine, steps: StepModel, model: TransformerSpec, cards: int) -> None:
        """It is that of this replica from now on. model: the shard of a card, of `cards`."""
        self._layers, self._cards, self.delays.bandwidth = model.kv_layers, cards, steps.bandwidth
        self.states = states(model)
        """What states of a request move as, to or from each card; None: it has none."""
        engine.connect(self)

    def connect(self, engine: ConnectedEngine) -> None:
        super().connect(engine)
        self.block = engine.allocator.transfer_block
        """Tokens in which KV moves."""
        self._groups = layers_of(engine.allocator.layout, self._layers)

    # what the driver asks

    def expect(self, request: int, made: int) -> None:
        """A request that has made so many tokens elsewhere will come."""
        raise NotImplementedError

    def landed(self, request: int) -> None:
        """All of its KV has moved."""
        raise NotImplementedError

    def comes_again(self, request: int) -> None:
        """Its KV is lost at the other side, and it will be computed again, here or elsewhere."""

    def came(self, at_s: float, request: int) -> None:
        """All of a request's KV has moved at `at_s`."""
        self._came.append((at_s, request))

    def cancel(self, request: int) -> list[int]:
        """Its KV will not come: it, and others that wait for this KV as well, give their memory
        back; all of them."""
        return []

    def places(self, request: int) -> Places:
        """Where the KV of a request lies, in each group of the model's layers with KV."""
        return places_of(self.engine.allocator, self._groups, request, self._cards)

    def empty(self) -> Places:
        """As `places`, of a request in the first block."""
        dims, table = self.engine.allocator.layout.dims, np.zeros(1, np.int64)
        return [
            (layers, TransferEnd(dims, self.block, table, self._cards)) for layers in self._groups
        ]  # fmt: skip

    # of time

    @property
    def due_s(self) -> float:
        """The first arrival that the replica has not seen; inf where there is none. The past, where
        the engine has not asked for what has happened."""
        if self._pending:
            return -math.inf
        return self._came[0][0] if self._came else math.inf

    @property
    def _pending(self) -> bool:
        """Whether something waits for the engine to ask."""
        return False

    def clock(self, now_s: float) -> None:
        came = [request for at_s, request in self._came if at_s <= now_s]
        self._came = self._came[len(came) :]
        for request in came:
            self.landed(request)

    def mark(self) -> None:
        self.delays.stalled_s = 0.0

    def reset(self) -> None:
        self._came.clear()  # a request that comes again is not taken for what it was before


class SendingPort(Port):
    """Of a prefill side (vLLM: a `kv_producer`). `held`: requests with a first token whose KV has
    not left. That token is foreseen to be the last here (vLLM: `max_tokens: 1`)."""

    foresees_ends: ClassVar[bool] = True
    direction = OUT

    def connect(self, engine: ConnectedEngine) -> None:
        super().connect(engine)
        self._outputs = engine.output.copy()
        self.held: dict[int, None] = {}
        self._left: set[int] = set()  # whose KV was gone before their end was known here
        self._gone: list[tuple[int, Ending]] = []

    def expect(self, request: int, made: int) -> None:
        self.engine.output[request], self.engine.left[request] = made + 1, 1

    def goes_on(self, request: int) -> bool:
        return bool(self.engine.output[request] < self._outputs[request])

    def finished(self, request: int, demand: Demand, tokens: int) -> Ending:
        if not self.goes_on(request) or request in self._left:
            self._left.discard(request)
            return Ending.FREE
        self.held[request] = None
        return Ending.HELD

    def landed(self, request: int) -> None:
        if request in self.held:
            del self.held[request]
            self._gone.append((request, Ending.FREE))
        else:
            self._left.add(request)

    def comes_again(self, request: int) -> None:
        # What is left of a request is one number for all replicas: those that still have to learn
        # that it ended here would take it for one that runs.
        if any(request == other for _, other in self._came):
            self._came = [each for each in self._came if each[1] != request]
            self.landed(request)
        if request in self.engine.ending:
            self.engine.retire()

    @property
    def _pending(self) -> bool:
        return bool(self._gone)

    def released(self) -> Sequence[tuple[int, Ending]]:
        gone, self._gone = self._gone, []
        return gone

    def reset(self) -> None:
        super().reset()
        for each in (self.held, self._left, self._gone):
            each.clear()


class ReceivingPort(Port):
    """Of a decode side (vLLM: a `kv_consumer`)."""

    direction = IN

    def connect(self, engine: ConnectedEngine) -> None:
        super().connect(engine)
        self._after: dict[int, set[int]] = {}
        """Of those that load: requests on whose KV they wait, themselves among them."""
        self._there: list[int] = []

    def expect(self, request: int, made: int) -> None:
        self.engine.left[request] = self.engine.output[request] - made - 1
        self.remote.add(request)

    def moves(self, request: int) -> bool:
        return request in self.remote or request in self.loading

    def matched(self, request: int, demand: Demand, cached: int, total: int) -> Match | None:
        if request not in self.remote:
            return None
        end = total - 1
        return Match(self.engine.cached(request, end - 1), end, computed=True)

    def allocated(
        self, request: int, demand: Demand, cached: int, total: int, match: Match | None
    ) -> None:  # fmt: skip
        if match is None:
            return
        self.remote.remove(request)
        self._after[request] = {request} | self._owners(request, match.start)
        self.loading[request] = match.start
        self.requested.append(request)

    def _owners(self, request: int, cached: int) -> set[int]:
        """Requests that load what a request found here."""
        if not cached or not self.loading:
            return set()
        whole = [at for at, group in enumerate(self._groups) if group.window is None]
        found = set()
        for group in whole[:1]:
            mine = self._begins(request, group)[: cached // self.block]
            for other, had in self.loading.items():
                if np.isin(mine, self._begins(other, group)[had // self.block :]).any():
                    found.add(other)
        return found

    def _begins(self, request: int, group: int) -> IntArray:
        """First slots of what a request has in a group of layers."""
        return self.engine.allocator.layer_units(request, group).start

    def landed(self, request: int) -> None:
        for other, awaited in list(self._after.items()):
            awaited.discard(request)
            if not awaited:
                del self._after[other], self.loading[other]
                self._there.append(other)

    @property
    def _pending(self) -> bool:
        return bool(self._there)

    def arrived(self) -> Sequence[int]:
        there, self._there = self._there, []
        return there

    def cancel(self, request: int) -> list[int]:
        gone = {request}
        while more := {
            other for other, awaited in self._after.items() if awaited & gone and other not in gone
        }:
            gone |= more
        found = [other for other in self.loading if other in gone]
        for other in reversed(found):
            del self.loading[other], self._after[other]
            self.engine.give_up(other)
        return found

    def reset(self) -> None:
        super().reset()
        for each in (self.remote, self.loading, self._after, self.requested, self._there):
            each.clear()


def between(
    link: LinkSpec, model: TransformerSpec, skip: int, tokens: int, near: Places,
    far: Places, by_layer: bool, beside: Pieces | None = None, index_bytes: int = 0,
) -> Moved:  # fmt: skip
    """A transfer of a request's tokens from `skip` to `tokens` between two such places, and of what
    goes beside; of layers with a window those that the next token attends to. model: whole.
    index_bytes: of a token in each layer, by which tokens are chosen.

    Where the far end is cut into more stages, their layers have tables alike, and all come from one
    of this end (assumed: in the shares that the stage has which is given)."""
    legs = []
    for here, source in near:
        shares = [len(set(here.numbers) & set(there.numbers)) for there, _ in far]
        for (there, target), share in zip(far, shares, strict=True):
            if not (many := share * len(here.numbers) // max(sum(shares), 1)):
                continue
            step = math.gcd(source.block, target.block)
            first = max(here.needs_from(tokens), there.needs_from(tokens)) // step * step
            index = Index(many, index_bytes) if index_bytes else None
            own = of_layers(model, many)
            legs.append(Leg(own, tokens, source, target, max(skip, first), index))
    return transfer_legs(link, legs, by_layer=by_layer, beside=beside)
