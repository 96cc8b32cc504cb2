"""Freed blocks wait until they are needed, and are sorted."""

from __future__ import annotations

import numpy as np

from policies.allocators.free_lists.line import Line
from policies.requests.requests import IntArray


class Staged(Line):
    """Freed blocks wait until those at hand are too few for what is asked; then all that are free
    are sorted (SGLang with `need_sort`, `merge_and_sort_free`)."""

    def __init__(self, blocks: int) -> None:
        self._ready = blocks
        super().__init__(blocks)

    def prepare(self, count: int) -> None:
        """Sort all free blocks if fewer than `count` are at hand."""
        if count > self._ready < self.free:
            self._compact()
            self._ready = self.free
            self._lay(np.sort(self._log[self._head : self._tail]))

    def pop(self, count: int) -> IntArray:
        self.prepare(count)
        self._ready -= count
        return super().pop(count)

    def pop_apart(self, count: int) -> IntArray:
        if count <= self._ready:
            return self.pop(count)
        at_hand = self.pop(self._ready)
        return np.concatenate((at_hand, self.pop(count - len(at_hand))))

    def take(self, blocks: IntArray) -> None:
        self._ready -= int((self._place[blocks] < self._edge).sum())
        super().take(blocks)

    def _lay(self, line: IntArray) -> None:
        super()._lay(line)
        self._edge = self._head + self._ready

    def same_in_steps(self, count: int) -> bool:
        return False  # each step may sort
