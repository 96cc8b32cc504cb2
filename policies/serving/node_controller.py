"""What looks at the replicas of a node now and then, plans, and acts.

A controller looks at even intervals, at what each card said as the step under way began: looking
changes nothing. It acts between the steps of the replicas that it concerns: the step under way
counts as done, and begins nothing new before the controller has acted.

| hook | called | what it may do |
|---|---|---|
| `equips` | as a replica is built | give it a connector of the controller's own |
| `join` | once, as the run begins | begin to look; `at` calls it back |
| `plan` | every `every_s` seconds, steps under way | read; say what is done to which cards |
| `decide` | the same, every card between two steps | anything: move, put transfers |
| an act of `plan` or `at` | the cards that it names between two steps | the same to these |
| `began`, `done` | a replica's steps are planned; are over | note, and change nothing there |
| `rows` | the compiled loop has served stretches (without controllers) | note |
| `idle` | a unit is asked and computes nothing | the same |
| `lost` | a card has failed, before who is on it is drained | end what moves from and to it |
| `changed_card`, `regrouped` | as another controller moves a request, or groups cards | follow |
| `untie` | nothing will happen any more, and requests are left | change that, or say no |
| `report` | once, at the end | give its figures |

It calls, and overrides none of these: `replica`, that which serves a card now; `taken`, slots that
a card's steps under way have taken; `requeue`, by which a request waits on another card; `at`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hwmodel.description.description import DescriptionError
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_frames import Placed
from policies.allocators.kv_layout import KvLayout
from policies.engines.connector import Connector
from policies.engines.engine import Engine
from policies.memory.pipeline import PipelineSpec
from policies.memory.step import StepModel
from policies.serving.moving_options import ControllerOptions
from policies.serving.network import Network
from policies.serving.node import Node
from policies.serving.replica import Replica
from policies.serving.simulation import LOOK, Simulation, Watcher
from policies.transfers.fabric import Links

Act = tuple[Iterable[int] | None, Callable[[float], None]]
"""What is done now, `act(at_s)`, and the cards that are between two steps for it; None: all."""
Equips = Callable[[Engine, StepModel, Links], Connector]
"""Gives a replica's engine a connector that a controller needs there."""


@dataclass(frozen=True)
class Premises:
    """What a controller is built for: one node."""

    node: Node
    model: TransformerSpec
    """The shard of a card."""
    grouped: Callable[[tuple[int, ...], int, Placed | None, PipelineSpec], Replica]
    """Builds the replica that these cards are in so many stages, which share a step so unless
    `cluster.pipeline` says how; its KV lies there, or anew."""
    regions: Callable[[], Sequence[KvLayout]]
    """Gives the KV region of a card of each stage of a replica."""
    network: Network
    """Over which KV moves between its cards, and those of other nodes."""


class Controller(Watcher):
    """Looks at a node every `options.every_s` seconds and decides, or plans first, where it can
    tell that there is nothing to decide. A controller is added by one file and one line in
    `policies.serving.controllers`, or by a plug-in (docs/extend.md).

    Example: one that counts how often the line of a card is longer than ten requests.

        class Lines(Controller):
            name = "lines"
            seen = 0

            def decide(self, at_s):
                self.seen += any(len(each.waiting) > 10 for each in self.node.replicas)

            def report(self):
                return {"seen": self.seen}
    """

    name: ClassVar[str]
    """As `cluster` names it, and the metrics."""
    Options: ClassVar[type[ControllerOptions]] = ControllerOptions
    """Its options."""
    equips: ClassVar[tuple[Equips, ...]] = ()
    """What each replica gets for it. With any, KV of requests moves between replicas, so that each
    knows of requests by itself."""
    regroups: ClassVar[bool] = False
    """Whether it makes several cards serve as one replica."""
    reach: int | None = None
    """Tokens of the longest request that the cards serve together; None: as long as on one."""

    def __init__(self, options: Any, premises: Premises) -> None:
        """Raises DescriptionError for options that this node cannot have."""
        self.options, self.node, self._every_s = options, premises.node, options.every_s

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

    def requeue(self, request: int, card: int, at_s: float) -> None:
        """A request that waits (`Replica.waiting`) waits on another card from now on, at the end of
        the line. Tokens that one has made before it was preempted stay made, and are computed again
        there. Raises DescriptionError where it does not wait, or the card does not serve."""
        manager, said = self.node.manager, f"controller {self.name}: requeue"
        if card not in manager.cards:
            cards = ", ".join(map(str, manager.cards.tolist()))
            raise DescriptionError(f"{said}: expected a card that serves, of {cards}; got {card}")
        old, new = self.replica(int(manager.card_of[request])), self.replica(card)
        if manager.card_of[request] < 0 or request not in old.waiting:
            raise DescriptionError(f"{said}: request {request} does not wait on a card")
        old.withdraw(request)
        self.simulation.move(self.node, request, card)
        self.simulation.deliver(self.node, card, request, max(at_s, new.now_s))

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
