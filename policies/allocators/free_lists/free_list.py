"""What every free list does. A block can also be taken from the middle, when its content is found
again. An operation looks at no more than a fixed multiple of the blocks it moves, on average.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from policies.requests.requests import IntArray


class FreeList(ABC):
    """Blocks 0 to n - 1, all free at first and handed out in ascending order."""

    together: ClassVar[bool] = False
    """Whether its aim is that the blocks of a request lie together."""
    looks_behind: ClassVar[bool] = False
    """Whether it matters who asks: `pop_behind` is asked then."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.free = blocks

    @abstractmethod
    def pop(self, count: int) -> IntArray:
        """Take the next `count` blocks (needs count <= free), in the order of handing out."""

    def pop_apart(self, count: int) -> IntArray:
        """Take `count` blocks, each asked for on its own."""
        return self.pop(count)

    def pop_behind(self, asks: IntArray, last: IntArray) -> IntArray:
        """Take a block for each of `asks`, in order.

        Args:
            asks: int64 (n,), who asks, from 0 on.
            last: int64 (askers,), the last block that each has, -1 for none.
        """
        return self.pop_apart(len(asks))

    def prepare(self, count: int) -> None:
        """A step is about to take up to so many blocks."""
        return

    def same_in_steps(self, count: int) -> bool:
        """Whether `count` blocks are the same, taken together or in several steps, where others are
        freed before a step that finds too few."""
        return self.free >= count

    @abstractmethod
    def push(self, blocks: IntArray, unhashed: int = 0) -> None:
        """Free `blocks`, in this order; the first `unhashed` of them can never be found again."""

    @abstractmethod
    def take(self, blocks: IntArray) -> None:
        """Take these free `blocks`, wherever they are in the order."""

    @abstractmethod
    def is_free(self, blocks: IntArray) -> NDArray[np.bool_]:
        """Which of `blocks` are free."""
