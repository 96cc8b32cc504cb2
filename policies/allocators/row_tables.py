"""Block tables of requests: a row for each, in each group of layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.allocators.allocator import Allocator, Limits
from policies.allocators.beside_blocks import BesideBlocks
from policies.allocators.block_allocator import BlockOptions, SharingAllocator
from policies.allocators.block_tables import BlockTables
from policies.allocators.capabilities import CopiesKv, Migration
from policies.allocators.columns import sum_of
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.prefix_cache import BlockCache
from policies.allocators.sliding_windows import SlidingWindows, kept_of
from policies.requests.requests import IntArray

NO_BLOCKS: IntArray = np.zeros(0, np.int64)


class RowTables(SharingAllocator, CopiesKv):
    """`_row`, int64 (requests,): the row of the block tables that each has, or -1. `groups`: of
    layers, each of which has a block at each place but those that `_windows` says."""

    holds_states = True
    by_request = (*Allocator.by_request, "resident", "_row")

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: BlockOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self._windows = SlidingWindows(layout, requests, limits, self.block, options.window_rules)
        self.groups = len(kept_of(layout))
        self._tables = BlockTables(self.block, self._list.blocks, self.groups)
        self._beside = BesideBlocks(self._list, limits, self.block, self._tables.uses)
        saved = self._beside.state_groups if limits.saves_states else 0
        self._state_caches = [BlockCache(self._tables.uses) for _ in range(saved)]
        """As `_caches`, of the states at the ends of blocks."""
        self._caches = [BlockCache(self._tables.uses) for _ in range(self.groups)]
        self._row = np.full(requests, -1, np.int64)
        self._asked: tuple[IntArray | None, IntArray] = (None, NO_BLOCKS)
        """The requests that were asked for last, and their rows: a step asks several times."""
        self._copies: list[Migration] = []
        self._copied_tokens = 0
        self._none_found: IntArray = np.zeros((self.groups, 0), np.int64)

    @property
    def states(self) -> dict[int, IntArray]:
        """Blocks of residents that hold states, group by group."""
        return self._beside.states

    @property
    def drafter(self) -> dict[int, IntArray]:
        """Blocks of residents that hold a drafter's KV: int64 (groups, places)."""
        return self._beside.drafter

    def copies(self) -> list[Migration]:
        """See `CopiesKv.copies`."""
        made, self._copies = self._copies, []
        return made

    def units(self, request: int) -> Units:
        """Group by group, the blocks that it has."""
        self._require(request)
        row, gone_of = int(self._row[request]), self._windows.gone_of
        if self.groups == 1:
            return self._row_units(row, gone_of(request, 0))
        parts = [self._row_units(row, gone_of(request, g), g) for g in range(self.groups)]
        return Units(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def layer_units(self, request: int, group: int) -> Units:
        """See `Allocator.layer_units`; places that a window has given up name the null block."""
        if self._uniform:
            return self.units(request)
        return self._row_units(int(self._row[request]), 0, group)

    def first_kept(self, request: int, group: int = 0) -> int:
        self._require(request)
        return self._windows.gone_of(request, group) * self.block

    def extent_count(self, requests: IntArray) -> int:
        if self._uniform:
            return sum_of(self._tables.runs, self._row[requests])
        return super().extent_count(requests)

    def report(self) -> dict[str, Any]:
        """As `SharingAllocator.report`, and tokens copied within the memory; of a model with
        states, why no prefix is found where none is."""
        found = {"prefix_asked_tokens": 0.0, "prefix_hit_tokens": 0.0} | super().report()
        shares: dict[str, Any] = found | {"copied_tokens": float(self._copied_tokens)}
        if self._asked_tokens and self.limits.state_bytes and not self._state_caches:
            shares["prefixes"] = "not found: of layers with a state that of the last token is kept"
        return shares if self._asked_tokens or self._copied_tokens else {}

    @property
    def _uniform(self) -> bool:
        """Whether there is one group, which keeps everything."""
        return self.groups == 1 and not self._windows.near

    def _set_row(self, request: int, row: int) -> None:
        """A request has this row; -1: none."""
        self._row[request] = row
        self._asked = None, NO_BLOCKS

    def _rows(self, requests: IntArray) -> IntArray:
        """Rows of `requests`, in order."""
        if self._asked[0] is not requests:
            self._asked = requests, self._row[requests]
        return self._asked[1]

    def _row_units(self, row: int, skipped: int, group: int = 0) -> Units:
        tokens = int(self._tables.tokens[row])
        return self._units_of(self._tables.blocks(row, group)[skipped:], tokens, skipped)

    def _places(self, tokens: int) -> int:
        """Places in a group of a request that stores so many tokens."""
        return -(-tokens // self.block)

    def _extend(self, row: int, tokens: int) -> None:
        """So many tokens lie in a row; there is room."""
        wanted = -(-(tokens + self._room_behind(tokens)) // self.block)
        wanted -= int(self._tables.count[row])
        if wanted > 0:
            self._hand_out(row, wanted)
        self._tables.tokens[row] = tokens

    def _hand_out(self, row: int, places: int) -> None:
        """So many places more of a row get a block in each group that keeps them."""
        if not self._windows.near:
            self._tables.hand_out(row, self._list.pop(places * self.groups))
            return
        kept = self._windows.of(int(self._tables.owner[row]))
        if len(kept) == self.groups:
            self._tables.hand_out(row, self._list.pop(places * self.groups))
            return
        blocks = np.zeros((self.groups, places), np.int64)
        blocks[kept] = self._list.pop(places * len(kept)).reshape(len(kept), places)
        self._tables.uses[blocks[kept]] += 1
        self._tables.append(row, blocks.ravel())
