"""Free pages of SGLang's allocator, and behind them those of its tree (`radix.py`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policies.allocators.free_lists.free_list import FreeList
from policies.allocators.radix_tree import RadixTree
from policies.requests.requests import IntArray


class RadixPages(FreeList):
    """A free list, and behind it the pages of the tree that no request holds: `free` counts both.
    A page that is free is in one of them."""

    def __init__(self, pages: FreeList, tree: RadixTree) -> None:
        super().__init__(pages.blocks)
        self._pages, self._tree = pages, tree
        self._held = np.zeros(pages.blocks, np.bool_)
        self._group: list[IntArray] | None = None
        self._promised = 0

    def promise(self, pages: int) -> None:
        """So many pages are spoken for, though not chosen yet; below 0: they are chosen now."""
        self.free -= pages
        self._promised += pages

    def ample(self, pages: int, requests: int) -> bool:
        """Whether so many pages that decode steps of so many requests take are the same together
        and step by step."""
        return self._pages.same_in_steps(pages + requests)

    def prepare(self, pages: int, at_hand: int = 0) -> None:
        """A step is about to take up to so many pages. `at_hand`: for how many none is sorted."""
        while self._pages.free < min(pages, self.free + self._promised):
            evicted = self._tree.evict()
            self._pages.push(evicted, len(evicted))
        self._pages.prepare(at_hand or pages)

    def prepare_prefills(self, tokens: int, requests: int) -> None:
        """Prefills of so many tokens together are about to take pages."""
        if (page := self._tree.page) == 1:
            self.prepare(tokens)
        else:
            self.prepare(-(-tokens // page) + requests, tokens // page + requests + 1)

    def pop(self, count: int) -> IntArray:
        self.prepare(count)
        pages = self._pages.pop(count)
        self.take(pages)
        return pages

    def push(self, blocks: IntArray, unhashed: int = 0) -> None:
        """Free these pages, whose content nothing can find."""
        if self._group is None:
            self._pages.push(blocks, len(blocks))
        else:
            self._group.append(blocks)
        self.leave(blocks)

    def group(self, begins: bool) -> None:
        """What is pushed from here on, up to the call with False, is pushed at once."""
        group, self._group = self._group, [] if begins else None
        if group:
            pages = np.concatenate(group)
            self._pages.push(pages, len(pages))

    def leave(self, blocks: IntArray) -> int:
        """These pages of the tree are held no more; how many."""
        self._held[blocks] = False
        self.free += len(blocks)
        return len(blocks)

    def take(self, blocks: IntArray) -> None:
        self._held[blocks] = True
        self.free -= len(blocks)

    def is_free(self, blocks: IntArray) -> NDArray[np.bool_]:
        return ~self._held[blocks]
