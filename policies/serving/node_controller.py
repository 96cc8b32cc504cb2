"""What looks at the replicas of a node now and then, plans, and acts.

A controller looks at even intervals, at what each card said as the step under way began: looking
changes nothing. It acts between the steps of the replicas that it concerns: the step under way
counts as done, and begins nothing new before the controller has acted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from policies.serving.node import Node
from policies.serving.replica import Replica
from policies.serving.simulation import LOOK, Simulation, Watcher

Act = tuple[Iterable[int] | None, Callable[[float], None]]
"""What is done now, `act(at_s)`, and the cards that are between two steps for it; None: all."""


class Controller(Watcher):
    """Looks at `node` every `every_s` seconds. One of one's own states its `name` and decides, or
    plans first, where it can tell that there is nothing to decide.

    Example:
        class Drain(Controller):
            name = "drain"

            def decide(self, at_s: float) -> None:
                ...  # look at self.node.replicas, move requests between them
    """

    name: str

    def __init__(self, node: Node, every_s: float) -> None:
        self.node, self._every_s = node, every_s

    def plan(self, at_s: float) -> Sequence[Act]:
        """What is done now, from what is known while steps are under way (`taken`); nothing: they
        go on as if nobody had looked. As it is, `decide`."""
        return [(None, self.decide)]

    def decide(self, at_s: float) -> None:
        """Choose what is done, and do it. Every replica is between two steps; the last one of each
        may end later than `at_s` (`Replica.now_s`)."""
        raise NotImplementedError

    def taken(self, card: int, at_s: float) -> int:
        """Slots that a card has taken by `at_s` beyond those that its allocator counts: equal steps
        are counted together when they are over."""
        replica = self.replica(card)
        decode, rounds = self.node.unit_of[card].further(replica, at_s)
        return replica.engine.allocator.taken(decode, rounds) if rounds else 0

    @abstractmethod
    def report(self) -> dict[str, Any]:
        """What it did, for the metrics."""

    def join(self, simulation: Simulation) -> None:
        """See `Watcher.join`."""
        super().join(simulation)
        simulation.at(self._every_s, LOOK, self._look)

    def at(
        self, at_s: float, act: Callable[[float], None], cards: Iterable[int] | None = None
    ) -> None:
        """Call `act(at_s)` then, with these cards between two steps; None: all."""
        chosen = None if cards is None else tuple(cards)
        self.simulation.at(at_s, LOOK, lambda now_s: self._act(act, chosen, now_s))

    def replica(self, card: int) -> Replica:
        """That which serves a card now."""
        return self.node.replicas[card]

    def _look(self, at_s: float) -> None:
        for cards, act in self.plan(at_s):
            self._act(act, None if cards is None else tuple(cards), at_s)
        self.simulation.at(at_s + self._every_s, LOOK, self._look)

    def _act(
        self, act: Callable[[float], None], cards: tuple[int, ...] | None, at_s: float
    ) -> None:
        node, simulation = self.node, self.simulation
        units = node.units if cards is None else [node.unit_of[card] for card in cards]
        for unit in dict.fromkeys(units):
            simulation.settle(unit, at_s)
        act(at_s)
        units = node.units if cards is None else [node.unit_of[card] for card in cards]
        for unit in dict.fromkeys(units):
            for replica in unit.replicas:
                replica.stir()
            simulation.wake(unit)
