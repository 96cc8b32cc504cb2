"""Lowest address first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.jit import kernel
from policies.allocators.free_lists.bitmap import Bitmap
from policies.requests.requests import IntArray


class Sorted(Bitmap):
    """Lowest address first."""

    def pop(self, count: int) -> IntArray:
        taken: IntArray = _pop_lowest(self._is_free, self._in_row, count)
        self.free -= count
        return taken


@kernel
def _pop_lowest(is_free: NDArray[np.bool_], in_row: IntArray, count: int) -> IntArray:
    """The `count` lowest free blocks. Modifies both arrays."""
    taken = np.empty(count, np.int64)
    popped = row = 0
    while popped < count:
        column = 0
        while in_row[row] > 0 and popped < count:
            if is_free[row, column]:
                is_free[row, column] = False
                in_row[row] -= 1
                taken[popped] = row * is_free.shape[1] + column
                popped += 1
            column += 1
        row += 1
    return taken
