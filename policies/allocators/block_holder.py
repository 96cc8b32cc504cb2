"""What the parts of an allocator of blocks may ask of it (`block_allocator.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from policies.allocators.allocator import Demand, Limits
from policies.allocators.block_pool import BlockPool
from policies.allocators.block_tables import BlockTables
from policies.allocators.capabilities import Migration
from policies.allocators.kv_layout import Units
from policies.allocators.kv_managers import Manager
from policies.allocators.prefix_index import PrefixIndex
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
    index: PrefixIndex
    row: IntArray
    stored: IntArray
    reserved: IntArray
    resident: Any
    demands: dict[int, Demand]
    copied: list[Migration]

    @property
    def kept_free(self) -> int: ...
    @property
    def uniform(self) -> bool: ...
    def places(self, tokens: int) -> int: ...
    def room_behind(self, stored: int) -> int: ...
    def units_of(self, request: int, skipped: int, group: int) -> Units: ...
    def enter(self, request: int, demand: Demand, found: int) -> None: ...
    def hold(self, request: int, found: IntArray) -> None: ...
    def grow(self, request: int, tokens: int) -> bool: ...
    def keep(self, request: int, group: int, start: int, end: int) -> None: ...
    def release_known(self, request: int, tokens: int) -> int: ...
