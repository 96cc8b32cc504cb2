"""Paged allocation: blocks of a few tokens from a free list (Kwon et al. 2023, vLLM)."""

from __future__ import annotations

from typing import Annotated, Literal

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

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        if -(-tokens // self.block) > self._list.free:
            return False
        if not self._rows:
            self._more_rows()
        self._row[request] = self._rows.pop()
        self._count[request] = self._runs[request] = 0
        self._admit(request, 0, 0)
        return self.grow(request, tokens)

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
        self._list.push(held[::-1])  # tail first, as vLLM frees
        self._rows.append(row)
        self._row[request] = -1
        self._count[request] = self._runs[request] = 0
        return self._dismiss(request)

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
