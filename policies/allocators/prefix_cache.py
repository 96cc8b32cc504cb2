"""What free blocks still hold: content stays in a block until the block is handed out again."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.requests.requests import IntArray

Found = tuple[IntArray, NDArray[np.bool_]]
"""Blocks in token order, and which of them hold what is looked for."""


class Copies(NamedTuple):
    """Blocks with one content a column, and how often each had been handed out when it was
    written; int64 (copies, columns), oldest first. A use of -1: no block."""

    blocks: IntArray
    uses: IntArray


NOTHING = Copies(np.zeros((1, 0), np.int64), np.zeros((1, 0), np.int64))
NOTHING_FOUND: Found = np.zeros(0, np.int64), np.zeros(0, np.bool_)


class BlockCache:
    """Full blocks kept under a key, in token order. The same content computed again is one more
    copy, and the oldest that is left is found (vLLM v1: `BlockPool`, which maps a hash to blocks
    in the order they were cached). `uses`, int64 (blocks,): how often each was handed out, counted
    by the caller."""

    def __init__(self, uses: IntArray) -> None:
        self._uses = uses
        self._kept: dict[Hashable, Copies] = {}

    def keep(self, key: Hashable, blocks: IntArray, start: int = 0) -> None:
        """These blocks were computed: full blocks number `start` and following of `key`."""
        end = start + len(blocks)
        if not len(blocks):
            return
        uses, kept = self._uses[blocks], self._kept.get(key)
        if kept is None and not start:
            self._kept[key] = Copies(blocks[np.newaxis].copy(), uses[np.newaxis])
            return
        kept = _padded(kept or NOTHING, 0, end)
        alive = self._uses[kept.blocks[:, start:end]] == kept.uses[:, start:end]
        place: Any = 0
        columns: Any = slice(start, end)
        if alive.any():  # behind the last copy that is left
            left = alive.any(axis=0)
            place = len(alive) - np.where(left, alive[::-1].argmax(axis=0), len(alive))
            if place.max() == len(alive):
                kept = _padded(kept, 1, end)
            columns = np.arange(start, end)
        kept.blocks[place, columns] = blocks
        kept.uses[place, columns] = uses
        self._kept[key] = kept

    def drop(self, key: Hashable) -> None:
        """Nothing is to be found under `key`."""
        self._kept.pop(key, None)

    def has(self, key: Hashable) -> bool:
        """Whether anything is kept under `key`, though it may be lost."""
        return key in self._kept

    def find(self, key: Hashable) -> Found:
        """The oldest copies kept under `key`, and which of them still hold what they held."""
        kept = self._kept.get(key)
        if kept is None:
            return NOTHING_FOUND
        blocks, uses = kept
        if len(blocks) == 1:
            return blocks[0], self._uses[blocks[0]] == uses[0]
        alive = self._uses[blocks] == uses
        return blocks[alive.argmax(axis=0), np.arange(blocks.shape[1])], alive.any(axis=0)


def _padded(kept: Copies, copies: int, columns: int) -> Copies:
    """With so many more copies, and at least so many columns."""
    have, width = kept.blocks.shape
    if not copies and columns <= width:
        return kept
    shape = have + copies, max(columns, width)
    padded = Copies(np.zeros(shape, np.int64), np.full(shape, -1, np.int64))
    padded.blocks[:have, :width], padded.uses[:have, :width] = kept
    return padded
