"""What the scheduler tells the allocator that copies vLLM's blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class MirroredBlocks(ABC):
    """A capability of the allocator: its block tables are those of vLLM's `KVCacheManager`.

    block: tokens of a block. blocks: of the pool, its null block included. windows: of each group
    of layers the tokens that it attends to; None: all.
    """

    block: int
    blocks: int
    windows: list[int | None]

    @abstractmethod
    def mirror(self, request: int, stored: int, held: Sequence[Sequence[Any]]) -> None:
        """A request has so many tokens stored, in these blocks of vLLM, group by group."""

    @abstractmethod
    def count(self, free: int) -> None:
        """So many blocks of vLLM's pool are free."""
