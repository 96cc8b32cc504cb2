"""Blocks that lie together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.jit import kernel
from policies.allocators.free_lists.bitmap import Bitmap
from policies.requests.requests import IntArray


class Runs(Bitmap):
    """From the shortest run of free blocks that is long enough, else from the longest ones: blocks
    that lie together are preferred to those freed first (proposed in vLLM PR 55841)."""

    together = True

    def pop(self, count: int) -> IntArray:
        taken: IntArray = _pop_runs(self._is_free, self._in_row, self.blocks, count)
        self.free -= count
        return taken

    def pop_apart(self, count: int) -> IntArray:
        return np.concatenate([np.zeros(0, np.int64), *(self.pop(1) for _ in range(count))])


@kernel
def _pop_runs(is_free: NDArray[np.bool_], in_row: IntArray, blocks: int, count: int) -> IntArray:
    """`count` blocks from the shortest run that has them, else from the longest runs in turn, the
    lowest of equals. Modifies both arrays."""
    width = is_free.shape[1]
    taken = np.empty(count, np.int64)
    popped = 0
    while popped < count:
        wanted, best, first = count - popped, 0, -1
        start = block = 0
        while block <= blocks:
            row = block // width
            if block < blocks and block % width == 0 and in_row[row] == 0:
                length, after = block - start, block + width  # a row without any
            elif block < blocks and is_free[row, block % width]:
                block += 1
                continue
            else:
                length, after = block - start, block + 1
            fits = length >= wanted
            if length and (
                (fits and (best < wanted or length < best)) or (best < wanted and length > best)
            ):
                best, first = length, start
            start = block = after
        for taking in range(first, first + min(best, wanted)):
            row = taking // width
            is_free[row, taking % width] = False
            in_row[row] -= 1
            taken[popped] = taking
            popped += 1
    return taken
