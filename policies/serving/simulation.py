"""The event core: one heap of what happens when, and one loop, whatever is served and by whom.

A stretch of equal steps lies ahead of its unit and is counted when its end comes. It is cut short
when something happens that its steps would see: a request that could join, KV that arrives, a rate
that changes, a controller that looks. So a request costs the same among any number of cards.

A run is made of nodes (replicas behind a router), a source (who sends what when), and parts that
watch and act: controllers, faults, what moves KV between nodes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError
from policies.engines.engine_progress import MOST_FUTILE
from policies.serving.metrics import Metrics
from policies.serving.node import Node
from policies.serving.plain.plain_run import ran_plain
from policies.serving.recorder import Recorder
from policies.serving.replica import Replica
from policies.serving.source import Source
from policies.serving.steady import SteadyPart
from policies.serving.stretch_rows import Stretches
from policies.serving.unit import ReplicaSteps, Unit

DONE, RETURN, FAIL, LINK, SENT, LOOK, ARRIVE, BEGIN = range(8)
"""What happens, in the order in which it does at one time."""
MOST_VAIN = 4096
"""Looks of controllers, or times that a unit is asked, that nothing comes of, at one moment or
while nothing else can happen (assumed): then nothing will."""


class Watcher:
    """A part of a run that is told what units do. Nothing by default."""

    simulation: Simulation
    by_rows: ClassVar[bool] = False
    """Whether `rows` says all that it has to know; a class says so itself."""

    def rows(self, node: Node, rows: Stretches, waits: NDArray[np.bool_]) -> None:
        """Stretches of the only replica of a node are over, in which no step was looked at; waits:
        bool (stretches,), whether requests then did."""

    def join(self, simulation: Simulation) -> None:
        """The run begins."""
        self.simulation = simulation

    def began(self, node: Node, part: ReplicaSteps, end_s: float) -> None:
        """A replica's steps were planned; they end then unless they are cut."""

    def done(self, node: Node, part: ReplicaSteps, begin_s: float, ended: list[int]) -> None:
        """A replica's steps are over, and these requests ended with them."""

    def idle(self, node: Node, unit: Unit) -> None:
        """A unit was asked for its next steps and computes nothing."""

    def lost(self, node: Node, card: int, at_s: float) -> None:
        """A card has failed, between two steps; who is on it is drained next."""

    def changed_card(self, node: Node, request: int, source: int) -> None:
        """A request that was on the card `source` is on another one of the node."""

    def regrouped(self, node: Node, cards: tuple[int, ...]) -> None:
        """These cards serve together, or one by itself, as a replica that has nothing yet."""

    def untie(self) -> bool:
        """Nothing will happen any more, and requests have not ended: whether it changed that."""
        return False


class Simulation:
    """`enter(request, at_s)`: where a request goes that arrives; None: to the only node."""

    def __init__(
        self, nodes: Iterable[Node], source: Source, metrics: Metrics,
        watchers: Iterable[Watcher] = (), enter: Callable[[int, float], None] | None = None,
        progress: Callable[[int, int], None] | None = None, recorder: Recorder | None = None,
    ) -> None:  # fmt: skip
        """progress: called with (ended, all) whenever requests ended. recorder: is told what
        clients send."""
        self.nodes, self.source, self.metrics = list(nodes), source, metrics
        self.now_s = 0.0
        self.watchers = list(watchers)
        self._enter = enter or self._to_the_node
        self._progress, self._recorder = progress, recorder
        self._steady = SteadyPart(metrics)
        self._events: list[tuple[float, int, int, int, int, Any]] = []
        """A heap of (when, what, rank, order, version, a unit or what to do); of a unit one whose
        version is not the unit's is void."""
        self._order = 0
        self._coming = 0
        """Arrivals in the heap."""
        self._vain: dict[Unit | None, tuple[int, float]] = {}
        """(how often, since when) units were asked in vain, and controllers looked (None), since
        anything was computed."""
        self._node_of = {unit: node for node in self.nodes for unit in node.units}
        self._held: list[Callable[[float], None]] = []
        self._futile = self._made_then = 0
        """Failures that ended work since an output token was made, and how many were then."""

    def at(self, at_s: float, kind: int, act: Callable[[float], None], rank: int = 0) -> None:
        """Call `act(at_s)` then."""
        self._push(at_s, kind, rank, 0, act)

    def run(self) -> None:
        """Until the last request has ended. Raises DescriptionError if the last never will."""
        if ran_plain(self):
            return
        for watcher in self.watchers:
            watcher.join(self)
        self._announce()
        events, metrics, count = self._events, self.metrics, self.source.count
        while metrics.ended < count:
            if not events and not any(watcher.untie() for watcher in self.watchers):
                raise self._stuck()
            if not events:
                continue
            at_s, kind, _, _, version, what = heapq.heappop(events)
            if kind == DONE or kind == BEGIN:
                if what.version == version:
                    self.now_s = at_s
                    (self._done if kind == DONE else self._begin)(what, at_s)
                continue
            if kind == LOOK:
                self._in_vain(None, at_s)
            self.now_s = at_s
            what(at_s)
        self._steady.close()
        self._idle_to_the_end()

    def _in_vain(self, unit: Unit | None, at_s: float) -> None:
        """A unit computes nothing, or a controller looks. Raises DescriptionError where nothing
        will happen any more."""
        count, since_s = self._vain.get(unit, (0, at_s))
        count += 1
        if count % MOST_VAIN == 0:
            if at_s == since_s or not self._goes_on:
                raise self._stuck()
            since_s = at_s
        self._vain[unit] = count, since_s

    @property
    def _goes_on(self) -> bool:
        """Whether anything will happen but looks of controllers, and units that are asked again in
        vain."""
        units = [unit for node in self.nodes for unit in node.units]
        vain = {unit for unit, (count, _) in self._vain.items() if count >= MOST_VAIN - 1}
        runs = any(
            unit.ahead is not None or (unit.next_s < math.inf and unit not in vain)
            for unit in units
        )
        own = {LOOK, BEGIN}
        return runs or self._coming > 0 or any(event[1] not in own for event in self._events)

    # what requests do

    def _announce(self) -> None:
        """The next request that the source knows will arrive."""
        coming = self.source.next()
        if coming is not None:
            at_s, request = coming
            self._coming += 1
            self.at(at_s, ARRIVE, lambda now_s: self._arrive(request, now_s))

    def _arrive(self, request: int, at_s: float) -> None:
        self._coming -= 1
        self._announce()
        self._enter(request, at_s)

    def _sent(self, request: int, at_s: float) -> None:
        self._coming -= 1
        self._enter(request, at_s)

    def _to_the_node(self, request: int, at_s: float) -> None:
        self.place(self.nodes[0], request, at_s)

    def place(self, node: Node, request: int, at_s: float) -> int:
        """The card of a node that the router sends a request to, which waits there from now on; -1:
        none is up, and it waits for one."""
        if not len(node.manager.cards):
            self.hold(lambda now_s: self.place(node, request, now_s))
            return -1
        card = node.manager.place(request, at_s)
        self.deliver(node, card, request, at_s)
        return card

    def deliver(self, node: Node, card: int, request: int, at_s: float) -> None:
        """A request joins the line of a card."""
        replica, unit = node.replicas[card], node.unit_of[card]
        replica.arrive([request], [at_s])
        if unit.ahead is None:
            self.wake(unit)
        elif unit.arrived(replica):
            self._plan_end(unit)

    def hold(self, act: Callable[[float], Any]) -> None:
        """Call `act(at_s)` when a card serves again: a request found none up."""
        self._held.append(act)

    def returned(self, at_s: float) -> None:
        """A card serves again."""
        held, self._held = self._held, []
        for act in held:
            act(at_s)

    def failed(self, at_work: bool) -> None:
        """A card has failed, which had requests or not. Raises DescriptionError where so many did
        one after the other that nothing will be made between any two of them."""
        if (made := self.metrics.made) > self._made_then:
            self._futile, self._made_then = 0, made
        self._futile += at_work or bool(self._held)
        if self._futile > MOST_FUTILE:
            left = self.source.count - self.metrics.ended
            raise DescriptionError(
                f"{left} requests have not ended, and replicas failed {MOST_FUTILE} times without "
                "an output token between: they are up for less than a step or a prefill takes "
                "(faults.mean_up_s)"
            )

    # what units do

    def wake(self, unit: Unit) -> None:
        """Plan when its next step begins, or look again at the steps that lie ahead of it."""
        if unit.ahead is None:
            unit.version += 1
            if (next_s := unit.next_s) < math.inf:
                self._push(max(next_s, self.now_s), BEGIN, unit.number, unit.version, unit)
        elif unit.recut(math.inf):
            self._plan_end(unit)

    def interrupt(self, unit: Unit, at_s: float) -> None:
        """None of its steps that were planned begins at `at_s` or later."""
        if unit.ahead is not None and unit.recut(at_s):
            self._plan_end(unit)

    def settle(self, unit: Unit, at_s: float) -> None:
        """As `interrupt`, and the step under way then counts as done: requests are between two
        steps, and nothing is planned until `wake`."""
        if unit.ahead is None:
            return
        cut = unit.recut(at_s)
        unit.version += 1
        self._finish(unit)
        unit.paused = unit.state if cut else None

    def stop(self, unit: Unit, at_s: float, failed: Replica) -> float:
        """A replica of a unit fails. What its steps have done until then counts, and the one under
        way is lost: seconds of it. The others of the unit will compute it again."""
        ahead, lost_s = unit.ahead, 0.0
        if ahead is not None:
            ends_s = [*ahead.begins_s[1:].tolist(), ahead.end_s]
            done = sum(end_s <= at_s for end_s in ends_s)
            began_s = ends_s[done - 1] if done else ahead.begin_s
            unit.ahead = ahead.first(done, began_s) if done else None
            if done:
                self._finish(unit)
            else:  # what is scheduled has its memory, unlike what follows in the stretch
                unit.lost_steps = {part.replica: (part.step, part.fitting) for part in ahead.parts}
            lost_s = at_s - began_s
        unit.lost_steps.pop(failed, None)
        unit.version += 1
        return lost_s

    def _begin(self, unit: Unit, at_s: float) -> None:
        """It is time for the next step of a unit, as far as was known when this was planned."""
        self._plan(unit, at_s, unit.next_s <= at_s)

    def _plan(self, unit: Unit, at_s: float, due: bool) -> None:
        """The next steps of a unit lie ahead of it, if they are due."""
        node, source = self._node_of[unit], self.source
        unit.steady_s, held_up = source.steady_s, unit.held_up
        begun = due and unit.begin(at_s)
        if (begun or unit.held_up) and not held_up:
            lasts = bool(self._coming or source.more or unit.waited)
            if unit.steady_s is not None:
                lasts = at_s <= unit.steady_s
            self._steady.began(unit, at_s, lasts)
        if unit.ahead is None:
            for watcher in self.watchers:
                watcher.idle(node, unit)
            self._in_vain(unit, at_s)
            self.wake(unit)
            return
        if self._vain:
            self._vain.clear()
        self._plan_end(unit)
        for watcher in self.watchers:
            for part in unit.ahead.parts:
                watcher.began(node, part, unit.ahead.end_s)

    def _plan_end(self, unit: Unit) -> None:
        assert unit.ahead is not None
        unit.version += 1
        self._push(unit.ahead.end_s, DONE, unit.number, unit.version, unit)

    def _done(self, unit: Unit, at_s: float) -> None:
        self._finish(unit)
        events = self._events
        goes_on = unit.ahead is None and self.metrics.ended < self.source.count
        if goes_on and (not events or events[0][0] > at_s) and unit.next_s <= at_s:
            unit.version += 1
            self._plan(unit, at_s, True)  # as the next event would, without a turn through the heap
        else:
            self.wake(unit)

    def _finish(self, unit: Unit) -> None:
        """The steps that lie ahead of a unit are over."""
        ahead, node, metrics = unit.ahead, self._node_of[unit], self.metrics
        assert ahead is not None
        unit.ahead = None
        self._steady.done(unit, ahead)
        warm_s = metrics.begin[0]
        for part in ahead.parts:
            replica = part.replica
            ended = replica.end(part.step, part.fitting, part.times, ahead.end_s)
            cards, step = unit.cards_of(replica), part.step
            for card in cards:
                node.busy_s[card] += replica.ran_s
            if step.preempted:
                node.preemptions[cards[0]] += step.preempted
            if node.reports and (ended or step.chunks):
                node.manager.kv_slots[cards[0]] = replica.kv_slots()
            if ended:
                node.manager.ended(ended, ahead.end_s)
                for request, sent_s in self.source.after(ended, ahead.end_s):
                    self._send(request, sent_s)
            for watcher in self.watchers:
                watcher.done(node, part, ahead.begin_s, ended)
            if ended and self._progress is not None:
                self._progress(metrics.ended, self.source.count)
        if len(ahead.parts) < len(unit.replicas):
            stepped = [part.replica for part in ahead.parts]
            for replica in unit.replicas:
                if replica not in stepped:
                    replica.wait(ahead.end_s)
        if metrics.begin[0] != warm_s:
            units = (each for node in self.nodes for each in node.units)
            self._steady.warm(metrics.begin[0], (u.ahead for u in units if u.ahead is not None))

    def _send(self, request: int, at_s: float) -> None:
        """A client sends a request then."""
        self.metrics.requests.arrival_s[request] = at_s
        if self._recorder is not None:
            self._recorder.sent(at_s, request)
        self._coming += 1
        self.at(at_s, SENT, lambda now_s: self._sent(request, now_s))

    def move(self, node: Node, request: int, card: int) -> None:
        """A request goes on at another card of its node."""
        source = int(node.manager.card_of[request])
        node.manager.move(request, card)
        for watcher in self.watchers:
            watcher.changed_card(node, request, source)

    def use(self, node: Node, replica: Replica, cards: tuple[int, ...]) -> None:
        """From now on these cards, which are between two steps, serve together as `replica`."""
        self._node_of[node.use(replica, cards)] = node
        for watcher in self.watchers:
            watcher.regrouped(node, cards)

    def _push(self, at_s: float, kind: int, rank: int, version: int, what: Any) -> None:
        self._order += 1
        heapq.heappush(self._events, (at_s, kind, rank, self._order, version, what))

    def _stuck(self) -> DescriptionError:
        waits = [
            request for node in self.nodes for replica in node.own for request in replica.waiting
        ]
        policy = self.nodes[0].own[0].engine.allocator.options.name
        first = f"the first that waits is {waits[0]}" if waits else "none of them waits"
        own = (replica for node in self.nodes for replica in node.own)
        loading = next((item for each in own for item in each.engine.loading.items()), None)
        if loading is not None:
            request, (_, connector) = loading
            first += f"; request {request} waits for KV that connector {connector.name} has"
        return DescriptionError(
            f"{self.source.count - self.metrics.ended} requests have not ended and nothing will "
            f"give them room; {first} (policy {policy})"
        )

    def _idle_to_the_end(self) -> None:
        """Replicas idle until the last of them ends; a card that is away does not."""
        last_s = max(replica.now_s for node in self.nodes for replica in node.replicas)
        for node in self.nodes:
            for unit in node.units:
                for replica, cards in zip(unit.replicas, unit.cards, strict=True):
                    if cards[0] in node.manager.cards:
                        replica.metrics.idle(last_s - replica.now_s, replica.stages)
                    else:
                        node.down_s += max(last_s - node.failed_s[cards[0]], 0.0)
