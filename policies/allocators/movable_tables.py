"""Block tables whose blocks come from elsewhere, go elsewhere, or change their places: the
capability `MovesBlocks` of allocators of blocks."""

from __future__ import annotations

import numpy as np

from policies.allocators.allocator import Demand, Limits
from policies.allocators.block_allocator import BlockOptions
from policies.allocators.capabilities import Migration, MovesBlocks
from policies.allocators.kv_layout import KvLayout
from policies.allocators.window_tables import WindowTables
from policies.requests.requests import IntArray


class MovableTables(WindowTables, MovesBlocks):
    """`_barred`, int64 (n,): blocks that are not handed out."""

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: BlockOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self._barred = np.zeros(0, np.int64)

    def drop_first(self, request: int, tokens: int) -> None:
        self._demands[request] = self._demands[request]._replace(
            prefix_id=-1, prefix_tokens=0, session=-1, parent=-1, above=()
        )
        row, many = int(self._row[request]), tokens // self.block
        if not many:
            return
        for group in range(self.groups):
            gone = self._windows.gone_of(request, group)
            dropped = self._tables.blocks(row, group)[gone:many].copy()
            self._free(dropped, int((self._others[dropped] > 0).sum()))
            self.reserved[request] -= len(dropped) * self.block
            self.reserved_total -= len(dropped) * self.block
            if group in self._windows.near:
                self._windows.gone[group, request] = max(gone - many, 0)
        self._tables.drop_first(row, many)
        self.stored[request] -= tokens

    def keep(self, request: int, demand: Demand, tokens: int) -> bool:
        places = self._places(tokens + self._room_behind(tokens))
        wanted = places * (self.groups - len(self._windows.near))
        wanted += self._beside.wanted(-1, tokens)
        if wanted + self._kept_free > self._list.free:
            return False
        self._admitted(request, demand, 0)
        self._set_row(request, self._tables.add(request))
        self._admit(request, 0, 0)
        self._windows.leave_all(request)
        self._beside.enter_drafter(request)
        return self.grow(request, tokens)

    def adopt(self, request: int, demand: Demand, blocks: IntArray, tokens: int) -> bool:
        if not self._uniform or blocks.max(initial=0) >= self._list.blocks:
            return False
        self._admitted(request, demand, 0)
        row = self._tables.add(request)
        self._set_row(request, row)
        self._admit(request, 0, 0)
        self._tables.uses[blocks] += 1
        self._hold(request, blocks[np.newaxis])
        self._tables.tokens[row] = self.stored[request] = tokens
        return True

    def forget(self) -> None:
        self._tables.uses += 1

    def free_blocks(self) -> IntArray:
        return np.flatnonzero(self._list.is_free(np.arange(self._list.blocks)))

    def bar(self, blocks: IntArray) -> int | None:
        before, behind = self._barred, np.setdiff1d(blocks, self._barred)
        free = self._list.is_free(behind)
        held, spare = behind[~free], np.setdiff1d(before, blocks)
        if len(held) > self._list.free + len(spare) - int(free.sum()):
            return None
        self._barred = blocks
        self._list.take(behind[free])
        self._list.push(spare)
        names, fresh = np.arange(self._list.blocks), self._list.pop(len(held))
        names[held] = fresh
        self._tables.uses[np.concatenate((held, fresh))] += 1
        self._others[fresh], self._others[held] = self._others[held], 0
        copied: dict[int, Migration] = {}
        for request in np.flatnonzero(self.resident).tolist() if len(held) else ():
            copied |= self._renamed(request, names)
        self._copies += copied.values()
        return sum(copy.tokens for copy in copied.values())

    def _renamed(self, request: int, names: IntArray) -> dict[int, Migration]:
        """The blocks of a request are others, int64 (blocks,) by those it has; by their first slots
        the copies that this takes. States and a drafter's KV count as the slots of their blocks."""
        copied: dict[int, Migration] = {}
        size = self.block
        for group in range(self.groups):
            gone, row = self._windows.gone_of(request, group), int(self._row[request])
            start, tokens, _ = self._row_units(row, gone, group)
            table = start // size
            for at in np.flatnonzero(names[table] != table).tolist():
                source, target = int(start[at]), int(names[table[at]]) * size
                copied[source] = Migration(request, source, target, int(tokens[at]), size)
            self._tables.replace(row, gone, names[table], group)
        for old, new in self._beside.renamed(request, names):
            copied[old * size] = Migration(request, old * size, new * size, size, size)
        return copied
