"""Replicas that fail, and return empty."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from policies.serving.fault_options import FaultSpec
from policies.serving.node import Node
from policies.serving.replica import Replica
from policies.serving.simulation import FAIL, RETURN, Simulation, Watcher


class HostFaults(Watcher):
    """The hosts of a node's replicas lose all that they have, by one law."""

    def __init__(self, node: Node, spec: FaultSpec, seed: int) -> None:
        self._node, self._spec = node, spec
        self._rng = spec.draws(len(node.own), seed)

    def join(self, simulation: Simulation) -> None:
        super().join(simulation)
        for card, at_s in self._spec.first_s(len(self._node.own), self._rng).items():
            simulation.at(at_s, FAIL, self._fails(card), card)

    def _fails(self, card: int) -> Callable[[float], None]:
        return lambda at_s: self._fail(card, at_s)

    def _fail(self, card: int, at_s: float) -> None:
        for connector in self._node.replicas[card].engine.connectors:
            connector.host_fails(at_s)
        self.simulation.wake(self._node.unit_of[card])
        if (next_s := self._spec.next_s(at_s, self._rng)) < np.inf:
            self.simulation.at(next_s, FAIL, self._fails(card), card)


class Faults(Watcher):
    """Those of a node, by one law. `lost(card, old, at_s)`: a card has failed and is away, and
    `old` was its replica; None: who was there goes where the router says."""

    def __init__(
        self, node: Node, spec: FaultSpec, seed: int,
        lost: Callable[[int, Replica, float], None] | None = None,
    ) -> None:  # fmt: skip
        self._node, self._spec, self._lost = node, spec, lost
        self._rng = spec.draws(len(node.own), seed)
        self._due: dict[float, list[int]] = {}

    def join(self, simulation: Simulation) -> None:
        super().join(simulation)
        for card, at_s in self._spec.first_s(len(self._node.own), self._rng).items():
            self._fails_at(at_s, card)

    def _fails_at(self, at_s: float, card: int) -> None:
        if at_s not in self._due:
            self._due[at_s] = []
            self.simulation.at(at_s, FAIL, self._fail)
        self._due[at_s].append(card)

    def _fail(self, at_s: float) -> None:
        """These fail together."""
        node, simulation = self._node, self.simulation
        cards = [card for card in sorted(self._due.pop(at_s)) if card in node.manager.cards]
        requests: list[int] = []
        for card in cards:
            unit, replica = node.unit_of[card], node.replicas[card]
            if unit.ahead is None:
                replica.metrics.idle(max(at_s - replica.now_s, 0.0), replica.stages)
            node.lost_s += simulation.stop(unit, at_s, replica)
            for watcher in simulation.watchers:
                watcher.lost(node, card, at_s)
            simulation.failed(replica.at_work)
        for card in cards:
            node.manager.serves(card, False)
            node.failed_s[card] = at_s
            node.failures += 1
            back_s = at_s + self._spec.down_s
            simulation.at(back_s, RETURN, self._returns(card), card)
        for card in cards:
            old = node.replicas[card]
            if not old.outlives:
                node.renew(card).now_s = at_s + self._spec.down_s
            if self._lost is not None:
                self._lost(card, old, at_s)
            else:
                requests += old.drain(at_s)
            if old.outlives:  # the card comes again with what was not on it
                old.wait(at_s + self._spec.down_s)
        if self._lost is None:
            node.manager.withdraw(requests)
            node.rerouted += len(requests)
            for request in requests:
                simulation.place(node, request, at_s)
        for unit in dict.fromkeys(node.unit_of[card] for card in cards):
            simulation.wake(unit)

    def _returns(self, card: int) -> Callable[[float], None]:
        return lambda at_s: self._return(card, at_s)

    def _return(self, card: int, at_s: float) -> None:
        node, simulation = self._node, self.simulation
        node.down_s += at_s - float(node.failed_s[card])
        node.manager.serves(card, True)
        if (next_s := self._spec.next_s(at_s, self._rng)) < np.inf:
            self._fails_at(next_s, card)
        simulation.wake(node.unit_of[card])
        simulation.returned(at_s)


def faults_of(
    node: Node, spec: FaultSpec, seed: int,
    lost: Callable[[int, Replica, float], None] | None = None,
) -> Watcher:  # fmt: skip
    """What fails in a node by a law; `lost` as of `Faults`."""
    return HostFaults(node, spec, seed) if spec.of == "host" else Faults(node, spec, seed, lost)
