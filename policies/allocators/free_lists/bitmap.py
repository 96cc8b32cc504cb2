"""Free blocks by their addresses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.jit import kernel
from policies.allocators.free_lists.free_list import FreeList
from policies.requests.requests import IntArray


class Bitmap(FreeList):
    """Which blocks are free. `_in_row` counts the free blocks of each row of `_is_free`."""

    WIDTH = 256

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        rows = -(-blocks // self.WIDTH)
        self._is_free = np.zeros((rows, self.WIDTH), np.bool_)
        self._is_free.reshape(-1)[:blocks] = True
        self._in_row = self._is_free.sum(axis=1)

    def push(self, blocks: IntArray, unhashed: int = 0) -> None:
        _mark(self._is_free, self._in_row, blocks, True)
        self.free += len(blocks)

    def take(self, blocks: IntArray) -> None:
        _mark(self._is_free, self._in_row, blocks, False)
        self.free -= len(blocks)

    def is_free(self, blocks: IntArray) -> NDArray[np.bool_]:
        return self._is_free.reshape(-1)[blocks]


@kernel
def _mark(is_free: NDArray[np.bool_], in_row: IntArray, blocks: IntArray, free: bool) -> None:
    """These blocks are free from now on, or are not. Modifies both arrays."""
    for block in blocks:
        row = block // is_free.shape[1]
        is_free[row, block % is_free.shape[1]] = free
        in_row[row] += 1 if free else -1
