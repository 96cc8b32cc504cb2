"""What the parts of an allocator of blocks may ask of it (`block_allocator.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from policies.allocators.allocator import Demand, Limits
from policies.allocators.block_pool import BlockPool
from policies.allocators.block_tables import BlockTables
from policies.allocators.kv_managers import Manager
from policies.allocators.state_blocks import DrafterBlocks, StateBlocks
from policies.requests.requests import IntArray


class BlockHolder(Protocol):
    """An allocator of blocks; arrays by request are as in `Allocator`."""

    block: int
    groups: int
    limits: Limits
    options: Any
    managers: Sequence[Manager]
    pool: BlockPool
    tables: BlockTables
    state_blocks: StateBlocks
    drafter_blocks: DrafterBlocks
    windows: Any
    """`WindowSteps`, and so on: parts know each other by what they are called."""
    holdings: Any
    caching: Any
    swaps: Any
    copying: Any
    row: IntArray
    stored: IntArray
    reserved: IntArray
    resident: Any
    demands: dict[int, Demand]

    @property
    def kept_free(self) -> int: ...
    @property
    def uniform(self) -> bool: ...
    def require(self, request: int) -> None: ...
    def reserve(self, request: int, demand: Demand, tokens: int) -> bool: ...
    def grow(self, request: int, tokens: int) -> bool: ...
    def release(self, request: int) -> int: ...
    def dismiss(self, request: int) -> int: ...
