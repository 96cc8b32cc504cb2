"""What each resident of an allocator of blocks holds: its row of the tables, and how blocks come
into it (vLLM v1: `KVCacheCoordinator`)."""

from __future__ import annotations

import numpy as np

from policies.allocators.allocator import Demand
from policies.allocators.block_holder import BlockHolder
from policies.allocators.kv_layout import Units
from policies.allocators.prefix_index import NO_BLOCKS
from policies.requests.requests import IntArray


class Holdings:
    """Of an allocator of blocks."""

    def __init__(self, blocks: BlockHolder) -> None:
        self._of = blocks
        self.behind = blocks.limits.lookahead.drafter
        """Tokens behind those stored that have slots too."""
        self._rows_asked: tuple[IntArray | None, IntArray] = (None, NO_BLOCKS)
        """The requests that were asked for last, and their rows: a step asks several times."""

    def places(self, tokens: int) -> int:
        """Places in a group of a request that stores so many tokens."""
        return -(-tokens // self._of.block)

    def room_behind(self, stored: int) -> int:
        """Tokens that have slots behind so many stored ones."""
        if not self.behind:
            return 0
        return max(min(self.behind, self._of.limits.max_model_len - stored), 0)

    def rows(self, requests: IntArray) -> IntArray:
        """Rows of `requests`, in order."""
        if self._rows_asked[0] is not requests:
            self._rows_asked = requests, self._of.row[requests]
        return self._rows_asked[1]

    def keeping(self, request: int) -> int:
        """Groups that keep something of a request."""
        if not self._of.windows.near:
            return self._of.groups
        return sum(manager.keeps(request) for manager in self._of.managers)

    def enter(self, request: int, demand: Demand, hits: int) -> None:
        """A request is resident, with an empty row; it found so many blocks."""
        of = self._of
        of.caching.enter(request, demand, hits)
        of.demands[request] = demand
        self._set_row(request, of.tables.add(request))
        of.resident[request] = True
        of.reserved[request] = of.stored[request] = 0
        for manager in of.managers:
            manager.enter(request, hits * of.block)
        if of.windows.near:
            of.windows.last[request] = 0

    def leave(self, request: int) -> None:
        """Its row is another's from now on."""
        self._of.tables.remove(int(self._of.row[request]))
        self._set_row(request, -1)

    def extend(self, request: int, row: int, places: int) -> None:
        """So many places more of a row get a block in each group that keeps them."""
        of = self._of
        if self.keeping(request) == of.groups:
            of.tables.append(row, self.taken(row, [*range(of.groups)], places))
            return
        kept = [group for group, each in enumerate(of.managers) if each.keeps(request)]
        blocks = np.zeros((of.groups, places), np.int64)
        blocks[kept] = self.taken(row, kept, places).reshape(len(kept), places)
        of.tables.append(row, blocks.ravel())

    def taken(self, row: int, groups: list[int], places: int) -> IntArray:
        """So many blocks more of a row in each of these groups, one group after another."""
        pool = self._of.pool
        if not pool.order.looks_behind:
            return pool.take(places * len(groups))
        asks = np.repeat(np.arange(len(groups)), places)
        return pool.take_behind(asks, self._of.tables.last(row)[groups])

    def has_room(self, places: list[int], hits: IntArray, own: int) -> bool:
        """Whether a request can be admitted that needs so many places in each group and `own`
        blocks of a drafter's, and finds these, int64 (groups, blocks); free ones are used up, too.
        """
        of, count = self._of, hits.shape[1]
        wanted = of.state_blocks.fixed + own + of.kept_free
        for most in places:
            wanted += max(most - count, 0)
        free = of.pool.free
        return wanted <= free and wanted + of.caching.free_among(hits) <= free

    def units(self, request: int, skipped: int, group: int) -> Units:
        """Units of a request's blocks in a group, from place `skipped` on."""
        of, size = self._of, self._of.block
        row = int(of.row[request])
        blocks = of.tables.blocks(row, group)[skipped:]
        before = np.arange(skipped, skipped + len(blocks)) * size
        held = np.minimum(np.maximum(of.tables.tokens[row] - before, 0), size)  # clip is slower
        return Units(blocks * size, held, np.full(len(blocks), size, np.int64))

    def _set_row(self, request: int, row: int) -> None:
        self._of.row[request] = row
        self._rows_asked = None, NO_BLOCKS
