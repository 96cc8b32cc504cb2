"""Free blocks in a line, from whose middle any can be taken."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.jit import kernel
from policies.allocators.free_lists.free_list import FreeList
from policies.requests.requests import IntArray


class Line(FreeList):
    """Free blocks in a line, which is handed out from its front and grows at its end.

    `_log[_head:_tail]` holds the line, and entries of blocks that were taken from the middle. An
    entry is alive while `_place` of its block (-1: not free) names it.
    """

    _head: int
    _tail: int

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self._log = np.zeros(3 * blocks, np.int64)  # the line fits on either side of itself
        self._place = np.zeros(blocks, np.int64)
        self._lay(self._first_line())

    def _first_line(self) -> IntArray:
        return np.arange(self.blocks)

    def pop(self, count: int) -> IntArray:
        taken = np.empty(count, np.int64)
        if count:
            self._head = _pop_front(self._log, self._place, self._head, taken)
            self.free -= count
        return taken

    def push(self, blocks: IntArray, unhashed: int = 0) -> None:
        self._append(blocks)

    def take(self, blocks: IntArray) -> None:
        self._place[blocks] = -1
        self.free -= len(blocks)

    def is_free(self, blocks: IntArray) -> NDArray[np.bool_]:
        return self._place[blocks] >= 0

    def _append(self, blocks: IntArray) -> None:
        if self._tail + len(blocks) > len(self._log):
            self._compact()
        self._enter(self._tail, blocks)
        self._tail += len(blocks)

    def _prepend(self, blocks: IntArray) -> None:
        if self._head < len(blocks):
            self._compact()
        self._head -= len(blocks)
        self._enter(self._head, blocks)

    def _enter(self, place: int, blocks: IntArray) -> None:
        end = place + len(blocks)
        self._log[place:end] = blocks
        self._place[blocks] = np.arange(place, end)
        self.free += len(blocks)

    def _compact(self) -> None:
        entries = self._log[self._head : self._tail]
        self._lay(entries[self._place[entries] == np.arange(self._head, self._tail)])

    def _lay(self, line: IntArray) -> None:
        """These blocks, and no others, are the line."""
        self.free = 0
        self._head, self._tail = self.blocks, self.blocks + len(line)
        self._enter(self._head, line)


@kernel
def _pop_front(log: IntArray, place: IntArray, head: int, taken: IntArray) -> int:
    """Where a line begins without its first living entries, which fill `taken`. Modifies `place`
    and `taken`: Numba makes an array for Python more slowly than NumPy does."""
    popped = 0
    while popped < len(taken):
        block = log[head]
        if place[block] == head:
            taken[popped] = block
            place[block] = -1
            popped += 1
        head += 1
    return head
