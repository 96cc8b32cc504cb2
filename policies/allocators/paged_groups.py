"""Paged allocation of a model with sliding windows: a block table for each group of layers, all
over one pool of blocks (`policies.allocators.kv_groups`; vLLM v1's hybrid KV cache manager).

As in vLLM's `allocate_slots`, a request first gives up the blocks of its windowed groups that lie
before the window of the next token, last ones first and group by group; their places in the table
hold the null block from then on. Then each group in turn gets blocks for the new tokens, those of a
whole prompt chunk too. Admission by input counts of a windowed group no more blocks than it can
hold at a time, ceil((W - 1 + tokens of a step) / block) + 1 (`SlidingWindowSpec`).

Not modelled, and so off: prefix caching, what a preempted request could find again, swapping, and
several samples in one request. vLLM frees the old blocks of a request that then gets no new ones;
here it keeps them until it is preempted or grows. Under v0, which had no groups, the same
(assumed).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from policies.allocators.allocator import Allocator, Demand, Limits
from policies.allocators.capabilities import OnDemand
from policies.allocators.free_list import FREE_LISTS
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.paged import PagedOptions
from policies.requests.requests import IntArray


class PagedGroupsAllocator(Allocator, OnDemand):
    """`_tables[request]`: the block of each group and place, int64 (groups, places); `_count` and
    `_gone`: places in use, and those of them that windowed groups have given up."""

    Options = PagedOptions
    options: PagedOptions

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: PagedOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        assert layout.groups is not None
        self.block = options.block
        self._window = layout.groups.window
        self._near = [kept is not None for kept in layout.groups.kept]
        self._list = FREE_LISTS[options.free_list](layout.slots // self.block)
        self._spared = int(options.watermark * self._list.blocks)
        if options.null_block:
            self._list.take(np.zeros(1, np.int64))
        self._usable = self._list.free
        self._tables: dict[int, IntArray] = {}
        self._count = np.zeros(requests, np.int64)
        self._gone = np.zeros(requests, np.int64)

    @property
    def free_slots(self) -> int:
        return self._list.free * self.block

    @property
    def largest_hole(self) -> int:
        return max(self._list.free - self._kept_free, 0) * self.block

    @property
    def reach(self) -> int:
        return (self._usable - self._spared * self.options.idle_watermark) * self.block

    @property
    def fragmentation(self) -> float:
        return 0.0

    def needs(
        self, prompt: IntArray, output: IntArray, samples: IntArray | Literal[1] = 1
    ) -> IntArray:
        needed: IntArray = self._most(prompt + output - 1) * self.block
        return needed

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        return int(self._most(tokens)) + self._kept_free <= self._list.free

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        wanted = len(self._near) * -(-tokens // self.block)
        if wanted + self._kept_free > self._list.free:
            return False
        self._admit(request, 0, 0)
        self._count[request] = self._gone[request] = 0
        self._tables[request] = np.zeros((len(self._near), 8), np.int64)
        return self.grow(request, tokens)

    def grow(self, request: int, tokens: int) -> bool:
        self._require(request)
        stored, had = int(self.stored[request]), int(self._count[request])
        gone = max(int(self._left(stored)), int(self._gone[request]))
        count = -(-(stored + tokens) // self.block)
        freed = (gone - int(self._gone[request])) * sum(self._near)
        wanted = (count - had) * len(self._near)
        if wanted > self._list.free + freed:
            return False
        table = self._table(request, count)
        if freed:
            for row in table[self._near]:
                self._push(row[self._gone[request] : gone])
            table[self._near, :gone] = 0
        if wanted:
            table[:, had:count] = self._list.pop(wanted).reshape(len(self._near), -1)
        self._count[request], self._gone[request] = count, gone
        self.stored[request] += tokens
        self.reserved[request] += (wanted - freed) * self.block
        self.reserved_total += (wanted - freed) * self.block
        return True

    def release(self, request: int) -> int:
        self._require(request)
        for held in self._held(request):
            self._push(held)
        del self._tables[request]
        return self._dismiss(request)

    def headroom(self, requests: IntArray, limit: int) -> int:
        free, stored, gone = self._list.free, self.stored[requests], self._gone[requests]
        for done in range(limit):
            wanted = len(self._near) * (stored % self.block == 0)
            left = np.maximum(self._left(stored), gone)
            change = sum(self._near) * (left - gone) - wanted
            if free + np.cumsum(change).min(initial=0) < 0:
                return done
            free, stored, gone = free + int(change.sum()), stored + 1, left
        return limit

    def advance(self, requests: IntArray, rounds: int) -> None:
        for _ in range(rounds):
            stored = self.stored[requests]
            moving = (stored % self.block == 0) | (self._left(stored) > self._gone[requests])
            for request in requests[moving].tolist():
                self.grow(request, 1)
            self.stored[requests[~moving]] += 1

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        back = self.stored[requests] - np.arange(rounds - 1, -1, -1)[:, None]
        held = len(self._near) * -(-back // self.block) - sum(self._near) * self._left(back - 1)
        total: IntArray = held.sum(axis=1)
        return self.block * (total[-1:] - total)

    def units(self, request: int) -> Units:
        self._require(request)
        parts = []
        for near, held in zip(self._near, self._held(request), strict=True):
            first = int(self._gone[request]) if near else 0
            parts.append(self._units(request, held, first))
        return Units(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def layer_units(self, request: int, group: int) -> Units:
        return self._units(request, self._tables[request][group, : self._count[request]], 0)

    @property
    def _kept_free(self) -> int:
        """Blocks that admission leaves free now."""
        return self._spared if self.reserved_total or self.options.idle_watermark else 0

    def _left(self, stored: Any) -> Any:
        """Places before the window of the token after `stored` ones: an int, or int64 (n,)."""
        return np.maximum(stored - self._window + 1, 0) // self.block

    def _most(self, tokens: Any) -> Any:
        """Blocks that a request of so many tokens holds at a time, at most."""
        places = -(-tokens // self.block)
        cap = -(-(self._window - 1 + self.limits.step) // self.block) + 1
        near = sum(self._near)
        return (len(self._near) - near) * places + near * np.minimum(places, cap)

    def _table(self, request: int, places: int) -> IntArray:
        """The table, wide enough for so many places."""
        table = self._tables[request]
        if places > table.shape[1]:
            more = max(places, 2 * table.shape[1]) - table.shape[1]
            table = self._tables[request] = np.pad(table, ((0, 0), (0, more)))
        return table

    def _held(self, request: int) -> list[IntArray]:
        """Blocks of each group, in token order."""
        count, gone = int(self._count[request]), int(self._gone[request])
        rows = zip(self._near, self._tables[request], strict=True)
        return [row[gone * near : count] for near, row in rows]

    def _units(self, request: int, blocks: IntArray, first: int) -> Units:
        """Units of blocks that hold the places from `first` on."""
        before = np.arange(first, first + len(blocks)) * self.block
        tokens = np.clip(self.stored[request] - before, 0, self.block)
        return Units(blocks * self.block, tokens, np.full(len(blocks), self.block, np.int64))

    def _push(self, blocks: IntArray) -> None:
        """Free blocks, last first; none can be found again."""
        self._list.push(blocks[::-1], len(blocks))
