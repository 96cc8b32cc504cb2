"""Paged allocation of a model with sliding windows: a block table for each group of layers, all
over one pool of blocks (`policies.allocators.kv_groups`; vLLM v1's hybrid KV cache manager).

As in vLLM's `allocate_slots`, a request first gives up the blocks of its windowed groups that lie
before the window of the next token, last ones first and group by group, even where it then gets no
block; their places in the table hold the null block from then on. Then each group in turn gets
blocks for the new tokens, those of a whole prompt chunk too. Versions differ (`window_rules`):

| rule | 0.11 | 0.19 | 0.23 | 0.33 |
|---|---|---|---|---|
| blocks of a windowed group at admission | - | whole input | capped | capped |
| blocks that it frees go, under `fifo` | behind | behind | to the front | behind |
| the window moves on when tokens are | scheduled | scheduled | scheduled | processed |

The cap is what a group can hold at a time, ceil((W - 1 + tokens of a step) / block) + 1
(`SlidingWindowSpec.max_admission_blocks_per_request`); under asynchronous scheduling 0.33 counts
the tokens of two steps. 0.11 admits by chunk. 0.33 has `split`, where all go to the front.
Compared with the real scheduler: tests/reference/vllm_window_schedules.json.gz.

Not modelled, and so off: prefix caching, what a preempted request could find again, swapping, and
several samples in one request. Under v0, which had no groups, the same (assumed).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from policies.allocators.allocator import Demand, Limits
from policies.allocators.free_list import FreeList, SplitQueue
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.paged import BlockAllocator, PagedOptions
from policies.requests.requests import IntArray


class PagedGroupsAllocator(BlockAllocator):
    """`_tables[request]`: the block of each group and place, int64 (groups, places); `_count` and
    `_gone`: places in use, and those of them that windowed groups have given up."""

    Options = PagedOptions
    options: PagedOptions

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: PagedOptions
    ) -> None:
        self._nears_first = options.window_rules == "0.23" and options.free_list == "fifo"
        super().__init__(layout, requests, limits, options)
        assert layout.groups is not None
        self._window = layout.groups.window
        self._near = [kept is not None for kept in layout.groups.kept]
        self._tables: dict[int, IntArray] = {}
        self._count = np.zeros(requests, np.int64)
        self._gone = np.zeros(requests, np.int64)
        self._ahead = limits.ahead * (options.window_rules == "0.33")
        self._last = np.zeros(requests, np.int64)

    @property
    def unshared(self) -> str:
        caches = self.options.prefix_caching
        return "prefix caching is not modelled with sliding windows" if caches else ""

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
        self._count[request] = self._gone[request] = self._last[request] = 0
        self._tables[request] = np.zeros((len(self._near), 8), np.int64)
        return self.grow(request, tokens)

    def grow(self, request: int, tokens: int) -> bool:
        """See `Allocator.grow`. Without room the windows have given up their old blocks even so."""
        self._require(request)
        count = -(-(int(self.stored[request]) + tokens) // self.block)
        self._give_up(request)
        wanted = (count - int(self._count[request])) * len(self._near)
        if wanted > self._list.free:
            return False
        if wanted:
            table = self._table(request, count)
            new = self._list.pop(wanted).reshape(len(self._near), -1)
            table[:, self._count[request] : count] = new
            self._count[request] = count
            self._reserve_blocks(request, wanted)
        self.stored[request] += tokens
        self._last[request] = tokens
        return True

    def release(self, request: int) -> int:
        self._require(request)
        for near, held in zip(self._near, self._held(request), strict=True):
            self._push(held, near)
        del self._tables[request]
        return self._dismiss(request)

    def headroom(self, requests: IntArray, limit: int) -> int:
        free, stored, gone = self._list.free, self.stored[requests], self._gone[requests]
        last: Any = self._last[requests]
        for done in range(limit):
            wanted = len(self._near) * (stored % self.block == 0)
            left = np.maximum(self._left(stored, last), gone)
            change = sum(self._near) * (left - gone) - wanted
            if free + np.cumsum(change).min(initial=0) < 0:
                return done
            free, stored, gone, last = free + int(change.sum()), stored + 1, left, 1
        return limit

    def advance(self, requests: IntArray, rounds: int) -> None:
        for _ in range(rounds):
            stored = self.stored[requests]
            left = self._left(stored, self._last[requests])
            moving = (stored % self.block == 0) | (left > self._gone[requests])
            for request in requests[moving].tolist():
                self.grow(request, 1)
            self.stored[requests[~moving]] += 1
            self._last[requests] = 1

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        back = self.stored[requests] - np.arange(rounds - 1, -1, -1)[:, None]
        held = len(self._near) * -(-back // self.block) - sum(self._near) * self._left(back - 1, 1)
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

    def _left(self, stored: Any, last: Any) -> Any:
        """Places before the window of the token after `stored` ones, of which the step before
        stored the `last` ones: an int, or int64 (n,)."""
        return np.maximum(stored - self._ahead * last - self._window + 1, 0) // self.block

    def _most(self, tokens: Any) -> Any:
        """Blocks that a request of so many tokens holds at a time, at most; as admission counts
        them."""
        places, near = -(-tokens // self.block), sum(self._near)
        if self.options.window_rules == "0.19":
            return len(self._near) * places
        under_way = (1 + self._ahead) * self.limits.step
        cap = -(-(self._window - 1 + under_way) // self.block) + 1
        return (len(self._near) - near) * places + near * np.minimum(places, cap)

    def _give_up(self, request: int) -> None:
        """Free the blocks of windowed groups that lie before the window of the next token."""
        before = int(self._gone[request])
        gone = int(self._left(int(self.stored[request]), int(self._last[request])))
        if gone <= before:
            return
        for row in self._tables[request][self._near]:
            self._push(row[before:gone], True)
        self._tables[request][self._near, :gone] = 0
        self._gone[request] = gone
        self._reserve_blocks(request, (before - gone) * sum(self._near))

    def _reserve_blocks(self, request: int, blocks: int) -> None:
        self.reserved[request] += blocks * self.block
        self.reserved_total += blocks * self.block

    def _free_list(self) -> FreeList:
        if self._nears_first:
            return SplitQueue(self.layout.slots // self.block)
        return super()._free_list()

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
        return self._units_of(blocks, int(self.stored[request]), first)

    def _push(self, blocks: IntArray, near: bool) -> None:
        """Free blocks of a group, last first; none can be found again."""
        first = near or not self._nears_first
        self._list.push(blocks[::-1], len(blocks) * first)
