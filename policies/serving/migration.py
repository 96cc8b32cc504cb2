"""Llumnix (arXiv 2406.03243): running requests move from full cards to empty ones.

Each time the cards with less freeness than a threshold are paired with those that have more, the
fullest with the emptiest. The shortest running request of the one is copied to the other in
stages, while it decodes: all it has, then what came since. When few blocks are left it stops, these
are copied, and it goes on there. It stays where it is if it ends, is preempted or finds no room
there, or if the stages are too many. Copies go from and to the blocks that it has at either end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.link import load_link
from hwmodel.specs.transformer import TransformerSpec
from policies.requests.percentiles import summary
from policies.serving.moving_options import MigrationSpec
from policies.serving.node import Node
from policies.serving.node_controller import Controller
from policies.transfers.hosting import Hosting
from policies.transfers.moves import as_table
from policies.transfers.transfer import Server, transfer


@dataclass(eq=False)
class Move:
    """A request under way. `copied`: its first tokens, in whole blocks, that are there."""

    request: int
    source: int
    target: int
    copied: int = 0
    stages: int = 0


class Migrating(Controller):
    """`model`: the shard of a card."""

    name = "migration"

    def __init__(self, node: Node, spec: MigrationSpec, model: TransformerSpec) -> None:
        """Raises DescriptionError for KV that `transfer` refuses."""
        super().__init__(node, spec.every_s)
        self._layout = node.own[0].engine.allocator.layout
        if self._layout.apart is not None:
            raise DescriptionError(f"cluster.migration: {model.name} keeps scales apart")
        self._spec, self._model, self._link = spec, model, load_link(spec.link)
        self._moves: list[Move] = []
        self.moved: list[tuple[int, float, int]] = []
        """Of each request its tokens, seconds from its stop until it may run there, and stages."""
        self._aborted = self._bytes = 0

    def engine(self, card: int) -> Hosting:
        """That of a card."""
        found = self.replica(card).hosting
        assert found is not None
        return found

    def decide(self, at_s: float) -> None:
        taken = {card for move in self._moves for card in (move.source, move.target)}
        free = {c: self.engine(c).freeness for c in range(len(self.node.own)) if c not in taken}
        full = sorted((c for c in free if free[c] < self._spec.freeness), key=free.__getitem__)
        empty = [c for c in free if free[c] > self._spec.freeness and self.engine(c).room_for_one()]
        empty.sort(key=lambda card: -free[card])
        for source, target in zip(full, empty, strict=False):
            giving = self.engine(source)
            if len(able := giving.whole()):
                request = int(able[np.argmin(giving.allocator.stored[able])])
                giving.lost.pop(request, None)
                self._moves.append(Move(request, source, target))
                self._stage(self._moves[-1], at_s)

    def _stage(self, move: Move, at_s: float) -> None:
        """The next copy, or the end."""
        cards, request = (move.source, move.target), move.request
        giving, taking = (self.engine(card) for card in cards)
        runs = request in giving.running and request not in giving.lost
        tokens = int(giving.allocator.stored[request]) if runs else 0
        left, block = int(giving.left[request]), giving.block
        last = -(-tokens // block) - move.copied // block < self._spec.last_blocks
        comes = not move.stages or request in taking.coming
        stays = not runs or not comes or (not last and move.stages == self._spec.most_stages)
        if stays or not taking.host(request, tokens, left):
            taking.cancel(request)
            self._moves.remove(move)
            self._aborted += 1
            return
        seconds, size = self.copy(move, tokens)
        now_s = max(at_s, self.replica(move.source).now_s)
        for engine in (giving, taking):
            engine.copies(size / seconds, now_s + seconds)
        self._bytes += size
        move.stages += 1
        move.copied = tokens // block * block
        if not last:
            self.at(now_s + seconds, partial(self._stage, move), cards)
            return
        taking.left[request] = left
        giving.stop(request, now_s + seconds)
        taking.run_at(request, now_s + seconds)
        self.node.manager.move(request, move.target)
        self.moved.append((tokens, seconds, move.stages))
        self.at(now_s + seconds, partial(self._over, move), cards)

    def copy(self, move: Move, tokens: int) -> tuple[float, int]:
        """(seconds, bytes) of the copy of what is not there of so many tokens."""
        units = (
            self.engine(card).allocator.units(move.request) for card in (move.source, move.target)
        )
        near, far = (Server(self._layout.dims, *as_table(each)) for each in units)
        found = transfer(self._link, self._model, tokens, near, far, skip=move.copied)
        return found.cost.total_ns / 1e9, found.pieces.bytes

    def _over(self, move: Move, at_s: float) -> None:
        for card in (move.source, move.target):
            self.engine(card).land(at_s)
        self._moves.remove(move)

    def report(self) -> dict[str, Any]:
        tokens, down_s, stages = np.array(self.moved, np.float64).reshape(-1, 3).T
        slower = [s for card in range(len(self.node.own)) for s in self.engine(card).slower]
        return {
            "moved": len(tokens),
            "aborted": self._aborted,
            "bytes": self._bytes,
            "downtime_s": summary(down_s),
            "tokens": summary(tokens),
            "stages": summary(stages),
            "steps_longer": summary(np.array(slower)),
        }
