"""Paged allocation: blocks of a few tokens from a free list (Kwon et al. 2023, vLLM).

A preempted request finds its own full blocks again as long as nobody has taken them from the free
list: vLLM v1 caches prefixes by default, and a freed block keeps its content until it is reused.
Only the blocks of the request's last residence count, and only an unbroken prefix of them; what
requests share is not modelled.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from policies.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.free_list import FREE_LISTS
from policies.kv_layout import KvLayout, Units
from policies.requests import IntArray


class PagedOptions(PolicyOptions):
    """Options of `paged`."""

    name: Literal["paged"] = "paged"
    block: Annotated[int, Field(ge=1, le=1024)] = 16
    """Tokens in a block (vLLM's default)."""
    free_list: Literal["fifo", "lifo", "sorted"] = "fifo"
    """Order of reuse; vLLM v1 has a queue, v0 a stack."""
    cached_recompute: bool = True
    """A preempted request keeps what is still in its freed blocks (vLLM v1: enable_prefix_caching
    is on by default). False: all is computed again."""


class _Left(NamedTuple):
    """The full blocks that a released request left, in token order, and how often each had been
    handed out."""

    blocks: IntArray
    uses: IntArray


class PagedAllocator(Allocator):
    """Block tables: row `_row[request]` of `_table` holds the request's blocks in token order."""

    Options = PagedOptions
    options: PagedOptions

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: PagedOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self.block = options.block
        self._list = FREE_LISTS[options.free_list](layout.slots // self.block)
        self._uses = np.zeros(self._list.blocks, np.int64)
        self._left: dict[int, _Left] = {}
        self._count = np.zeros(requests, np.int64)
        self._runs = np.zeros(requests, np.int64)
        self._row = np.full(requests, -1, np.int64)
        self._rows: list[int] = []
        self._table = np.zeros((0, 8), np.int64)

    @property
    def free_slots(self) -> int:
        return self._list.free * self.block

    @property
    def largest_hole(self) -> int:
        return self.free_slots

    @property
    def reach(self) -> int:
        return self._list.blocks * self.block

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        blocks: IntArray = -(-(prompt + output - 1) // self.block)
        return blocks * self.block

    def cached(self, request: int, limit: int) -> int:
        left = self._left.get(request)
        if left is None:
            return 0
        kept = self._uses[left.blocks] == left.uses
        whole = len(kept) if kept.all() else int(kept.argmin())
        return min(whole, limit // self.block) * self.block

    @property
    def loses_ends_first(self) -> bool:
        return self.options.free_list == "fifo"  # freed tail first, together, handed out in order

    def fits(self, tokens: int) -> bool:
        return -(-tokens // self.block) <= self._list.free

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        if -(-tokens // self.block) > self._list.free:  # blocks found again are free ones, too
            return False
        if not self._rows:
            self._more_rows()
        self._row[request] = self._rows.pop()
        self._count[request] = self._runs[request] = 0
        found = self.cached(request, tokens - 1)
        self._admit(request, 0, 0)
        if found:
            self._take_back(request, self._left[request].blocks[: found // self.block])
        self._left.pop(request, None)
        return self.grow(request, tokens - found)

    def grow(self, request: int, tokens: int) -> bool:
        self._require(request)
        stored = int(self.stored[request]) + tokens
        short = stored - int(self.reserved[request])
        if short > 0:
            wanted = -(-short // self.block)
            if wanted > self._list.free:
                return False
            columns = np.arange(wanted) + self._count[request]
            breaks = self._append(np.full(wanted, self._row[request]), columns)
            self._count[request] += wanted
            self._runs[request] += int(breaks.sum())
            self.reserved[request] += wanted * self.block
        self.stored[request] = stored
        return True

    def release(self, request: int) -> int:
        self._require(request)
        row = int(self._row[request])
        held = self._table[row, : self._count[request]]
        if self.options.cached_recompute:
            full = held[: self.stored[request] // self.block].copy()
            self._left[request] = _Left(full, self._uses[full])
        self._list.push(held[::-1])  # tail first, as vLLM frees
        self._rows.append(row)
        self._row[request] = -1
        self._count[request] = self._runs[request] = 0
        return self._dismiss(request)

    def finished(self, request: int, prompt: int, output: int) -> None:
        self._left.pop(request, None)

    def headroom(self, requests: IntArray, limit: int) -> int:
        room = self.reserved[requests] - self.stored[requests]
        if int(room.min(initial=limit)) >= limit:
            return limit
        low, high = 0, limit
        while low < high:  # the blocks wanted grow with the rounds: bisect
            middle = (low + high + 1) // 2
            if int(np.maximum(-((room - middle) // self.block), 0).sum()) <= self._list.free:
                low = middle
            else:
                high = middle - 1
        return low

    def advance(self, requests: IntArray, rounds: int) -> None:
        room = self.reserved[requests] - self.stored[requests]
        wanted = np.maximum(-((room - rounds) // self.block), 0)
        total = int(wanted.sum())
        if total:
            index = np.repeat(np.arange(len(requests)), wanted)
            nth = np.arange(total) - np.repeat(np.cumsum(wanted) - wanted, wanted)
            # in the round when a request's room ends it takes a block, earlier requests first
            order = np.argsort(room[index] + nth * self.block, kind="stable")
            index = index[order]
            owners = requests[index]
            breaks = self._append(self._row[owners], self._count[owners] + nth[order])
            self._count[requests] += wanted
            self._runs[requests] += np.bincount(index[breaks], minlength=len(requests))
            self.reserved[requests] += wanted * self.block
        self.stored[requests] += rounds

    def units(self, request: int) -> Units:
        self._require(request)
        start = self._table[self._row[request], : self._count[request]] * self.block
        size = np.full(len(start), self.block, np.int64)
        first = np.arange(len(start)) * self.block
        return Units(start, np.clip(self.stored[request] - first, 0, self.block), size)

    def extent_count(self, requests: IntArray) -> int:
        return int(self._runs[requests].sum())

    def _append(self, rows: IntArray, columns: IntArray) -> NDArray[np.bool_]:
        """Hand the next free blocks, in this order, to these places of the table.

        Returns which of them do not follow physically on the block before.
        """
        blocks = self._list.pop(len(rows))
        self._uses[blocks] += 1
        return self._enter(rows, columns, blocks)

    def _take_back(self, request: int, blocks: IntArray) -> None:
        """Take these free blocks, the request's own, to be its first ones again."""
        self._list.take(blocks)
        rows = np.full(len(blocks), self._row[request])
        breaks = self._enter(rows, np.arange(len(blocks)), blocks)
        self._count[request] = len(blocks)
        self._runs[request] = int(breaks.sum())
        self.reserved[request] = self.stored[request] = len(blocks) * self.block

    def _enter(self, rows: IntArray, columns: IntArray, blocks: IntArray) -> NDArray[np.bool_]:
        """Put blocks into the table; which of them do not follow physically on the block before."""
        widest = int(columns.max())
        if widest >= self._table.shape[1]:
            more = np.zeros((len(self._table), max(widest + 1, self._table.shape[1])), np.int64)
            self._table = np.hstack((self._table, more))
        self._table[rows, columns] = blocks
        self.reserved_total += len(rows) * self.block
        before = self._table[rows, np.maximum(columns - 1, 0)]
        breaks: NDArray[np.bool_] = (columns == 0) | (before + 1 != blocks)
        return breaks

    def _more_rows(self) -> None:
        old = len(self._table)
        more = max(old, 8)
        self._table = np.vstack((self._table, np.zeros((more, self._table.shape[1]), np.int64)))
        self._rows.extend(range(old + more - 1, old - 1, -1))
