"""Allocation in blocks of a few tokens, as tokens are stored (vLLM v1: `KVCacheManager`).

An allocator of blocks has a pool of them (`block_pool`), a block table for each group of layers
(`block_tables`), a manager for each group, which says what its attention keeps (`kv_managers`),
blocks of states and of a drafter (`state_blocks`), and an index of what blocks hold that can be
found again (`prefix_index`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.accelerator import Paging
from policies.allocators.allocator import Allocator, Capability, Demand, Limits, PolicyOptions
from policies.allocators.block_moves import BlockMoves
from policies.allocators.block_pool import BlockPool
from policies.allocators.block_tables import BlockTables
from policies.allocators.capabilities import (
    Caches,
    CopiesKv,
    Drafts,
    Forks,
    KeepsStates,
    Migration,
    MovesBlocks,
    OnDemand,
    Remembers,
    Reports,
    Swaps,
)
from policies.allocators.columns import sum_of
from policies.allocators.free_lists.free_list import FreeList
from policies.allocators.free_lists.free_list_registry import free_list
from policies.allocators.kv_layout import ByteRuns, KvLayout, Units
from policies.allocators.kv_managers import Manager, WindowRules, managers_of
from policies.allocators.prefix_index import NO_BLOCKS, Caching, PrefixIndex
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


class BlockAllocator(
    Allocator, OnDemand, Caches, Remembers, Reports, Swaps, Drafts, KeepsStates, CopiesKv, Forks
):  # fmt: skip
    """Blocks as tokens are stored; of a model with windows those that it still attends to.

    `row`, int64 (requests,): the row of `tables` that each resident has, or -1.
    """

    holds_states = True
    by_request = (*Allocator.by_request, "resident", "row")
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
        self._spared = int(options.watermark * self.pool.order.blocks)
        self._spared_idle = self._spared * options.idle_watermark
        self.tables = BlockTables(self.block, self.groups)
        self.state_blocks = StateBlocks(self.pool, limits, self.block)
        self.drafter_blocks = DrafterBlocks(self.pool, limits)
        self.index = PrefixIndex(
            self.pool, self.tables, self.managers, self.state_blocks, limits, options
        )
        self.block_moves = BlockMoves(self)
        self.row = np.full(requests, -1, np.int64)
        self.demands: dict[int, Demand] = {}
        self.copied: list[Migration] = []
        """Copies since the last `copies`."""
        self._copied_tokens = self._asked_tokens = self._hit_tokens = 0
        self._rows_asked: tuple[IntArray | None, IntArray] = (None, NO_BLOCKS)
        """The requests that were asked for last, and their rows: a step asks several times."""
        self._swapped: dict[int, int] = {}
        self._leaving = -1
        """A request that is released for good."""
        self._behind = limits.lookahead.drafter
        """Tokens behind those stored that have slots too."""

    # what it is

    def able(self, capability: type[Capability]) -> Capability | None:
        if capability is MovesBlocks:
            return cast(Capability, self.block_moves)
        return super().able(capability)

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
        return (self.pool.size - self._spared_idle) * self.block

    @property
    def fragmentation(self) -> float:
        return 0.0  # any free block serves any request; the watermark is no hole

    @property
    def kept_free(self) -> int:
        """Blocks that admission leaves free now."""
        return self._spared if self.pool.held else self._spared_idle

    @property
    def uniform(self) -> bool:
        """Whether there is one group, which keeps everything."""
        return self.groups == 1 and not self.windows.near

    @property
    def state_block(self) -> int:
        return self.block if self.index.states else 0

    @property
    def loses_ends_first(self) -> bool:
        # freed tail first, together, handed out in order
        return self.options.free_list in ("fifo", "split")

    @property
    def discards(self) -> bool:
        return True

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

    def find(self, request: int, limit: int, demand: Demand | None) -> IntArray:
        """See `PrefixIndex.find`; of a request without demand that which it had last."""
        return self.index.find(request, demand or self.demands.get(request), limit)

    def cached(self, request: int, limit: int, demand: Demand | None = None) -> int:
        """See `Caches.cached`; with its `demand`, also for a request not seen before."""
        return self.find(request, limit, demand).shape[1] * self.block

    def ask(self, request: int, limit: int, demand: Demand) -> tuple[int, int]:
        found = self.find(request, limit, demand)
        return found.shape[1] * self.block, self._free_among(found) * self.block

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        """See `OnDemand.fits`; with its `demand`, blocks that it shares count as found."""
        found = NO_BLOCKS.reshape(self.groups, 0)
        if demand is not None:
            found, request = self.find(request, tokens - 1, demand), -1
        places = self.places(tokens)
        each = [manager.most(places) for manager in self.managers]
        return self._has_room(each, found, self.drafter_blocks.lacking(request, tokens))

    def refuses(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.windows.near or self.index.shares(demand):
            return False  # it needs fewer where others have stored what it finds
        # blocks of its own that it finds again are free ones, which it takes like any other
        wanted = self.groups * self.places(tokens) + self.drafter_blocks.lacking(-1, tokens)
        return wanted + self.state_blocks.fixed + self.kept_free > self.pool.free

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        found, end = self.find(request, tokens - 1, demand), tokens + self.room_behind(tokens)
        # what lies before a window is given up after it was stored, so that all places count
        each = [self.places(end)] * self.groups
        if not self._has_room(each, found, self.drafter_blocks.lacking(-1, end)):
            return False
        count = found.shape[1]
        self.enter(request, demand, count)
        if count:
            self.hold(request, found)
        saved = None
        if count and self.index.states:
            saved = self.index.states_at(request, demand, count)
        self.state_blocks.enter(request, saved)
        self.drafter_blocks.enter(request)
        return self.grow(request, tokens - count * self.block)

    def enter(self, request: int, demand: Demand, found: int) -> None:
        """A request is resident, with an empty row; it found so many blocks."""
        if (demand.prefix_id >= 0 or demand.session >= 0) and request not in self.demands:
            self._asked_tokens += demand.prompt
            self._hit_tokens += found * self.block
        self.demands[request] = demand
        self.index.found(request, found)
        self._set_row(request, self.tables.add(request))
        self._admit(request, 0, 0)
        for manager in self.managers:
            manager.enter(request, found * self.block)
        if self.windows.near:
            self.windows.last[request] = 0

    def hold(self, request: int, found: IntArray) -> None:
        """These blocks, which hold their content already, are the request's first ones."""
        row, places = int(self.row[request]), found.shape[1]
        self.tables.append(row, found.ravel())
        self.tables.tokens[row] = self.stored[request] = places * self.block
        for manager, blocks in zip(self.managers, found, strict=True):
            held = blocks[manager.gone(request) :]
            self.pool.share(held)
            self.reserved[request] += len(held) * self.block

    # tokens more

    def grow(self, request: int, tokens: int) -> bool:
        """Store `tokens` more. False if there is no room: nothing changes, but that windows
        have given up their old blocks."""
        self.require(request)
        demand, before = self.demands[request], int(self.stored[request])
        stored = before + tokens
        end = stored + self.room_behind(stored)
        if self.windows.near:
            self.windows.give_up(request)
        row = int(self.row[request])
        places = max(self.places(end) - int(self.tables.count[row]), 0)
        wanted, own = places * self._keeping(request), self.drafter_blocks.lacking(request, end)
        if wanted + own > self.pool.free:
            return False
        if self.windows.near:
            self.windows.last[request] = stored - int(self.tables.tokens[row])
        if places:
            self._hand_out(request, row, places)
        self.tables.tokens[row] = self.stored[request] = stored
        self.drafter_blocks.extend(request, own)
        self.reserved[request] += wanted * self.block
        self._publish(request, demand, before)
        if self.index.states:
            self.index.save_states(request, demand, before, stored)
        return True

    def advance(self, requests: IntArray, rounds: int) -> None:
        if self.windows.near:
            return self.windows.advance(requests, rounds)
        rows = self.rows(requests)
        wanted, most = self.tables.wanted(rows, rounds)
        before = self.stored[requests] if self.index.states else None
        blocks = NO_BLOCKS
        if wanted and self.pool.order.looks_behind:
            blocks = self.pool.take_behind(*self.tables.asks(rows, rounds, wanted))
        elif wanted:
            blocks = self.pool.take_apart(wanted)
        self.tables.advance(rows, rounds, blocks, most, self.stored, self.reserved)
        if before is not None:
            self._save_states(requests, before)
        return None

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        """See `Drafts.store_ahead`. A block that is there already is not taken again, so that the
        slots of rejected drafts are the next ones' (vLLM: `allocate_slots`). With windows one after
        another, since each may give blocks up before the next one takes."""
        together = len(requests) if not self.windows.near else 1
        for at in range(0, len(requests), max(together, 1)):
            part = slice(at, at + together)
            if self.windows.near:
                self.windows.give_up(int(requests[at]), int(unseen[at]) * self.windows.sees_drafts)
            fitting = self._store_ahead(requests[part], kept[part], beyond[part])
            if fitting < len(requests[part]):
                return at + fitting
        return len(requests)

    def _store_ahead(self, requests: IntArray, kept: IntArray, beyond: IntArray) -> int:
        """As `store_ahead`, of all together."""
        rows = self.row[requests]
        ends = self.tables.tokens[rows] + kept + beyond
        wanted = np.maximum(-(-ends // self.block) - self.tables.count[rows], 0) * self.groups
        own = np.zeros(len(rows), np.int64)
        if self.drafter_blocks.groups:
            pairs = zip(requests.tolist(), ends.tolist(), strict=True)
            own[:] = [self.drafter_blocks.lacking(one, end) for one, end in pairs]
        fitting = int(np.searchsorted(np.cumsum(wanted + own), self.pool.free, "right"))
        for at in np.flatnonzero((wanted + own)[:fitting]).tolist():
            if wanted[at]:
                row, places = int(rows[at]), int(wanted[at]) // self.groups
                self.tables.append(row, self._taken(row, [*range(self.groups)], places))
            self.drafter_blocks.extend(int(requests[at]), int(own[at]))
        held, kept = requests[:fitting], kept[:fitting]
        before = self.stored[held]
        self.tables.tokens[rows[:fitting]] += kept
        self.stored[held] += kept
        self.reserved[held] += wanted[:fitting] * self.block
        if self.windows.near:
            self.windows.last[held] = np.where(kept > 0, kept, self.windows.last[held])
        if self.index.states:
            self._save_states(held, before)
        return fitting

    def headroom(self, requests: IntArray, limit: int) -> int:
        if self.windows.near:
            return self.windows.headroom(requests, limit)
        return self.tables.rounds(self.rows(requests), self.pool.free, limit)

    def growing(self, requests: IntArray) -> int:
        if self.windows.near:
            return super().growing(requests)
        return self.tables.growing(self.row[requests], self.pool.free)

    def taken(self, requests: IntArray, rounds: int) -> int:
        return self.tables.wanted(self.rows(requests), rounds)[0] * self.block

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        if self.windows.near:
            return self.windows.grown(requests, rounds)
        return self.block * self.tables.grown(self.rows(requests), rounds)

    def fork(self, request: int, source: int) -> None:
        """See `Forks.fork`. Full blocks are held together; what lies in the last one, if that is
        not full, is copied to the last block of `request` (Kwon et al. 2023, section 4.4)."""
        self.require(request)
        self.require(source)
        own, other = int(self.row[request]), int(self.row[source])
        full, part = divmod(int(self.stored[request]), self.block)
        left, held = (self.tables.blocks(row)[:full].copy() for row in (own, other))
        differs = left != held
        self.pool.share(held[differs])
        self.pool.give(left[differs], 0)
        self.tables.replace(own, 0, held)
        if part:
            start, target = (int(self.tables.blocks(row)[full]) for row in (other, own))
            move = start * self.block, target * self.block, part, self.block
            self.copied.append(Migration(request, *move))
            self._copied_tokens += part

    def copies(self) -> list[Migration]:
        made, self.copied = self.copied, []
        return made

    # the end of a residence

    def release(self, request: int) -> int:
        return self.release_known(request, int(self.stored[request]))

    def release_known(self, request: int, tokens: int) -> int:
        self.require(request)
        demand, row = self.demands[request], int(self.row[request])
        unknown = int(self.stored[request]) - tokens
        self.state_blocks.leave(request)
        named = self.index.named(demand, int(self.tables.tokens[row]) - unknown)
        for group, manager in enumerate(self.managers):
            gone = manager.gone(request)
            if self.index.keeps(demand):
                self.keep(request, group, gone, named)
            front = manager.window or not self.windows.freed_first
            self.pool.give(self.tables.blocks(row, group)[gone:], max(named - gone, 0), front)
        self.index.leave(request)
        self.drafter_blocks.leave(request)
        self.tables.remove(row)
        self._set_row(request, -1)
        return self._dismiss(request)

    def keep(self, request: int, group: int, start: int, end: int) -> None:
        """What blocks from place `start` to `end` hold is found again, unless the request is gone
        for good."""
        demand = self.demands[request]
        if request != self._leaving or self.index.continues(demand):
            self.index.keep(int(self.row[request]), request, demand, group, start, end)

    def discard(self, request: int) -> int:
        session = self.demands[request].session
        held = self.release_known(request, 0)
        self.index.drop(("session", session))
        return held

    def ends(self, request: int) -> None:
        self._leaving = request

    def finished(self, request: int, prompt: int, output: int) -> None:
        self.index.drop(("own", request))
        self.demands.pop(request, None)
        self._leaving = -1
        self._swapped.pop(request, None)

    def forget(self) -> None:
        self.pool.forget()

    def swap_out(self, request: int) -> int:
        stored = int(self.stored[request])
        self.release(request)
        self.index.drop(("own", request))
        self._swapped[request] = stored
        return stored

    def swap_in(self, request: int) -> bool:
        if (tokens := self._swapped.get(request)) is None:
            raise KeyError(f"request {request} is not swapped out")
        enter = self.windows.enter_behind if self.windows.near else self.reserve
        if not enter(request, self.demands[request], tokens):
            return False
        del self._swapped[request]
        return True

    # where it lies

    def units(self, request: int) -> Units:
        """Group by group, the blocks that it has."""
        self.require(request)
        parts = [
            self.units_of(request, manager.gone(request), group)
            for group, manager in enumerate(self.managers)
        ]
        if self.groups == 1:
            return parts[0]
        return Units(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def layer_units(self, request: int, group: int) -> Units:
        """See `Allocator.layer_units`; places that a window has given up name the null block."""
        return self.units(request) if self.uniform else self.units_of(request, 0, group)

    def first_kept(self, request: int, group: int = 0) -> int:
        self.require(request)
        return self.managers[group].gone(request) * self.block

    def extent_count(self, requests: IntArray) -> int:
        if self.uniform:
            return sum_of(self.tables.runs, self.row[requests])
        return super().extent_count(requests)

    def state_runs(self, request: int, copy: int, nth: int, size: int) -> ByteRuns:
        return self.state_blocks.runs(self.layout, self.block, request, copy, nth, size)

    def report(self) -> dict[str, Any]:
        """Prompt tokens of requests with a system prompt or in sessions, and those of them found in
        memory at their first admission; tokens copied within the memory; of a model with states,
        why no prefix is found where none is. Nothing where there was none of this."""
        if not (self._asked_tokens or self._copied_tokens):
            return {}
        figures: dict[str, Any] = {
            "prefix_asked_tokens": float(self._asked_tokens),
            "prefix_hit_tokens": float(self._hit_tokens),
            "copied_tokens": float(self._copied_tokens),
        }
        if self._asked_tokens and self.limits.state_bytes and not self.index.states:
            figures["prefixes"] = "not found: of layers with a state that of the last token is kept"
        return figures

    # parts of the above

    def places(self, tokens: int) -> int:
        """Places in a group of a request that stores so many tokens."""
        return -(-tokens // self.block)

    def room_behind(self, stored: int) -> int:
        """Tokens that have slots behind so many stored ones."""
        if not self._behind:
            return 0
        return max(min(self._behind, self.limits.max_model_len - stored), 0)

    def rows(self, requests: IntArray) -> IntArray:
        """Rows of `requests`, in order."""
        if self._rows_asked[0] is not requests:
            self._rows_asked = requests, self.row[requests]
        return self._rows_asked[1]

    def _free_list(self) -> FreeList:
        kind = "split" if self.windows.freed_first else self.options.free_list
        return free_list(kind, self.layout.slots // self.block, self.options.free_list_window)

    def _set_row(self, request: int, row: int) -> None:
        self.row[request] = row
        self._rows_asked = None, NO_BLOCKS

    def units_of(self, request: int, skipped: int, group: int) -> Units:
        """Units of a request's blocks in a group, from place `skipped` on."""
        row = int(self.row[request])
        blocks = self.tables.blocks(row, group)[skipped:]
        before = np.arange(skipped, skipped + len(blocks)) * self.block
        held = np.clip(self.tables.tokens[row] - before, 0, self.block)
        return Units(blocks * self.block, held, np.full(len(blocks), self.block, np.int64))

    def _keeping(self, request: int) -> int:
        """Groups that keep something of a request."""
        if not self.windows.near:
            return self.groups
        return sum(manager.keeps(request) for manager in self.managers)

    def _hand_out(self, request: int, row: int, places: int) -> None:
        """So many places more of a row get a block in each group that keeps them."""
        if self._keeping(request) == self.groups:
            self.tables.append(row, self._taken(row, [*range(self.groups)], places))
            return
        kept = [group for group, each in enumerate(self.managers) if each.keeps(request)]
        blocks = np.zeros((self.groups, places), np.int64)
        blocks[kept] = self._taken(row, kept, places).reshape(len(kept), places)
        self.tables.append(row, blocks.ravel())

    def _taken(self, row: int, groups: list[int], places: int) -> IntArray:
        """So many blocks more of a row in each of these groups, one group after another."""
        if not self.pool.order.looks_behind:
            return self.pool.take(places * len(groups))
        asks = np.repeat(np.arange(len(groups)), places)
        return self.pool.take_behind(asks, self.tables.last(row)[groups])

    def _publish(self, request: int, demand: Demand, before: int) -> None:
        self.index.publish(int(self.row[request]), request, demand, before)

    def _save_states(self, requests: IntArray, before: IntArray) -> None:
        """These have stored more than `before`, int64 (n,)."""
        for request, tokens in zip(requests.tolist(), before.tolist(), strict=True):
            stored = int(self.stored[request])
            self.index.save_states(request, self.demands[request], tokens, stored)

    def _has_room(self, places: list[int], found: IntArray, own: int) -> bool:
        """Whether a request can be admitted that needs so many places in each group and `own`
        blocks of a drafter's, and finds these, int64 (groups, blocks); free ones are used up, too.
        """
        count = found.shape[1]
        wanted = self.state_blocks.fixed + own + self.kept_free
        for most in places:
            wanted += max(most - count, 0)
        return wanted <= self.pool.free and wanted + self._free_among(found) <= self.pool.free

    def _free_among(self, found: IntArray) -> int:
        """Of these blocks, int64 (groups, blocks), that a request finds and will still attend to,
        those that nobody holds."""
        if not (count := found.shape[1]):
            return 0
        tokens = count * self.block
        return sum(
            int(self.pool.is_free(blocks[manager.left(tokens, 0) :]).sum())
            for manager, blocks in zip(self.managers, found, strict=True)
        )
