"""Blocks behind one another, with room behind each request."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.jit import kernel
from policies.allocators.free_lists.line import Line
from policies.requests.requests import IntArray


class Spread(Line):
    """The block behind the asker's last one; where that is not free, the one with the most free
    blocks behind it: the start of a run, or the middle of one that begins behind the last block of
    another asker, who keeps the first half as room to grow. No prediction is needed, and no block
    moves.

    window: of the blocks freed first, the share of all blocks that may be handed out, so that what
    was freed last is still found again; 1: all.

    Example: two requests grow by turns, and each keeps its blocks together.

        >>> order, last = Spread(8), np.array([-1, -1])
        >>> order.pop_behind(np.array([0, 1, 0, 1]), last).tolist()
        [0, 4, 1, 5]
    """

    together = True
    looks_behind = True

    def __init__(self, blocks: int, window: float = 1.0) -> None:
        self._window = blocks if window >= 1 else max(math.ceil(window * blocks), 1)
        self._ends = np.zeros(blocks, np.bool_)  # the last block of who asked for it
        super().__init__(blocks)

    def pop(self, count: int) -> IntArray:
        return self.pop_behind(np.zeros(count, np.int64), np.full(1, -1))

    def pop_apart(self, count: int) -> IntArray:
        return self.pop_behind(np.arange(count), np.full(count, -1))

    def pop_behind(self, asks: IntArray, last: IntArray) -> IntArray:
        taken = np.empty(len(asks), np.int64)
        self._head = _pop_behind(
            self._log, self._place, self._ends, self._head, self._tail, self._window, asks,
            last.copy(), taken,
        )  # fmt: skip
        self.free -= len(asks)
        return taken

    def push(self, blocks: IntArray, unhashed: int = 0) -> None:
        self._ends[blocks] = False
        super().push(blocks, unhashed)


@kernel
def _pop_behind(
    log: IntArray, place: IntArray, ends: NDArray[np.bool_], head: int, tail: int, window: int,
    asks: IntArray, last: IntArray, taken: IntArray,
) -> int:  # fmt: skip
    """Where a line begins then. Modifies `place`, `ends`, `last` and `taken`. A block may be handed
    out while its place is below `edge`, behind which the line has been freed later."""
    blocks, edge, living = len(place), head, 0
    while edge < tail and living < window:
        living += place[log[edge]] == edge
        edge += 1
    for nth in range(len(asks)):
        behind = last[asks[nth]]
        block = behind + 1
        if behind < 0 or block == blocks or not 0 <= place[block] < edge:
            room = at = 0
            while at < blocks:
                if not 0 <= place[at] < edge:
                    at += 1
                    continue
                first = at
                while at < blocks and 0 <= place[at] < edge:
                    at += 1
                skipped = (at - first) // 2 if first > 0 and ends[first - 1] else 0
                if at - first - skipped > room:
                    block, room = first + skipped, at - first - skipped
        place[block] = -1
        if behind >= 0:
            ends[behind] = False
        ends[block] = True
        last[asks[nth]] = taken[nth] = block
        while edge < tail and place[log[edge]] != edge:
            edge += 1
        edge = min(edge + 1, tail)
    while head < tail and place[log[head]] != head:
        head += 1
    return head
