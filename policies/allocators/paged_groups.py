"""Paged allocation of a model with sliding windows: a block table for each group of layers, all
over one pool of blocks (`policies.allocators.kv_groups`; vLLM v1's hybrid KV cache manager).

As in vLLM's `allocate_slots`, a request first gives up the blocks of its windowed groups that lie
before the window of the next token, last ones first and group by group, even where it then gets no
block; their places in the table hold the null block from then on. Then each group in turn gets
blocks for the new tokens, those of a whole prompt chunk too. Versions differ (`window_rules`):

| rule | 0.11 | 0.19 | 0.23 | 0.33 |
|---|---|---|---|---|
| blocks of a windowed group at admission | - | whole input | capped | capped |
| blocks that it frees go, under `fifo` | behind | behind | to the front | behind |
| the window moves on when tokens are | scheduled | scheduled | scheduled | processed |

The cap is what a group can hold at a time, ceil((W - 1 + tokens of a step) / block) + 1
(`SlidingWindowSpec.max_admission_blocks_per_request`); under asynchronous scheduling 0.33 counts
the tokens of two steps. 0.11 admits by chunk. 0.33 has `split`, where all go to the front.
Compared with the real scheduler: tests/reference/vllm_window_schedules.json.gz.

With prefix caching each group has a tree of full blocks (`policies.allocators.paged`), and a hit is
the longest prefix that all groups still have (vLLM's `HybridKVCacheCoordinator`): every block of it
in groups without a window, and in the others the last ceil((W - 1) / block) of them, or all where
the prefix is shorter. Blocks that a window gives up stay cached until they are handed out again.
Compared with the real scheduler: tests/reference/vllm_cached_window_schedules.json.gz.

Not modelled: swapping, and several samples in one request. Under v0, which had no groups, the same
(assumed); the trees of 0.11 and 0.19 are those of 0.23 (assumed).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.allocators.allocator import Demand, Limits
from policies.allocators.block_allocator import SharingAllocator
from policies.allocators.capabilities import Drafts
from policies.allocators.free_list import FreeList, SplitQueue
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.paged import PagedOptions
from policies.allocators.prefix_cache import BlockCache
from policies.requests.requests import IntArray, Samples


class PagedGroupsAllocator(SharingAllocator, Drafts):
    """`_tables[request]`: the block of each group and place, int64 (groups, places); `_count` and
    `_gone`: places in use, and those of them that windowed groups have given up."""

    Options = PagedOptions
    options: PagedOptions

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: PagedOptions
    ) -> None:
        self._nears_first = options.window_rules == "0.23" and options.free_list == "fifo"
        super().__init__(layout, requests, limits, options)
        assert layout.groups is not None
        self._window = layout.groups.window
        self._near = [kept is not None for kept in layout.groups.kept]
        self._uses = np.zeros(self._list.blocks, np.int64)
        self._caches = [BlockCache(self._uses) for _ in self._near]
        self._tables: dict[int, IntArray] = {}
        self._count = np.zeros(requests, np.int64)
        self._gone = np.zeros(requests, np.int64)
        self._ahead = limits.ahead * (options.window_rules == "0.33")
        self._last = np.zeros(requests, np.int64)

    def needs(self, prompt: IntArray, output: IntArray, samples: Samples = 1) -> IntArray:
        needed: IntArray = self._most(prompt + output - 1) * self.block
        return needed

    def cached(self, request: int, limit: int, demand: Demand | None = None) -> int:
        return self._found(request, limit, demand).shape[1] * self.block

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        """See `OnDemand.fits`; with its `demand`, blocks that it shares count as found."""
        found = np.zeros((len(self._near), 0), np.int64)
        if demand is not None:
            found = self._found(request, tokens - 1, demand)
        return self._has_room(int(self._most_near(tokens)), -(-tokens // self.block), found)

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        found = self._found(request, tokens - 1, demand)
        places = -(-(tokens + self._room_behind(tokens)) // self.block)
        if not self._has_room(places, places, found):
            return False
        count = found.shape[1]
        self._admitted(request, demand, count)
        self._admit(request, 0, count * self.block)
        gone = int(self._left(count * self.block, 0))
        self._count[request], self._gone[request], self._last[request] = count, gone, 0
        self._tables[request] = np.zeros((len(self._near), max(count, 8)), np.int64)
        for near, row, blocks in zip(self._near, self._tables[request], found, strict=True):
            held = blocks[gone * near :]
            row[gone * near : count] = held
            free = self._list.is_free(held)
            self._list.take(held[free])
            self._others[held[~free]] += 1
            self.reserved[request] += len(held) * self.block
            self.reserved_total += int(free.sum()) * self.block
        return self.grow(request, tokens - count * self.block)

    def grow(self, request: int, tokens: int) -> bool:
        """See `Allocator.grow`. Without room the windows have given up their old blocks even so."""
        self._require(request)
        before = int(self.stored[request])
        stored = before + tokens
        self._give_up(request)
        if not self._take(request, stored + self._room_behind(stored)):
            return False
        self.stored[request] = stored
        self._last[request] = tokens
        self._publish(request, before)
        return True

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        """See `Drafts.store_ahead`. Before 0.33 windows move on with `unseen` drafts too."""
        given = (each.tolist() for each in (requests, kept, beyond, unseen))
        for at, (request, tokens, behind, more) in enumerate(zip(*given, strict=True)):
            self._give_up(request, more * (self._ahead == 0))
            if not self._take(request, int(self.stored[request]) + tokens + behind):
                return at
            self.stored[request] += tokens
            self._last[request] = tokens or self._last[request]
        return len(requests)

    def release_known(self, request: int, tokens: int) -> int:
        self._require(request)
        hashed, gone = self._hashed(self._demands[request], tokens), int(self._gone[request])
        for group, near in enumerate(self._near):
            self._keep_own(request, group, gone * near, hashed)
            held = self._tables[request][group, gone * near : self._count[request]]
            full = max(hashed - gone * near, 0)
            self._free(held, full, near or not self._nears_first)
        self._reused.pop(request, None)
        del self._tables[request]
        return self._dismiss(request)

    def forget(self) -> None:
        self._uses += 1

    def headroom(self, requests: IntArray, limit: int) -> int:
        if self._others.any():
            return min(limit, self._one_round(requests))
        free, stored, gone = self._list.free, self.stored[requests], self._gone[requests]
        last: Any = self._last[requests]
        for done in range(limit):
            wanted = len(self._near) * (stored % self.block == 0)
            left = np.maximum(self._left(stored, last), gone)
            change = sum(self._near) * (left - gone) - wanted
            if free + np.cumsum(change).min(initial=0) < 0:
                return done
            free, stored, gone, last = free + int(change.sum()), stored + 1, left, 1
        return limit

    def advance(self, requests: IntArray, rounds: int) -> None:
        for _ in range(rounds):
            stored = self.stored[requests]
            left = self._left(stored, self._last[requests])
            moving = (stored % self.block == 0) | (left > self._gone[requests])
            for request in requests[moving].tolist():
                self.grow(request, 1)
            self.stored[requests[~moving]] += 1
            self._last[requests] = 1

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        back = self.stored[requests] - np.arange(rounds - 1, -1, -1)[:, None]
        held = len(self._near) * -(-back // self.block) - sum(self._near) * self._left(back - 1, 1)
        total: IntArray = held.sum(axis=1)
        return self.block * (total[-1:] - total)

    def units(self, request: int) -> Units:
        self._require(request)
        parts = []
        for near, held in zip(self._near, self._held(request), strict=True):
            first = int(self._gone[request]) if near else 0
            parts.append(self._units(request, held, first))
        return Units(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def layer_units(self, request: int, group: int) -> Units:
        return self._units(request, self._tables[request][group, : self._count[request]], 0)

    def _left(self, stored: Any, last: Any) -> Any:
        """Places before the window of the token after `stored` ones, of which the step before
        stored the `last` ones: an int, or int64 (n,)."""
        return np.maximum(stored - self._ahead * last - self._window + 1, 0) // self.block

    def _most(self, tokens: Any) -> Any:
        """Blocks that a request of so many tokens holds at a time, at most; as admission counts
        them."""
        places, near = -(-tokens // self.block), sum(self._near)
        return (len(self._near) - near) * places + near * self._most_near(tokens)

    def _most_near(self, tokens: Any) -> Any:
        """Of these, in a group with a window."""
        places = -(-tokens // self.block)
        if self.options.window_rules == "0.19":
            return places
        under_way = (1 + self._ahead) * self.limits.step
        return np.minimum(places, -(-(self._window - 1 + under_way) // self.block) + 1)

    def _found(self, request: int, limit: int, demand: Demand | None) -> IntArray:
        """Blocks in memory of the longest prefix of a request, of at most `limit` tokens, that all
        groups have; int64 (groups, blocks), 0 where a window gives a block up."""
        demand = demand or self._demands.get(request)
        less = int(demand is not None and self.limits.lookahead.hit == "less_one")
        if less and demand is not None:
            limit = max(limit, demand.prompt + demand.samples * demand.generated - 1)
        parts = self._parts(request, demand, limit // self.block)
        blocks = np.zeros((len(self._near), parts[-1].end), np.int64)
        alive = np.zeros(blocks.shape, np.bool_)
        for group, cache in enumerate(self._caches):
            for key, start, end in parts:
                kept, lives = cache.find(key)
                last = max(min(end, len(kept)), start)
                blocks[group, start:last] = kept[start:last]
                alive[group, start:last] = lives[start:last]
        near = np.array(self._near)
        whole = alive[~near].all(axis=0)
        most = len(whole) if whole.all() else int(whole.argmin())
        seen = alive[near, :most].all(axis=0)
        place = np.arange(most)
        dead = np.maximum.accumulate(np.where(seen, -1, place))
        need = -(-(self._window - 1) // self.block) + less
        serves = seen & ((place - dead >= need) | (dead < 0))
        count = max(int(place[serves].max(initial=-1)) + 1 - less, 0)
        found = blocks[:, :count]
        found[near, : int(self._left(count * self.block, 0))] = 0
        return found

    def _has_room(self, places_near: int, places: int, found: IntArray) -> bool:
        """Whether a request can be admitted that finds these blocks, of which free ones are used
        up, and needs so many places in each group with a window and in each other one."""
        count, near = found.shape[1], sum(self._near)
        wanted = (len(self._near) - near) * (places - count) + near * max(places_near - count, 0)
        gone = int(self._left(count * self.block, 0))
        for each, blocks in zip(self._near, found, strict=True):
            wanted += int(self._list.is_free(blocks[gone * each :]).sum())
        return wanted + self._kept_free <= self._list.free

    def _take(self, request: int, tokens: int) -> bool:
        """Blocks of all groups for so many tokens; False (nothing changes) if there is no room."""
        places = -(-tokens // self.block) - int(self._count[request])
        wanted = max(places, 0) * len(self._near)
        if wanted > self._list.free:
            return False
        if wanted:
            count = int(self._count[request]) + places
            table, new = self._table(request, count), self._list.pop(wanted)
            self._uses[new] += 1
            table[:, self._count[request] : count] = new.reshape(len(self._near), -1)
            self._count[request] = count
            self._reserve_blocks(request, wanted)
        return True

    def _one_round(self, requests: IntArray) -> int:
        """1 if all of `requests` can grow by a token, else 0, where some hold blocks together."""
        free, released = self._list.free, dict[int, int]()
        for request in requests.tolist():
            stored, gone = int(self.stored[request]), int(self._gone[request])
            left = int(self._left(stored, int(self._last[request])))
            for near, row in zip(self._near, self._tables[request], strict=True):
                for block in row[gone : left * near].tolist():
                    released[block] = released.get(block, 0) + 1
                    free += released[block] > self._others[block]
            places = -(-(stored + 1 + self._room_behind(stored + 1)) // self.block)
            free -= max(places - int(self._count[request]), 0) * len(self._near)
            if free < 0:
                return 0
        return 1

    def _hashed(self, demand: Demand, tokens: int) -> int:
        """How many blocks of so many known tokens can be found again once they are free."""
        full = max(tokens, 0) // self.block
        return full if self._keeps(demand) else self._parts(-1, demand, full)[-1].start

    def _keep_own(self, request: int, group: int, start: int, end: int) -> None:
        """Blocks from place `start` to `end` are given up: those that no running request shares
        are found again."""
        part = self._parts(request, self._demands[request], end)[-1]
        start = max(start, part.start, self._reused.get(request, 0))
        self._caches[group].keep(part.key, self._tables[request][group, start:end], start)

    def _publish(self, request: int, before: int) -> None:
        """Others may find full blocks of a prompt from now on, which held `before` tokens."""
        demand = self._demands[request]
        if before >= (demand.prompt if demand.parent >= 0 else demand.prefix_tokens):
            return
        full = int(self.stored[request]) // self.block
        for part in self._parts(request, demand, full)[:-1]:
            if (first := max(before // self.block, part.start)) < part.end:
                for cache, row in zip(self._caches, self._tables[request], strict=True):
                    cache.keep(part.key, row[first : part.end], first)

    def _give_up(self, request: int, more: int = 0) -> None:
        """Free the blocks of windowed groups that lie before the window of the next token, with so
        many `more` stored."""
        before = int(self._gone[request])
        gone = int(self._left(int(self.stored[request]) + more, int(self._last[request])))
        if gone <= before:
            return
        hashed = self._hashed(self._demands[request], gone * self.block)
        for group in np.flatnonzero(self._near).tolist():
            row = self._tables[request][group]
            self._keep_own(request, group, before, hashed)
            self._free(row[before:gone], max(hashed - before, 0))
            row[before:gone] = 0
        self._gone[request] = gone
        self._reserve_blocks(request, (before - gone) * sum(self._near))

    def _reserve_blocks(self, request: int, blocks: int) -> None:
        self.reserved[request] += blocks * self.block
        self.reserved_total += blocks * self.block

    def _free_list(self) -> FreeList:
        if self._nears_first:
            return SplitQueue(self.layout.slots // self.block)
        return super()._free_list()

    def _table(self, request: int, places: int) -> IntArray:
        """The table, wide enough for so many places."""
        table = self._tables[request]
        if places > table.shape[1]:
            more = max(places, 2 * table.shape[1]) - table.shape[1]
            table = self._tables[request] = np.pad(table, ((0, 0), (0, more)))
        return table

    def _held(self, request: int) -> list[IntArray]:
        """Blocks of each group, in token order."""
        count, gone = int(self._count[request]), int(self._gone[request])
        rows = zip(self._near, self._tables[request], strict=True)
        return [row[gone * near : count] for near, row in rows]

    def _units(self, request: int, blocks: IntArray, first: int) -> Units:
        return self._units_of(blocks, int(self.stored[request]), first)
