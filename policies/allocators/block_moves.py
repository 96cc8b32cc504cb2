"""Blocks that come from elsewhere, go elsewhere, or change their places: the capability
`MovesBlocks` of allocators of blocks."""

from __future__ import annotations

import numpy as np

from policies.allocators.allocator import Demand
from policies.allocators.block_holder import BlockHolder
from policies.allocators.capabilities import Migration, MovesBlocks
from policies.allocators.state_blocks import renamed
from policies.requests.requests import IntArray


class BlockMoves(MovesBlocks):
    """Of an allocator of blocks."""

    def __init__(self, allocator: BlockHolder) -> None:
        self._of, self.block = allocator, allocator.block
        self._windows = [each for each in allocator.managers if each.window]

    def drop_first(self, request: int, tokens: int) -> None:
        of = self._of
        of.demands[request] = of.demands[request]._replace(
            prefix_id=-1, prefix_tokens=0, session=-1, parent=-1, above=()
        )
        row, many = int(of.row[request]), tokens // self.block
        if not many:
            return
        for group, manager in enumerate(of.managers):
            dropped = of.tables.blocks(row, group)[manager.gone(request) : many].copy()
            of.pool.give(dropped, int((of.pool.users[dropped] > 1).sum()))
            of.reserved[request] -= len(dropped) * self.block
        for window in self._windows:
            window.given_up[request] = max(window.gone(request) - many, 0)
        of.tables.drop_first(row, many)
        of.stored[request] -= tokens

    def keep(self, request: int, demand: Demand, tokens: int) -> bool:
        of = self._of
        end = tokens + of.holdings.room_behind(tokens)
        wanted = of.holdings.places(end) * (of.groups - len(self._windows))
        wanted += of.drafter_blocks.lacking(-1, end)
        if wanted + of.kept_free > of.pool.free:
            return False
        of.holdings.enter(request, demand, 0)
        for window in self._windows:
            window.leave(request)
        of.drafter_blocks.enter(request)
        return of.grow(request, tokens)

    def give_back(self, request: int) -> int:
        return int(self._of.caching.release_known(request, 0))

    def adopt(self, request: int, demand: Demand, blocks: IntArray, tokens: int) -> bool:
        of = self._of
        beside = of.limits.state_bytes or of.drafter_blocks.groups
        if beside or not of.uniform or blocks.max(initial=0) >= of.pool.order.blocks:
            return False
        of.holdings.enter(request, demand, 0)
        of.pool.written[blocks] += 1
        of.caching.hold(request, blocks[np.newaxis])
        of.tables.tokens[of.row[request]] = of.stored[request] = tokens
        return True

    def free_blocks(self) -> IntArray:
        pool = self._of.pool
        return np.flatnonzero(pool.is_free(np.arange(pool.order.blocks)))

    def bar(self, blocks: IntArray) -> int | None:
        of = self._of
        if (names := of.pool.bar(blocks)) is None:
            return None
        copied: dict[int, Migration] = {}
        if (names != np.arange(len(names))).any():
            for request in np.flatnonzero(of.resident).tolist():
                copied |= self._renamed(request, names)
        of.copying.made += copied.values()
        return sum(copy.tokens for copy in copied.values())

    def _renamed(self, request: int, names: IntArray) -> dict[int, Migration]:
        """The blocks of a request are others, int64 (blocks,) by those it has; by their first slots
        the copies that this takes. States and a drafter's KV count as the slots of their blocks."""
        copied: dict[int, Migration] = {}
        of, size, row = self._of, self.block, int(self._of.row[request])
        for group, manager in enumerate(of.managers):
            gone = manager.gone(request)
            start, tokens, _ = of.holdings.units(request, gone, group)
            table = start // size
            for at in np.flatnonzero(names[table] != table).tolist():
                source, target = int(start[at]), int(names[table[at]]) * size
                copied[source] = Migration(request, source, target, int(tokens[at]), size)
            of.tables.replace(row, gone, names[table], group)
        for held in (of.state_blocks.held, of.drafter_blocks.held):
            for old, new in renamed(held, request, names):
                copied[old * size] = Migration(request, old * size, new * size, size, size)
        return copied
