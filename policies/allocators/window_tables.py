"""What block tables find again, hold together, and give up behind a window."""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.allocators.allocator import Demand
from policies.allocators.block_allocator import Part
from policies.allocators.free_lists.free_list import FreeList
from policies.allocators.free_lists.free_list_registry import free_list
from policies.allocators.row_tables import RowTables
from policies.allocators.sliding_windows import kept_of
from policies.requests.requests import IntArray

_NONE: IntArray = np.zeros(0, np.int64)


class WindowTables(RowTables):
    """Trees of full blocks, one of each group; rows whose windowed groups move on
    (`policies.allocators.sliding_windows`)."""

    def _found(self, request: int, limit: int, demand: Demand | None) -> IntArray:
        """Blocks in memory of the longest prefix of a request, of at most `limit` tokens, that all
        groups have; int64 (groups, blocks), 0 where a window has given a block up."""
        demand, wanted = demand or self._demands.get(request), limit // self.block
        if self._nothing_of(request, demand):
            return self._none_found
        less = int(demand is not None and self.limits.lookahead.hit == "less_one")
        if less and demand is not None:
            limit = max(limit, demand.prompt + demand.generated - 1)
        parts = self._parts(request, demand, limit // self.block)
        if self._uniform:
            blocks = self._unbroken(parts)
            blocks = blocks[:-1][:wanted] if less else blocks
            return blocks[np.newaxis, : self._stated(parts, len(blocks))]
        found = np.zeros((self.groups, parts[-1].end), np.int64)
        alive = np.zeros(found.shape, np.bool_)
        for group, cache in enumerate(self._caches):
            for key, start, end in parts:
                kept, lives = cache.find(key)
                last = max(min(end, len(kept)), start)
                found[group, start:last] = kept[start:last]
                alive[group, start:last] = lives[start:last]
        count = self._stated(parts, self._windows.longest(alive, less))
        for group in self._windows.near:
            found[group, : self._windows.left(group, count * self.block, 0)] = 0
        return found[:, :count]

    def _nothing_of(self, request: int, demand: Demand | None) -> bool:
        """Whether nothing was ever kept that a request could find."""
        if demand is not None and self._samples_share and demand.parent >= 0:
            return False
        if demand is not None and self.options.prefix_caching:
            if demand.prefix_id >= 0 or demand.above:
                return False
            if demand.session >= 0:
                return self._has_nothing(("session", demand.session))
        return self._has_nothing(("own", request))

    def _has_nothing(self, key: tuple[str, int]) -> bool:
        """Whether no group ever kept a block under this key."""
        first, *others = self._caches
        return not (first.has(key) or (others and any(cache.has(key) for cache in others)))

    def _stated(self, parts: list[Part], count: int) -> int:
        """The most of the first `count` blocks at whose end the states are in memory, too."""
        while self._state_caches and count and self._states_at(parts, count) is None:
            count -= 1
        return count

    def _states_at(self, parts: list[Part], count: int) -> IntArray | None:
        """The blocks that hold the states behind the first `count` blocks, int64 (groups,)."""
        at = count - 1
        key = next((key for key, start, end in parts if start <= at < end), None)
        held = [cache.find(key) for cache in self._state_caches] if key is not None else []
        if not held or not all(at < len(alive) and alive[at] for _, alive in held):
            return None
        return np.array([blocks[at] for blocks, _ in held])

    def _save_states(self, requests: list[int], before: IntArray) -> None:
        """These have stored more than `before`, int64 (n,): of those that have come to the end of a
        block the states there are kept."""
        size, stored = self.block, self.stored
        for request, tokens in zip(requests, before.tolist(), strict=True):
            if request not in self._beside.states:  # it runs elsewhere
                continue
            demand = self._demands[request]
            for full in range(tokens // size + 1, int(stored[request]) // size + 1):
                # a step over an end leaves no state there, but for tokens decoded one by one
                if full * size != stored[request] and tokens < demand.prompt + demand.generated:
                    continue
                held = self._beside.save(request)
                part = next(p for p in self._parts(request, demand, full) if p.end >= full)
                if part.key[0] == "own" and not self._keeps(demand):
                    continue
                for cache, block in zip(self._state_caches, held, strict=True):
                    cache.keep(part.key, np.array([block]), full - 1)

    def _unbroken(self, parts: list[Part]) -> IntArray:
        """Blocks in memory of the longest prefix, in the one group."""
        found: list[IntArray] = []
        for key, start, end in parts:
            blocks, alive = self._caches[0].find(key)
            alive = alive[start:end]
            if not (whole := len(alive)):
                if start < end:
                    break
                continue
            dead = int(alive.argmin())
            whole = whole if alive[dead] else dead
            found.append(blocks[start : start + whole])
            if whole < end - start:
                break
        return np.concatenate(found) if found else _NONE

    def _hold(self, request: int, found: IntArray) -> None:
        """These blocks, which hold their content already, are the request's first ones."""
        row, places = int(self._row[request]), found.shape[1]
        self._tables.append(row, found.ravel())
        self._tables.tokens[row] = self.stored[request] = places * self.block
        for group, blocks in enumerate(found):
            held = blocks[self._windows.gone_of(request, group) :]
            free = self._list.is_free(held)
            self._list.take(held[free])
            self._others[held[~free]] += 1
            self._shares |= not free.all()
            self.reserved[request] += len(held) * self.block
            self.reserved_total += int(free.sum()) * self.block

    def _hashed(self, row: int, demand: Demand, unknown: int) -> int:
        """How many blocks of a row can be found again once they are free; its last `unknown` tokens
        count for none."""
        return self._findable(demand, int(self._tables.tokens[row]) - unknown)

    def _findable(self, demand: Demand, tokens: int) -> int:
        """How many blocks of so many known tokens can be found again once they are free."""
        full = max(tokens, 0) // self.block
        return full if self._keeps(demand) else self._parts(-1, demand, full)[-1].start

    def _keep(self, request: int, group: int, start: int, end: int, hashed: int) -> None:
        """Blocks from place `start` to `end`, of `hashed` that can be found again, are given up:
        those that no running request shares are found under the request's own key, unless it is
        gone for good."""
        if request == self._leaving and not self._continues(self._demands[request]):
            return
        part = self._parts(request, self._demands[request], hashed)[-1]
        start = max(start, part.start, self._reused.get(request, 0))
        held = self._tables.blocks(int(self._row[request]), group)
        self._caches[group].keep(part.key, held[start:end], start)

    def _publish(self, request: int, demand: Demand, before: int) -> None:
        """Others may find full blocks of a prompt from now on, which held `before` tokens."""
        if before >= (demand.prompt if demand.parent >= 0 else demand.prefix_tokens):
            return
        row = int(self._row[request])
        full = int(self._tables.tokens[row]) // self.block
        for part in self._parts(request, demand, full)[:-1]:
            if (first := max(before // self.block, part.start)) < part.end:
                for group, cache in enumerate(self._caches):
                    held = self._tables.blocks(row, group)
                    cache.keep(part.key, held[first : part.end], first)

    def _free_row(self, row: int, group: int, start: int, hashed: int) -> None:
        """Give up the blocks of a row from place `start` on; those before place `hashed` can be
        found again."""
        near = group in self._windows.near
        held = self._tables.blocks(row, group)[start:]
        self._free(held, max(hashed - start, 0), near or not self._nears_first)

    def _give_up(self, request: int, more: int = 0) -> None:
        """Free the blocks of windowed groups that lie before the window of the next token, with so
        many `more` stored."""
        demand, row, windows = self._demands[request], int(self._row[request]), self._windows
        stored, last = int(self._tables.tokens[row]) + more, int(windows.last[request])
        for group in windows.near:
            before = windows.gone_of(request, group)
            gone = int(windows.left(group, stored, last))
            if gone <= before:
                continue
            hashed = self._findable(demand, gone * self.block)
            self._keep(request, group, before, hashed, hashed)
            held = self._tables.blocks(row, group)
            self._free(held[before:gone], max(hashed - before, 0))
            held[before:gone] = 0
            windows.gone[group, request] = gone
            self.reserved[request] -= (gone - before) * self.block
            self.reserved_total -= (gone - before) * self.block

    def _headroom_in_windows(self, requests: IntArray, limit: int) -> int:
        """See `Allocator.headroom`: round by round."""
        if self._others.any():
            return min(limit, self._one_round(requests))
        windows, free, stored = self._windows, self._list.free, self.stored[requests]
        gone = {group: windows.gone[group, requests] for group in windows.near}
        last: Any = windows.last[requests]
        for done in range(limit):
            change = -self.groups * (stored % self.block == 0)
            for group, before in gone.items():
                left = np.maximum(windows.left(group, stored, last), before)
                change = change + left - before
                gone[group] = left
            if free + np.cumsum(change).min(initial=0) < 0:
                return done
            free, stored, last = free + int(change.sum()), stored + 1, 1
        return limit

    def _one_round(self, requests: IntArray) -> int:
        """1 if all of `requests` can grow by a token, else 0, where some hold blocks together."""
        free, released, windows = self._list.free, dict[int, int](), self._windows
        for request in requests.tolist():
            row, stored = int(self._row[request]), int(self.stored[request])
            length, last = int(self._tables.tokens[row]), int(windows.last[request])
            for group in windows.near:
                left, gone = int(windows.left(group, length, last)), windows.gone_of(request, group)
                for block in self._tables.blocks(row, group)[gone:left].tolist():
                    released[block] = released.get(block, 0) + 1
                    free += released[block] > self._others[block]
            places = self._places(stored + 1 + self._room_behind(stored + 1))
            free -= max(places - int(self._tables.count[row]), 0) * self.groups
            if free < 0:
                return 0
        return 1

    def _advance_in_windows(self, requests: IntArray, rounds: int) -> None:
        """See `Allocator.advance`: those whose blocks change one by one."""
        windows = self._windows
        for _ in range(rounds):
            stored, last = self.stored[requests], windows.last[requests]
            moving = stored % self.block == 0
            for group in windows.near:
                moving |= windows.left(group, stored, last) > windows.gone[group, requests]
            for request in requests[moving].tolist():
                self.grow(request, 1)
            still = requests[~moving]
            self.stored[still] += 1
            self._tables.tokens[self._row[still]] += 1
            windows.last[requests] = 1

    def _grown_in_windows(self, requests: IntArray, rounds: int) -> IntArray:
        back = self.stored[requests] - np.arange(rounds - 1, -1, -1)[:, None]
        held = self.groups * -(-back // self.block)
        for group in self._windows.near:
            held = held - self._windows.left(group, back - 1, 1)
        total: IntArray = held.sum(axis=1)
        return self.block * (total[-1:] - total)

    def _free_list(self) -> FreeList:
        if self._nears_first:
            return free_list("split", self.layout.slots // self.block)
        return super()._free_list()

    @property
    def _nears_first(self) -> bool:
        """Whether blocks that a window gives up go to the front of the queue (vLLM 0.23)."""
        options = self.options
        windows = any(kept is not None for kept in kept_of(self.layout))
        return windows and options.window_rules == "0.23" and options.free_list == "fifo"
