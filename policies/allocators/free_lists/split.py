"""Blocks that nothing can find first."""

from __future__ import annotations

from policies.allocators.free_lists.line import Line
from policies.requests.requests import IntArray


class SplitQueue(Line):
    """First freed, first reused, but blocks whose content cannot be found again go to the front:
    later versions of vLLM v1 (`BlockPool.free_blocks` prepends blocks without a hash). vLLM v0 with
    prefix caching also uses up the blocks without a hash before it evicts others."""

    def push(self, blocks: IntArray, unhashed: int = 0) -> None:
        self._prepend(blocks[:unhashed])
        self._append(blocks[unhashed:])
