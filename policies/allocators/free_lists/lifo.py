"""Last freed, first reused."""

from __future__ import annotations

import numpy as np

from hwmodel.kernel.jit import kernel
from policies.allocators.free_lists.line import Line
from policies.requests.requests import IntArray


class Stack(Line):
    """Last freed, first reused (vLLM v0's free blocks without prefix caching)."""

    def _first_line(self) -> IntArray:
        return np.arange(self.blocks)[::-1]

    def pop(self, count: int) -> IntArray:
        taken, self._tail = _pop_back(self._log, self._place, self._tail, count)
        self.free -= count
        return taken


@kernel
def _pop_back(log: IntArray, place: IntArray, tail: int, count: int) -> tuple[IntArray, int]:
    """The last `count` living entries of a line, last first, and where it ends then. Modifies
    `place`."""
    taken = np.empty(count, np.int64)
    popped = 0
    while popped < count:
        tail -= 1
        block = log[tail]
        if place[block] == tail:
            taken[popped] = block
            place[block] = -1
            popped += 1
    return taken, tail
