"""Plain replicas behind a router: the core runs each of them from arrival to arrival, and the
router is asked in between, as it is in the general way.

Between two arrivals replicas know nothing of each other. Steps that are under way as a request
comes are not counted until it is known whether they are cut. What replicas did is put in order by
when it ended, and summed up as if one loop had served them all.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from policies.serving.plain.core import core
from policies.serving.plain.plain_more import futile, more_kept
from policies.serving.plain.plain_start import Start
from policies.serving.plain.plain_state import (
    FUTILE,
    KEEP,
    NEVER,
    NEVER_S,
    PAUSE,
    PHASES,
    rows,
)
from policies.serving.plain.plain_sums import FleetSums, Passed
from policies.serving.replica import MOST_ROUNDS

ENDS, BEGINS = range(2)
"""What a replica that pauses would do next: end steps, at that time too, or begin some, later."""
MANY = 1024
"""Stretches that are kept until they are put in order (assumed)."""


class PlainReplica:
    """One of them. `start`: its state, in arrays that the core changes."""

    def __init__(self, simulation: Any, card: int, kept: Any) -> None:
        self.card, self.replica = card, simulation.nodes[0].own[card]
        start = Start(simulation, self.replica, kept)
        self.state, self.queue, self._blocks = start.now[0], start.queue, start.blocks
        self._start = start
        efficiency = self.replica.memory.efficiency
        for name in ("weights", *PHASES):
            self.state[f"{name}_share"] = getattr(efficiency, name)

    def comes(self, request: int, at_s: float) -> float:
        """A request joins its line then; seconds that it has had nothing to do until then."""
        state, queue = self.state, self.queue
        coming = int(state["coming"])
        busy = state["running"] or state["waiting"] or coming > state["next"]
        idle_s = 0.0 if busy else at_s - float(state["now_s"])
        queue.coming_s[coming], queue.arriving[coming] = at_s, request
        state["coming"] = coming + 1
        return max(idle_s, 0.0)

    def run(self, until_s: float) -> int:
        """Until a step would begin then or later, or steps end later; why the core returned."""
        start, state = self._start, self.state
        state["until_s"] = until_s
        why = KEEP
        while why == KEEP:
            why = core(
                start.now, start.rules, start.clocks, start.requests, start.queue, self._blocks,
                start.runs, start.rows, start.curve,
            )  # fmt: skip
            if why == KEEP:
                self._blocks = more_kept(self._blocks, state)
        return why

    def ended(self) -> list[int]:
        """Requests that ended since this was asked last."""
        many = int(self.state["log"])
        self.state["log"] = 0
        return self.queue.log[:many].tolist()

    def finish(self) -> None:
        """The run is over."""
        state, replica = self.state, self.replica
        replica.engine.changes = int(state["changes"])
        replica.memory._steps = int(state["step"])
        replica.now_s, replica.served = float(state["now_s"]), int(state["ended"])
        if self._start.rules["texts"][0]:
            caching: Any = replica.engine.allocator.caching
            caching.looked_up_tokens = int(state["looked_up_tokens"])
            caching.hit_tokens = int(state["hit_tokens"])


class PlainFleet:
    """Of a simulation of several replicas that stays as it began."""

    def __init__(self, simulation: Any) -> None:
        self._simulation, self._node = simulation, simulation.nodes[0]
        self._rows = rows(MOST_ROUNDS)
        cards = range(len(self._node.own))
        self._replicas = [PlainReplica(simulation, card, self._rows) for card in cards]
        self._next: list[tuple[float, int, int]] = []
        """A heap of (when, `ENDS` or `BEGINS`, card)."""
        self._of_card: list[tuple[float, int] | None] = [None for _ in cards]
        """What of it counts."""
        self._sums = FleetSums(simulation.metrics)
        self._parts: list[Passed] = []
        self._many = 0

    def run(self) -> None:
        """Until the last request has ended. Raises DescriptionError as the general way does."""
        simulation, manager = self._simulation, self._node.manager
        coming = list(iter(simulation.source.next, None))
        for each in self._replicas:
            each._start.rules["lasts_s"] = coming[-1][0] if coming else 0.0
        for at_s, request in coming:
            self._run_until(at_s)
            if self._many > MANY:
                self._sum_up()
            card = manager.place(request, at_s)
            idle_s = self._replicas[card].comes(request, at_s)
            if idle_s:
                self._sums.idle(at_s, card, idle_s)
            self._advance(card, at_s)
        self._run_until(NEVER_S)
        self._sum_up()
        self._finish()

    def _run_until(self, at_s: float) -> None:
        """All replicas come to an arrival."""
        ahead = self._next
        while ahead and (ahead[0][0] < at_s or ahead[0][:2] == (at_s, ENDS)):
            when, what, card = heapq.heappop(ahead)
            if self._of_card[card] == (when, what):
                self._advance(card, at_s)

    def _advance(self, card: int, at_s: float) -> None:
        """A replica comes to an arrival."""
        each, state, rows = self._replicas[card], self._replicas[card].state, self._rows
        why = -1
        while why != PAUSE:
            state["rows"] = state["steps"] = 0
            why = each.run(at_s)
            if why == NEVER:
                raise each.replica.engine.line.never_fits(int(state["asked"]))
            if why == FUTILE:
                raise each.replica.engine.futile(futile(each._start.requests))
            if many := int(state["rows"]):
                steps = int(state["steps"])
                self._parts.append(Passed(
                    np.full(many, card), rows.stretches[:many].copy(), rows.ends_s[:many].copy(),
                    rows.counts[:many].copy(), rows.times_s[:steps].copy(),
                ))  # fmt: skip
                self._many += many
        if ended := each.ended():
            end_s = each._start.requests.end_s
            for request in ended:
                self._node.manager.ended([request], float(end_s[request]))
        begins = state["stage"] == 0
        key = float(state["ahead_s"]), BEGINS if begins else ENDS
        self._of_card[card] = None if key[0] == NEVER_S else key
        if key[0] < NEVER_S:
            heapq.heappush(self._next, (*key, card))

    def _sum_up(self) -> None:
        """What has ended is put in order and summed up: all replicas have come as far."""
        parts, self._parts, self._many = self._parts, [], 0
        self._sums.add(parts)

    def _finish(self) -> None:
        node, simulation = self._node, self._simulation
        for each in self._replicas:
            each.finish()
            node.busy_s[each.card] = each.state["busy_s"]
            node.preemptions[each.card] = each.state["all_preempted"]
        self._sums.close()
        simulation.now_s = max(each.replica.now_s for each in self._replicas)
        simulation._idle_to_the_end()
