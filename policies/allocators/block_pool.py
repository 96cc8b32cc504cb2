"""The blocks of a card's memory: which are free, in which order they are handed out, and who holds
each (vLLM v1: `BlockPool`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.jit import kernel
from policies.allocators.free_lists.free_list import FreeList
from policies.requests.requests import IntArray


class BlockPool:
    """`users`, int64 (blocks,): requests that hold each block. `written`, int64 (blocks,): how
    often each was handed out, by which it is known whether a block still holds what it held.

    Example: two requests hold a block, which is free when both have given it back.

        >>> from policies.allocators.free_lists.fifo import Queue
        >>> pool = BlockPool(Queue(8))
        >>> block = pool.take(1)
        >>> pool.share(block)
        >>> pool.give(block, 0); pool.free
        7
        >>> pool.give(block, 0); pool.free
        8
    """

    def __init__(self, order: FreeList, null_block: bool = False) -> None:
        """order: all free. null_block: the first block is never handed out."""
        self.order = order
        self.checks = not type(order).__module__.startswith("policies.")
        """Whether the list is of one's own, so that what it hands out is looked at."""
        self.users = np.zeros(order.blocks, np.int64)
        self.written = np.zeros(order.blocks, np.int64)
        if null_block:
            order.take(np.zeros(1, np.int64))
        self.size = order.free
        """Blocks that requests may hold."""
        self.shares = False
        """Whether several ever held one."""
        self.barred: IntArray = np.zeros(0, np.int64)
        """Blocks that are not handed out."""

    @property
    def free(self) -> int:
        """Blocks that can be handed out."""
        return self.order.free

    @property
    def held(self) -> int:
        """Blocks that requests hold, each once."""
        return self.size - len(self.barred) - self.order.free

    def is_free(self, blocks: IntArray) -> NDArray[np.bool_]:
        """Which of these are free, bool (n,)."""
        return self.order.is_free(blocks)

    def take(self, count: int) -> IntArray:
        """The next so many, which a request holds from now on; needs as many `free`."""
        return self._handed_out(self.order.pop(count), count)

    def take_apart(self, count: int) -> IntArray:
        """As `take`, each asked for on its own."""
        return self._handed_out(self.order.pop_apart(count), count)

    def take_behind(self, asks: IntArray, last: IntArray) -> IntArray:
        """As `take`, a block for each of `asks` (`FreeList.pop_behind`)."""
        return self._handed_out(self.order.pop_behind(asks, last), len(asks))

    def share(self, blocks: IntArray) -> None:
        """One request more holds these, int64 (n,), for what is in them."""
        free = self.order.is_free(blocks)
        self.order.take(blocks[free])
        self.users[blocks] += 1
        self.shares |= not free.all()

    def give(self, blocks: IntArray, named: int, front: bool = True) -> None:
        """A request holds these no more, and those that nobody holds are free, tail first as in
        vLLM.

        Args:
            blocks: int64 (n,), in token order.
            named: so many of the first can be found again.
            front: whether the others are handed out before these.
        """
        if self.shares and (shared := self.users[blocks] > 1).any():
            self.users[blocks[shared]] -= 1
            named -= int(shared[:named].sum())
            blocks = blocks[~shared]
        self.users[blocks] = 0
        self.order.push(blocks[::-1], (len(blocks) - named) * front)

    def bar(self, blocks: IntArray) -> IntArray | None:
        """These, int64 (n,), and no others, are not handed out from now on. Of each block, what now
        stands for it, int64 (blocks,): itself, or a free one, where it is held. None (nothing
        changes): there are too few free ones."""
        behind, spare = np.setdiff1d(blocks, self.barred), np.setdiff1d(self.barred, blocks)
        free = self.order.is_free(behind)
        held = behind[~free]
        if len(held) > self.free + len(spare) - int(free.sum()):
            return None
        self.barred = blocks
        self.order.take(behind[free])
        self.order.push(spare)
        names, fresh = np.arange(self.order.blocks), self.order.pop(len(held))
        names[held] = fresh
        self.written[np.concatenate((behind, fresh))] += 1
        self.users[fresh], self.users[held] = self.users[held], 0
        return names

    def forget(self) -> None:
        """What is in blocks is lost."""
        self.written += 1

    def _handed_out(self, blocks: IntArray, count: int) -> IntArray:
        if self.checks:
            self._check(blocks, count)
        _hand_out(self.users, self.written, blocks)
        return blocks

    def _check(self, blocks: Any, count: int) -> None:
        """Raise DescriptionError where these are not so many blocks that nobody holds."""
        if (
            not isinstance(blocks, np.ndarray)
            or blocks.dtype.kind != "i"
            or not len(blocks) == len(np.unique(blocks)) == count
            or ((blocks < 0) | (blocks >= self.order.blocks)).any()
            or self.users[blocks].any()
        ):
            raise DescriptionError(
                f"free list {type(self.order).__name__}: expected an array of {count} blocks from "
                f"0 to {self.order.blocks - 1} that differ and that nobody holds; got {blocks!r}"
            )


@kernel
def _hand_out(users: IntArray, written: IntArray, blocks: IntArray) -> None:
    """Each of these blocks, which differ, has one user and is written anew. Modifies `users` and
    `written`."""
    for block in blocks:
        users[block] = 1
        written[block] += 1
