"""Prefill and decode apart: a node of replicas that prefill, one of those that decode, and KV that
moves between them.

A request goes to a replica of each node. With `pull` it is computed, then gets memory at the
decode side; with `push` it gets that first. Its KV moves over the fabric
(`policies.serving.pool_fabric`), without what the decode side has of it. The blocks that it leaves
are free when all of it has arrived.

What is moved of a request layer by layer can arrive a layer's time after its chunk is computed, at
the soonest. Requests whose KV is lost with a replica are computed again, with the tokens that they
have made; others move again.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from hwmodel.specs.device import load_device
from policies.requests.requests import IntArray
from policies.serving.building import admissible
from policies.serving.cells import ServedCell
from policies.serving.cluster import Manager
from policies.serving.faults import faults_of
from policies.serving.network import Network
from policies.serving.node import Node
from policies.serving.pool import Pool, PoolMetrics
from policies.serving.pool_fabric import PoolFabric, Way
from policies.serving.pool_figures import PoolsRun, figures_of_run, side_run
from policies.serving.pool_options import DECODE, PREFILL, PoolSpec
from policies.serving.pool_trip import Trip
from policies.serving.replica import Replica
from policies.serving.replica_builder import ReplicaBuilder
from policies.serving.run import Run
from policies.serving.simulation import Watcher
from policies.serving.slot_use import Known
from policies.serving.unit import ReplicaSteps, Unit
from policies.transfers.ports import Port, ReceivingPort, SendingPort, Sent


class Disaggregation(Watcher):
    """Both nodes, and what moves between them."""

    def __init__(self, run: Run) -> None:
        """See `policies.serving.serving.serve`; raises DescriptionError for KV that `transfer`
        refuses as well."""
        spec, model, stream, metrics = run.spec, run.model, run.stream, run.metrics
        assert spec.pools is not None
        self._spec = spec.pools
        sides = spec.pools.prefill, spec.pools.decode
        stored = (model.stored_as(spec.weights, side.kv or spec.kv) for side in sides)
        smaller = min(stored, key=lambda each: each.kv_token_bytes)
        self._stream, self._metrics = stream, metrics
        self._most_tokens = spec.engine.max_tokens
        self._requests, self._output = stream.requests, metrics.requests.output
        network = Network(run.fabric)
        self._fabric = PoolFabric(spec.pools, smaller, network, self._landed)
        halves = {PREFILL: spec.pools.prefill, DECODE: spec.pools.decode}
        self.pools = {name: self._pool(name, half, run) for name, half in halves.items()}
        self.nodes = [pool.node for pool in self.pools.values()]
        self.made: IntArray = np.zeros(len(self._requests), np.int64)
        """Tokens made of each request before its next prefill."""
        self._trips: dict[int, Trip] = {}
        self._at: dict[tuple[str, int], set[int]] = {
            (name, number): set()
            for name, pool in self.pools.items()
            for number in range(len(pool.node.own))
        }
        self.again = 0
        """Requests whose KV was lost."""
        self._began_s = 0.0
        self._fabric.between(self.pools)
        self.watchers: list[Watcher] = [self, network]
        decode = self.pools[DECODE]
        self._controllers = decode.builder.controllers(decode.node, network)
        self.watchers += self._controllers
        for law in spec.faults:
            for name, pool in self.pools.items():
                if law.side in (None, name):
                    self.watchers.append(
                        faults_of(pool.node, law, run.seed, partial(self._lost, name))
                    )
        fitting, other = (
            admissible(spec, node.own[0].engine.allocator, self._requests, stream.outputs)
            for node in self.nodes
        )
        self.admitted: IntArray = np.intersect1d(fitting, other)

    def _pool(self, name: str, half: PoolSpec, run: Run) -> Pool:
        spec, stream = run.spec, run.stream
        assert spec.pools is not None
        card = run.device if half.device is None else load_device(half.device)
        contention = spec.pools.contention
        metrics = PoolMetrics(self._metrics, self._requests, stream.first_sample)
        kind = SendingPort if name == PREFILL else ReceivingPort
        own = spec.pooled(half).on_device(card, run.model)
        builder = ReplicaBuilder(
            replace(run, device=card, spec=own, metrics=metrics), name,
            lambda links: kind(links, contention), int(name == DECODE), half.replicas,
        )  # fmt: skip
        first = spec.pools.prefill.replicas if name == DECODE else 0
        cluster = spec.cluster.behind(half.replicas, spec.router_of(half))
        manager = Manager(cluster, self._requests, stream.predicted.length)
        node = Node(manager, builder.card, name=name, first=first)
        return Pool(builder, metrics, node)

    # what the event core tells

    def enter(self, request: int, at_s: float) -> None:
        """A request comes, or comes again with its tokens; it waits while a side is away."""
        if (before := self._trips.pop(request, None)) is not None:
            self._port(PREFILL, before.source).comes_again(request)
        if not all(len(node.manager.cards) for node in self.nodes):
            self.simulation.hold(lambda now_s: self.enter(request, now_s))
            return
        made = int(self.made[request])
        trip = Trip(
            -1, -1, made, int(self._requests.prompt_tokens[request]) + made,
            made + 1 < self._output[request],
        )  # fmt: skip
        self._trips[request] = trip
        trip.source = self._place(PREFILL, request, at_s)
        if trip.moves:
            trip.target = self._place(DECODE, request, at_s)
            if self._spec.mode == "push":
                self._to_decode(request, at_s)
                return
        self._to_prefill(request, at_s)

    def began(self, node: Node, part: ReplicaSteps, end_s: float) -> None:
        if node.name == DECODE:
            self._given(part.replica)
        elif self._spec.transfer == "layers":
            begin_s = part.replica.now_s
            for chunk in part.step.chunks:
                trip = self._trips[chunk.request]
                trip.computed = chunk.start + chunk.tokens, begin_s, end_s
                trip.done = chunk.last
                if trip.skip is not None:
                    self._send(chunk.request, begin_s)

    def idle(self, node: Node, unit: Unit) -> None:
        if node.name == DECODE:
            self._given(unit.replicas[0])

    def done(self, node: Node, part: ReplicaSteps, begin_s: float, ended: list[int]) -> None:
        now_s = part.replica.now_s
        if node.name == PREFILL:
            for chunk in part.step.chunks:
                self._prefilled(
                    chunk.request, chunk.start + chunk.tokens, chunk.last, begin_s, now_s
                )
        warm_s = self._metrics.begin[0]
        if warm_s > self._began_s:  # with these requests the warm-up ended
            self._began_s = warm_s
            self._fabric.warm()
            for pool in self.pools.values():
                pool.metrics.begin = (warm_s, pool.metrics.sums.copy())
        for request in ended:
            trip = self._trips.pop(request)
            number = trip.source if node.name == PREFILL else trip.target
            self._at[node.name, number].discard(request)

    def changed_card(self, node: Node, request: int, source: int) -> None:
        target = int(node.manager.card_of[request])
        self._trips[request].target = target
        self._at[node.name, source].discard(request)
        self._at[node.name, target].add(request)
        left, right = (self._port(DECODE, number) for number in (source, target))
        if request in left.remote:  # it waits for memory there, and not here
            left.remote.discard(request)
            right.remote.add(request)

    def regrouped(self, node: Node, cards: tuple[int, ...]) -> None:
        """See `Watcher.regrouped`. What is on its way to these cards begins anew."""
        port = self._port(DECODE, cards[0])
        for request in sorted(set().union(*(self._at[node.name, each] for each in cards))):
            trip = self._trips[request]
            waits = trip.done or self._spec.mode == "push"
            if waits and request in self._at[PREFILL, trip.source]:
                self._drop(trip)
                port.remote.add(request)

    def untie(self) -> bool:
        """With push, each side may wait for the other's blocks after a failure: who came last of
        those that hold a prompt's KV and have no memory at the decode side is computed again."""
        held = [at for at, trip in self._trips.items() if trip.done and trip.skip is None]
        if not held:
            return False
        request = max(held)
        source = self._trips[request].source
        self._port(PREFILL, source).landed(request)
        self._source_lost(request, self.simulation.now_s)
        self._wake(PREFILL, source)
        return True

    # a request's way

    def _place(self, name: str, request: int, at_s: float) -> int:
        """The replica of a node that the router chooses."""
        number = self.pools[name].node.manager.place(request, at_s)
        self._at[name, number].add(request)
        return number

    def _port(self, name: str, number: int) -> Port:
        return self.pools[name].port(number)

    def _wake(self, name: str, number: int) -> None:
        unit = self.pools[name].node.unit_of[number]
        for replica in unit.replicas:
            replica.stir()
        self.simulation.wake(unit)

    def _meet(self, name: str, number: int, request: int, at_s: float) -> None:
        """A request joins the line of a replica, with the tokens that it has made."""
        self._port(name, number).expect(request, self._trips[request].made)
        self.simulation.deliver(self.pools[name].node, number, request, at_s)

    def _to_prefill(self, request: int, now_s: float) -> None:
        trip = self._trips[request]
        trip.entered = True
        self._meet(PREFILL, trip.source, request, now_s)

    def _to_decode(self, request: int, now_s: float) -> None:
        self._meet(DECODE, self._trips[request].target, request, now_s)

    def _given(self, replica: Replica) -> None:
        """Requests have got memory at the decode side."""
        port = self.pools[DECODE].builder.ports[replica]
        for request in port.requested:
            trip = self._trips[request]
            trip.skip = port.loading[request]
            if trip.entered:
                self._send(request, replica.now_s)
            else:
                self._to_prefill(request, replica.now_s)
        port.requested.clear()

    def _prefilled(
        self, request: int, tokens: int, last: bool, began_s: float, now_s: float
    ) -> None:
        """A chunk of a request has been computed."""
        trip, layers = self._trips[request], self._spec.transfer == "layers"
        trip.computed, trip.done = (tokens, began_s, now_s), last
        if last:
            self.made[request] = trip.made + 1
            if trip.moves and self._spec.mode == "pull" and trip.target >= 0:
                self._to_decode(request, now_s)
        if trip.skip is not None and not layers:
            self._send(request, now_s)

    def _send(self, request: int, now_s: float) -> None:
        """Put what is computed of a request and has not been sent."""
        trip, layers = self._trips[request], self._spec.transfer == "layers"
        if trip.computed is None or trip.skip is None or (not trip.done and not layers):
            return
        near, far = self._port(PREFILL, trip.source), self._port(DECODE, trip.target)
        end, *computed_s = trip.computed
        step = math.gcd(near.block, far.block)
        tokens = trip.kv if trip.done else end // step * step
        if tokens <= trip.skip:
            return
        way, part = Way(trip.source, trip.target), (trip.skip, tokens)
        trip.sent.append(self._fabric.send(request, way, part, trip.done, now_s, *computed_s))
        trip.skip = tokens

    def _landed(self, sent: Sent, now_s: float) -> None:
        """All of a transfer has arrived."""
        request = sent.request
        trip = self._trips[request]
        trip.sent.remove(sent)
        assert trip.computed is not None
        self._fabric.count(sent, trip.computed[2])
        if sent.last:
            for place in sent.places:
                self._port(place.node, place.card).came(now_s, request)
                self._wake(place.node, place.card)
            self._leave(PREFILL, trip.source, request)

    def _leave(self, name: str, number: int, request: int) -> None:
        """A request is on a replica no more."""
        self._at[name, number].discard(request)
        manager = self.pools[name].node.manager
        if manager.card_of[request] >= 0:
            manager.withdraw([request])

    # failures

    def _lost(self, name: str, number: int, old: Replica, at_s: float) -> None:
        """A replica, `old`, has lost all that it had, and is away."""
        requests = sorted(self._at[name, number])
        old.drain(at_s)
        for request in requests:
            if name == PREFILL:
                self._source_lost(request, at_s)
            else:
                self._target_lost(request, old, at_s)

    def _source_lost(self, request: int, now_s: float) -> None:
        trip = self._trips[request]
        if trip.moves and trip.target >= 0:
            self._give_up(request, now_s)
            self._leave(DECODE, trip.target, request)
        self._leave(PREFILL, trip.source, request)
        self.again += trip.computed is not None
        self.enter(request, now_s)

    def _give_up(self, request: int, now_s: float) -> None:
        """A request leaves the decode side; others that wait for its KV ask for memory again."""
        trip = self._trips[request]
        self._drop(trip)
        port = self._port(DECODE, trip.target)
        self.pools[DECODE].node.replicas[trip.target].withdraw(request)
        port.remote.discard(request)
        if request not in port.loading:
            return
        for other in port.cancel(request):
            theirs = self._trips[other]
            if other == request:
                continue
            self._drop(theirs)
            if other in self._at[PREFILL, theirs.source]:
                self._to_decode(other, now_s)
                continue
            self._leave(DECODE, theirs.target, other)  # its own KV had come, and is lost
            self.again += 1
            self.enter(other, now_s)
        self._wake(DECODE, trip.target)

    def _target_lost(self, request: int, old: Replica, now_s: float) -> None:
        trip = self._trips[request]
        self._drop(trip)
        if request in self._at[PREFILL, trip.source] and trip.moves:
            self._leave(DECODE, trip.target, request)
            self._aim_again(request, trip, now_s)
            return
        self._leave(DECODE, trip.target, request)
        self.made[request] = self._output[request] - old.engine.left[request]
        self.again += 1
        self.enter(request, now_s)

    def _aim_again(self, request: int, trip: Trip, now_s: float) -> None:
        """A request's KV goes to another replica, once one is up."""
        if self._trips.get(request) is not trip:  # it was computed again meanwhile
            return
        if not len(self.pools[DECODE].node.manager.cards):
            trip.target = -1
            self.simulation.hold(lambda at_s: self._aim_again(request, trip, at_s))
            return
        trip.target = self._place(DECODE, request, now_s)
        if trip.done or self._spec.mode == "push":
            self._to_decode(request, now_s)

    def _drop(self, trip: Trip) -> None:
        self._fabric.drop(trip.sent)
        trip.sent, trip.skip = [], None

    # figures

    def figures(self) -> tuple[dict[str, Any], ServedCell]:
        """All metrics of a run, and what those of several cells are made of."""
        stream, decode = self._stream, self.pools[DECODE]
        sides = {
            name: side_run(name, pool, self._fabric.busy_s) for name, pool in self.pools.items()
        }
        failures = {
            "replicas": sum(node.failures for node in self.nodes), "again": self.again,
            "dropped_transfers": len(self._fabric.dropped),
        }  # fmt: skip
        controllers = {each.name: each.report() for each in self._controllers}
        run = PoolsRun(sides, self._fabric.arrived, failures, controllers)
        figures = figures_of_run(run, DECODE)
        if (moves := self.pools[PREFILL].replicas[0].moves) is not None:
            figures["moves"] = moves.figures()
        if (pipeline := decode.replicas[0].pipeline) is not None:
            figures["pipeline"] = pipeline.figures()
        figures |= stream.counts(self.admitted, self._most_tokens) | stream.predicting()
        figures |= {"energy": None, "tokens_per_joule": {}}
        none = Known(np.zeros(0, np.int64), np.zeros(0), sides[DECODE].layout)
        return figures, ServedCell(self._metrics, none, {}, figures, run)
