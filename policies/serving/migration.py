"""Llumnix (arXiv 2406.03243): running requests move from full cards to empty ones.

Each time the cards with less freeness than a threshold are paired with those that have more, the
fullest with the emptiest. The shortest running request of the one is copied to the other in
stages, while it decodes: all it has, then what came since. When few blocks are left it stops, these
are copied, and it goes on there. It stays where it is if it ends, is preempted or finds no room
there, or if the stages are too many. Copies go from and to the places that it has at either end:
its blocks, those of each group of layers, or its reservation, which is as long there as the policy
says. A state is that of the last token, and goes whole with the last copy.

Where one of the two cards fails, nothing more is copied. A request whose KV is whole at its source
goes on there; one whose source is lost is computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hwmodel.specs.link import load_link
from policies.requests.percentiles import summary
from policies.serving.moving_options import MigrationSpec
from policies.serving.network import places
from policies.serving.node import Node
from policies.serving.node_controller import Act, Controller, Premises
from policies.transfers.guests import Guests
from policies.transfers.kv_link import Transfer
from policies.transfers.located import layers_of, places_of
from policies.transfers.ports import between
from policies.transfers.transfer import states


@dataclass(eq=False)
class Move:
    """A request under way. `copied`: its first tokens, in whole blocks, that are there. `copy`:
    what is on its way; with the `last` one it has stopped."""

    request: int
    source: int
    target: int
    copied: int = 0
    stages: int = 0
    bytes: int = 0
    copy: Transfer | None = None
    last: bool = False


class Migrating(Controller):
    """See the module."""

    name = "migration"
    Options = MigrationSpec
    equips = (Guests,)

    def __init__(self, options: MigrationSpec, premises: Premises) -> None:
        """Raises DescriptionError for KV that `transfer` refuses."""
        super().__init__(options, premises)
        spec, node, model = options, premises.node, premises.model
        layout = node.own[0].engine.allocator.layout
        self._spec, self._model, self._link = spec, model, load_link(spec.link)
        self._network = premises.network
        self._layers, self._states = layers_of(layout, model.kv_layers), states(model)
        self._index_bytes = layout.layer_index_bytes
        self._moves: list[Move] = []
        self.moved: list[tuple[int, float, int]] = []
        """Of each request its tokens, seconds from its stop until it may run there, and stages."""
        self._aborted = self._bytes = self._lost_bytes = 0

    def engine(self, card: int) -> Guests:
        """That of a card."""
        return self.replica(card).engine.connector(Guests)

    def plan(self, at_s: float) -> list[Act]:
        busy = {card for move in self._moves for card in (move.source, move.target)}
        up = [card for card in self.node.manager.cards.tolist() if card not in busy]
        free = {card: self.engine(card).freeness(self.taken(card, at_s)) for card in up}
        full = sorted((c for c in free if free[c] < self._spec.freeness), key=free.__getitem__)
        empty = [c for c in free if free[c] > self._spec.freeness and self.engine(c).room_for_one()]
        empty.sort(key=lambda card: -free[card])
        return [
            (pair, partial(self._begin, *pair)) for pair in zip(full, empty, strict=False)
            if len(self.engine(pair[0]).whole())
        ]  # fmt: skip

    def _begin(self, source: int, target: int, at_s: float) -> None:
        """The shortest request of a card begins to move to another."""
        giving = self.engine(source)
        if not len(able := giving.whole()):  # the last one ended with the step that was under way
            self._aborted += 1
            return
        request = int(able[np.argmin(giving.allocator.stored[able])])
        giving.lost_memory.pop(request, None)
        giving.allocator.pin(request)
        self._moves.append(Move(request, source, target))
        self._stage(self._moves[-1], at_s)

    def _stage(self, move: Move, at_s: float) -> None:
        """The next copy, or the end."""
        if move not in self._moves:
            return
        cards, request = (move.source, move.target), move.request
        giving, taking = (self.engine(card) for card in cards)
        runs = request in giving.running and request not in giving.lost_memory
        tokens = int(giving.allocator.stored[request]) if runs else 0
        block = giving.block
        last = -(-tokens // block) - move.copied // block < self._spec.last_blocks
        comes = not move.stages or request in taking.landing.coming
        stays = not runs or not comes or (not last and move.stages == self._spec.most_stages)
        if stays or not taking.landing.host(request, tokens):
            taking.landing.cancel(request)
            if runs:
                giving.allocator.unpin(request)
            self._moves.remove(move)
            self._aborted += 1
            self._lost_bytes += move.bytes
            return
        move.copy, move.last = self.copy(move, tokens, last), last
        self._bytes += move.copy.bytes
        move.bytes += move.copy.bytes
        move.stages += 1
        move.copied = tokens // block * block
        if last:
            giving.stop(request)
            taking.landing.awaits(request, move.copy)
            self.simulation.move(self.node, request, move.target)
        self._network.put(move.copy, max(at_s, self.replica(move.source).now_s))

    def copy(self, move: Move, tokens: int, last: bool = False) -> Transfer:
        """What is not there of so many tokens; with the last copy goes the state."""
        near, far = (
            places_of(self.engine(card).allocator, self._layers, move.request)
            for card in (move.source, move.target)
        )
        block = self.engine(move.source).block
        skip = min(move.copied, (tokens - 1) // block * block)
        beside = self._states if last else None
        found = between(
            self._link, self._model, skip, tokens, near, far, False, beside, self._index_bytes
        )
        seconds, size = found.cost.total_ns / 1e9, found.pieces.bytes
        source, target = (
            places(self.node.name, (move.source,)),
            places(self.node.name, (move.target,)),
        )
        return Transfer(
            source=source, target=target, request=move.request, tokens=(skip, tokens), bytes=size,
            descriptors=found.pieces.descriptors, alone_s=seconds, way="migration",
            on_landed=partial(self._landed, move), read=size / seconds, written=size / seconds,
        )  # fmt: skip

    def _landed(self, move: Move, copy: Transfer, at_s: float) -> None:
        act = self._over if move.last else self._stage
        self.at(at_s, partial(act, move), (move.source, move.target))

    def _over(self, move: Move, at_s: float) -> None:
        """The last copy is there: it goes on."""
        if move not in self._moves:
            return
        assert move.copy is not None
        for card in (move.source, move.target):
            self.engine(card).landing.over(move.request, at_s, card == move.target)
            self.engine(card).landing.land(at_s)
        down_s = move.copy.landed_s - move.copy.put_s
        self.moved.append((move.copy.tokens[1], down_s, move.stages))
        self._moves.remove(move)

    def lost(self, node: Node, card: int, at_s: float) -> None:
        """See `Watcher.lost`: copies from and to the card end there."""
        if node is not self.node:
            return
        for move in [each for each in self._moves if card in (each.source, each.target)]:
            self._moves.remove(move)
            self._aborted += 1
            self._lost_bytes += move.bytes
            request = move.request
            giving, taking = (self.engine(each) for each in (move.source, move.target))
            assert move.copy is not None
            self._network.drop([move.copy])
            if request in (*taking.landing.coming, *taking.landing.stopped):
                taking.landing.over(request, at_s, runs=False)
            if move.last:  # it stopped, and is at its source again
                self.simulation.move(node, request, move.source)
                giving.landing.over(request, at_s, runs=True)
            elif request in giving.running:
                giving.allocator.unpin(request)
            other = move.target if card == move.source else move.source
            self.at(at_s, partial(self._land, other), (other,))

    def _land(self, card: int, at_s: float) -> None:
        self.engine(card).landing.land(at_s)

    def report(self) -> dict[str, Any]:
        tokens, down_s, stages = np.array(self.moved, np.float64).reshape(-1, 3).T
        slower = [s for card in range(len(self.node.own)) for s in self.engine(card).delays.slower]
        return {
            "moved": len(tokens),
            "aborted": self._aborted,
            "bytes": self._bytes,
            "lost_bytes": self._lost_bytes,
            "downtime_s": summary(down_s),
            "tokens": summary(tokens),
            "stages": summary(stages),
            "steps_longer": summary(np.array(slower)),
        }
