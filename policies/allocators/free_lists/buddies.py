"""Blocks of a buddy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.jit import kernel
from policies.allocators.free_lists.bitmap import Bitmap
from policies.requests.requests import IntArray


class Buddies(Bitmap):
    """From the smallest free buddy that is large enough for the largest power of two of what is
    wanted, else from the largest there is, the lowest of equals; then again. A buddy has a power of
    two of blocks and begins at a multiple of that (`policies.allocators.buddy`); those that are
    free join at once, so that the free blocks alone say which there are."""

    together = True

    def pop(self, count: int) -> IntArray:
        taken: IntArray = _pop_buddies(self._is_free, self._in_row, self.blocks, count)
        self.free -= count
        return taken

    def pop_apart(self, count: int) -> IntArray:
        return np.concatenate([np.zeros(0, np.int64), *(self.pop(1) for _ in range(count))])


@kernel
def _pop_buddies(
    is_free: NDArray[np.bool_], in_row: IntArray, blocks: int, count: int
) -> IntArray:  # fmt: skip
    """`count` blocks, as `Buddies` takes them. Modifies both arrays."""
    width, flat = is_free.shape[1], is_free.reshape(-1)
    taken = np.empty(count, np.int64)
    popped = 0
    while popped < count:
        wanted = 1
        while 2 * wanted <= count - popped:
            wanted *= 2
        best, first, block = 0, -1, 0
        while block < blocks:
            if not flat[block]:
                empty = block % width == 0 and in_row[block // width] == 0
                block += width if empty else 1
                continue
            size = 1  # what lies before this block ended there, so its buddy begins here
            while block % (2 * size) == 0 and block + 2 * size <= blocks:
                if not flat[block + size : block + 2 * size].all():
                    break
                size *= 2
            fits = size >= wanted
            if (fits and (best < wanted or size < best)) or (best < wanted and size > best):
                best, first = size, block
            block += size
        for taking in range(first, first + min(best, wanted)):
            flat[taking] = False
            in_row[taking // width] -= 1
            taken[popped] = taking
            popped += 1
    return taken
