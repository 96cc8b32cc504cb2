"""What free blocks still hold: content stays in a block until the block is handed out again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.requests.requests import IntArray

Found = tuple[IntArray, NDArray[np.bool_]]
"""Blocks in token order, and which of them hold what is looked for."""


class Kept(NamedTuple):
    """Full blocks in token order, and how often each had been handed out when it was written."""

    blocks: IntArray
    uses: IntArray


NOTHING = Kept(np.zeros(0, np.int64), np.zeros(0, np.int64))


class BlockCache:
    """Blocks kept under a key. `uses`, int64 (blocks,): how often each was handed out, counted by
    the caller."""

    def __init__(self, uses: IntArray) -> None:
        self._uses = uses
        self._kept: dict[int, Kept] = {}

    def keep(self, key: int, blocks: IntArray) -> None:
        """These blocks, in token order, hold what is to be found under `key`."""
        self._kept[key] = Kept(blocks, self._uses[blocks])

    def complete(self, key: int, blocks: IntArray) -> None:
        """As `keep`, but what is still there under `key` has precedence: the same
        content computed later is a duplicate that is never found (as in vLLM v1)."""
        kept, alive = self.find(key)
        if len(kept) > len(blocks):
            gone = np.flatnonzero(~alive[: len(blocks)])
            kept[gone] = blocks[gone]
            self._kept[key].uses[gone] = self._uses[blocks[gone]]
        else:
            self.keep(
                key,
                np.concatenate((np.where(alive, kept, blocks[: len(kept)]), blocks[len(kept) :])),
            )

    def drop(self, key: int) -> None:
        """Nothing is to be found under `key`."""
        self._kept.pop(key, None)

    def find(self, key: int) -> Found:
        """The blocks kept under `key`, and which of them still hold what they held."""
        blocks, uses = self._kept.get(key, NOTHING)
        return blocks, self._uses[blocks] == uses


def either(first: Found, second: Found) -> Found:
    """Block by block what the first holds, or the second where the first lost it or ends."""
    common = min(len(first[0]), len(second[0]))
    longer = first if len(first[0]) > common else second
    blocks = np.where(first[1][:common], first[0][:common], second[0][:common])
    alive = first[1][:common] | second[1][:common]
    return np.concatenate((blocks, longer[0][common:])), np.concatenate((alive, longer[1][common:]))
