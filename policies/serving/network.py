"""The network of a fabric in a run: transfers between cards land in the time of the event core, and
steps of the cards at both ends see what moves there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from policies.serving.simulation import LINK, Watcher
from policies.transfers.fabric import Fabric
from policies.transfers.kv_link import KvPlace, Transfer


class Network(Watcher):
    """Goes on with the links between cards, and nothing else does."""

    by_rows = True  # what steps do is nothing to it

    def __init__(self, fabric: Fabric) -> None:
        self.link = fabric.network
        self._due_s = math.inf

    def put(self, transfer: Transfer, at_s: float) -> None:
        """It waits for its links from then on, or from now on if that is later."""
        self.link.put(transfer, max(at_s, self.link.now_s))
        self._plan()

    def drop(self, transfers: Iterable[Transfer]) -> None:
        """These are lost, those that have not landed."""
        before, now_s = self.link.busy, self.simulation.now_s
        for each in transfers:
            if not each.over:
                self.link.drop(each, now_s)
        self._changed(before, now_s)
        self._plan()

    def _plan(self) -> None:
        """Look at the links again when the next transfer is put or lands."""
        if (due_s := self.link.due_s) < self._due_s:
            self._due_s = due_s
            self.simulation.at(due_s, LINK, self._step)

    def _step(self, at_s: float) -> None:
        if at_s < self._due_s:  # planned before a transfer was dropped
            return
        self._due_s = math.inf
        if self.link.due_s <= at_s:
            before = self.link.busy
            self.link.until(at_s)
            self._changed(before, at_s)
        self._plan()

    def _changed(self, before: Mapping[Any, Transfer], at_s: float) -> None:
        """Steps that begin from now on see what moves where something else did before."""
        after = self.link.busy
        changed = {each for each in before.items() ^ after.items() if each[1].felt}
        for place in {place for (place, _), _ in changed}:
            self.interrupt(place, at_s)

    def interrupt(self, place: KvPlace, at_s: float) -> None:
        """No step of a card that was planned begins then or later."""
        node = next(each for each in self.simulation.nodes if each.name == place.node)
        self.simulation.interrupt(node.unit_of[place.card], at_s)


def places(name: str, cards: Iterable[int]) -> tuple[KvPlace, ...]:
    """Those of these cards of a node, in order."""
    return tuple(KvPlace(name, card) for card in sorted(cards))
