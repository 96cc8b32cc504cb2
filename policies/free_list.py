"""Free lists of blocks: the order in which freed blocks are handed out again."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from policies.requests import IntArray


class FreeList(ABC):
    """Blocks 0 to n - 1, all free at first and handed out in ascending order."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.free = blocks

    @abstractmethod
    def pop(self, count: int) -> IntArray:
        """Take the next `count` blocks (needs count <= free), in the order of handing out."""

    @abstractmethod
    def push(self, blocks: IntArray) -> None:
        """Free `blocks`, in this order."""


class Queue(FreeList):
    """First freed, first reused: vLLM v1's FreeKVCacheBlockQueue without prefix caching."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self._ring = np.arange(max(blocks, 1), dtype=np.int64)
        self._head = 0

    def pop(self, count: int) -> IntArray:
        places = (self._head + np.arange(count)) % len(self._ring)
        self._head = (self._head + count) % len(self._ring)
        self.free -= count
        taken: IntArray = self._ring[places]
        return taken

    def push(self, blocks: IntArray) -> None:
        tail = self._head + self.free
        self._ring[(tail + np.arange(len(blocks))) % len(self._ring)] = blocks
        self.free += len(blocks)


class Stack(FreeList):
    """Last freed, first reused (vLLM v0's list of free blocks)."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self._stack = np.arange(blocks, dtype=np.int64)[::-1].copy()

    def pop(self, count: int) -> IntArray:
        self.free -= count
        return self._stack[self.free : self.free + count][::-1].copy()

    def push(self, blocks: IntArray) -> None:
        self._stack[self.free : self.free + len(blocks)] = blocks
        self.free += len(blocks)


class Sorted(FreeList):
    """Lowest address first."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self._is_free = np.ones(blocks, np.bool_)

    def pop(self, count: int) -> IntArray:
        taken = np.flatnonzero(self._is_free)[:count]
        self._is_free[taken] = False
        self.free -= count
        return taken

    def push(self, blocks: IntArray) -> None:
        self._is_free[blocks] = True
        self.free += len(blocks)


FREE_LISTS: dict[str, type[FreeList]] = {"fifo": Queue, "lifo": Stack, "sorted": Sorted}
