"""Allocation in blocks of a few tokens, as tokens are stored (vLLM v1: `KVCacheManager`).

An allocator of blocks has a pool of them (`block_pool`), a block table for each group of layers
(`block_tables`), in which each resident has a row (`holdings`), a manager for each group, which
says what its attention keeps (`kv_managers`), blocks of states and of a drafter (`state_blocks`),
what it finds again (`block_caching`), and parts for swaps, drafts, copies and forks (`block_parts`)
and for blocks that come from elsewhere (`block_moves`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.accelerator import Paging
from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.block_caching import BlockCaching
from policies.allocators.block_moves import BlockMoves
from policies.allocators.block_parts import BlockCopies, BlockDrafts, BlockForks, BlockSwaps
from policies.allocators.block_pool import BlockPool
from policies.allocators.block_tables import BlockTables
from policies.allocators.capabilities import OnDemand
from policies.allocators.columns import sum_of
from policies.allocators.free_lists.free_list import FreeList
from policies.allocators.free_lists.free_list_registry import free_list
from policies.allocators.holdings import Holdings
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.kv_managers import Manager, WindowRules, managers_of
from policies.allocators.prefix_index import NO_BLOCKS, Caching
from policies.allocators.state_blocks import DrafterBlocks, StateBlocks
from policies.allocators.window_steps import WindowSteps
from policies.requests.requests import IntArray


class BlockOptions(Caching, Protocol):
    """What allocators of blocks ask of their options; see `PagedOptions`."""

    @property
    def block(self) -> int | None: ...
    @property
    def free_list(self) -> str: ...
    @property
    def free_list_window(self) -> float | None: ...
    @property
    def watermark(self) -> float: ...
    @property
    def idle_watermark(self) -> bool: ...
    @property
    def null_block(self) -> bool: ...
    @property
    def window_rules(self) -> WindowRules: ...


def refuse_prefixes(options: PolicyOptions, model: str) -> None:
    """Raises DescriptionError for options that ask for what is found again, with a model that has
    layers with a state (`PolicyOptions.beside_states`)."""
    for name in ("prefix_caching", "cached_recompute"):
        if name in options.model_fields_set and getattr(options, name):
            raise DescriptionError(
                f"policy.{name}: {model} has layers with a state, which is that of the last token "
                "alone, and none is kept at the end of a prefix (vLLM: mamba_cache_mode none); "
                "expected false, or with paged state_caching: align"
            )


class BlockAllocator(Allocator, OnDemand):
    """Blocks as tokens are stored; of a model with windows those that it still attends to.

    `row`, int64 (requests,): the row of `tables` that each resident has, or -1.
    """

    holds_states = True
    by_request = (*Allocator.by_request, "resident", "row")
    members: ClassVar[tuple[type, ...]] = (
        BlockCaching, BlockSwaps, BlockDrafts, StateBlocks, BlockCopies, BlockForks, BlockMoves,
    )  # fmt: skip
    options: BlockOptions

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: BlockOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self.block = Paging().block if options.block is None else options.block
        self.managers: Sequence[Manager] = managers_of(
            layout, requests, limits, self.block, options.window_rules
        )
        self.groups = len(self.managers)
        self.windows = WindowSteps(self)
        self.pool = BlockPool(self._free_list(), options.null_block)
        self.spared = int(options.watermark * self.pool.order.blocks)
        """Blocks that admission leaves free, and while no request runs."""
        self.spared_idle = self.spared * options.idle_watermark
        self.tables = BlockTables(self.block, self.groups)
        self.row = np.full(requests, -1, np.int64)
        self.demands: dict[int, Demand] = {}
        self.state_blocks = StateBlocks(self.pool, limits, layout, self.block)
        self.drafter_blocks = DrafterBlocks(self.pool, limits)
        self.holdings = Holdings(self)
        self.caching, self.swaps, self.copying = self._caching(), BlockSwaps(self), BlockCopies()
        self.has = (self.caching, self.swaps, self.copying, self.state_blocks, *self._further())

    def _free_list(self) -> FreeList:
        kind = "split" if self.windows.freed_first else self.options.free_list
        return free_list(kind, self.layout.slots // self.block, self.options.free_list_window)

    def _caching(self) -> BlockCaching:
        return BlockCaching(self)

    def _further(self) -> tuple[object, ...]:
        """Parts that nothing here asks for."""
        return BlockDrafts(self), BlockForks(self), BlockMoves(self)

    # what it is

    @property
    def transfer_block(self) -> int:
        return self.block

    @property
    def reserved_total(self) -> int:
        return self.pool.held * self.block

    @reserved_total.setter
    def reserved_total(self, slots: int) -> None:
        raise AttributeError("the pool counts")

    @property
    def free_slots(self) -> int:
        return self.pool.free * self.block

    @property
    def largest_hole(self) -> int:
        return max(self.pool.free - self.kept_free, 0) * self.block

    @property
    def reach(self) -> int:
        return (self.pool.size - self.spared_idle) * self.block

    @property
    def fragmentation(self) -> float:
        return 0.0  # any free block serves any request; the watermark is no hole

    @property
    def kept_free(self) -> int:
        """Blocks that admission leaves free now."""
        return self.spared if self.pool.held else self.spared_idle

    @property
    def uniform(self) -> bool:
        """Whether there is one group, which keeps everything."""
        return self.groups == 1 and not self.windows.near

    # admission

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        most = prompt + output - 1
        if ahead := self.limits.lookahead.slots:
            most = np.maximum(np.minimum(most + ahead, self.limits.max_model_len), most)
        places: IntArray = -(-most // self.block)
        blocks: IntArray = self.state_blocks.fixed + self.drafter_blocks.most(most)
        for manager in self.managers:
            blocks = blocks + manager.most(places)
        return blocks * self.block

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        """See `OnDemand.fits`; with its `demand`, blocks that it shares count as found."""
        found = NO_BLOCKS.reshape(self.groups, 0)
        if demand is not None:
            found, request = self.caching.find(request, tokens - 1, demand), -1
        places = self.holdings.places(tokens)
        each = [manager.most(places) for manager in self.managers]
        own = self.drafter_blocks.lacking(request, tokens)
        return self.holdings.has_room(each, found, own)

    def refuses(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.windows.near or self.caching.index.shares(demand):
            return False  # it needs fewer where others have stored what it finds
        # blocks of its own that it finds again are free ones, which it takes like any other
        wanted = self.groups * self.holdings.places(tokens)
        wanted += self.drafter_blocks.lacking(-1, tokens)
        return wanted + self.state_blocks.fixed + self.kept_free > self.pool.free

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        found = self.caching.find(request, tokens - 1, demand)
        end = tokens + self.holdings.room_behind(tokens)
        # what lies before a window is given up after it was stored, so that all places count
        each = [self.holdings.places(end)] * self.groups
        if not self.holdings.has_room(each, found, self.drafter_blocks.lacking(-1, end)):
            return False
        count = found.shape[1]
        self.holdings.enter(request, demand, count)
        if count:
            self.caching.hold(request, found)
        saved = None
        if count and self.caching.index.states:
            saved = self.caching.index.states_at(request, demand, count)
        self.state_blocks.enter(request, saved)
        self.drafter_blocks.enter(request)
        return self.grow(request, tokens - count * self.block)

    # tokens more

    def grow(self, request: int, tokens: int) -> bool:
        """Store `tokens` more. False if there is no room: nothing changes, but that windows
        have given up their old blocks."""
        self.require(request)
        demand, before = self.demands[request], int(self.stored[request])
        stored = before + tokens
        end = stored + self.holdings.room_behind(stored)
        if self.windows.near:
            self.windows.give_up(request)
        row = int(self.row[request])
        places = max(self.holdings.places(end) - int(self.tables.count[row]), 0)
        wanted = places * self.holdings.keeping(request)
        own = self.drafter_blocks.lacking(request, end)
        if wanted + own > self.pool.free:
            return False
        if self.windows.near:
            self.windows.last[request] = stored - int(self.tables.tokens[row])
        if places:
            self.holdings.extend(request, row, places)
        self.tables.tokens[row] = self.stored[request] = stored
        self.drafter_blocks.extend(request, own)
        self.reserved[request] += wanted * self.block
        self.caching.stored(request, demand, before, stored)
        return True

    def advance(self, requests: IntArray, rounds: int) -> None:
        if self.windows.near:
            return self.windows.advance(requests, rounds)
        rows = self.holdings.rows(requests)
        wanted, most = self.tables.wanted(rows, rounds)
        before = self.stored[requests] if self.caching.index.states else None
        blocks = NO_BLOCKS
        if wanted and self.pool.order.looks_behind:
            blocks = self.pool.take_behind(*self.tables.asks(rows, rounds, wanted))
        elif wanted:
            blocks = self.pool.take_apart(wanted)
        self.tables.advance(rows, rounds, blocks, most, self.stored, self.reserved)
        if before is not None:
            self.caching.save_states(requests, before)
        return None

    def headroom(self, requests: IntArray, limit: int) -> int:
        if self.windows.near:
            return self.windows.headroom(requests, limit)
        return self.tables.rounds(self.holdings.rows(requests), self.pool.free, limit)

    def growing(self, requests: IntArray) -> int:
        if self.windows.near:
            return super().growing(requests)
        return self.tables.growing(self.row[requests], self.pool.free)

    def taken(self, requests: IntArray, rounds: int) -> int:
        return self.tables.wanted(self.holdings.rows(requests), rounds)[0] * self.block

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        if self.windows.near:
            return self.windows.grown(rounds)
        return self.block * self.tables.grown(self.holdings.rows(requests), rounds)

    def release(self, request: int) -> int:
        return self.caching.release(request)

    def dismiss(self, request: int) -> int:
        """It is resident no more, and its blocks are given back; the slots that it had."""
        self.holdings.leave(request)
        return self._dismiss(request)

    # where it lies

    def units(self, request: int) -> Units:
        """Group by group, the blocks that it has."""
        self.require(request)
        parts = [
            self.holdings.units(request, manager.gone(request), group)
            for group, manager in enumerate(self.managers)
        ]
        if self.groups == 1:
            return parts[0]
        return Units(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def layer_units(self, request: int, group: int) -> Units:
        """See `Allocator.layer_units`; places that a window has given up name the null block."""
        return self.units(request) if self.uniform else self.holdings.units(request, 0, group)

    def first_kept(self, request: int, group: int = 0) -> int:
        self.require(request)
        return self.managers[group].gone(request) * self.block

    def extent_count(self, requests: IntArray) -> int:
        if self.uniform:
            return sum_of(self.tables.runs, self.row[requests])
        return super().extent_count(requests)
