"""Runs of blocks, each with the block freed first."""

from __future__ import annotations

import numpy as np

from hwmodel.kernel.jit import kernel
from policies.allocators.free_lists.line import Line
from policies.requests.requests import IntArray


class OldestRuns(Line):
    """The block freed first with the free blocks beside it, those below first, in ascending order;
    then again: runs, of which each has the oldest block that is left."""

    together = True

    def pop(self, count: int) -> IntArray:
        taken, self._head = _pop_beside(self._log, self._place, self._head, count)
        self.free -= count
        return taken

    def pop_apart(self, count: int) -> IntArray:
        return super().pop(count)


@kernel
def _pop_beside(log: IntArray, place: IntArray, head: int, count: int) -> tuple[IntArray, int]:
    """`count` blocks: each time the first living entry of a line with the living blocks beside it,
    and where the line begins then. Modifies `place`."""
    taken = np.empty(count, np.int64)
    popped = 0
    while popped < count:
        block = log[head]
        if place[block] != head:
            head += 1
            continue
        low, high, wanted = block, block + 1, count - popped
        while high - low < wanted and low > 0 and place[low - 1] >= 0:
            low -= 1
        while high - low < wanted and high < len(place) and place[high] >= 0:
            high += 1
        for taking in range(low, high):
            place[taking] = -1
            taken[popped] = taking
            popped += 1
    return taken, head
