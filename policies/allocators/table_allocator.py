"""Block tables that grow as tokens are stored: what allocators do that have blocks of a few tokens.

A model whose layers all keep everything has one group of them, one with sliding windows several
(`policies.allocators.sliding_windows`), each with a block table of its own over the one pool.
States and a drafter's KV: `policies.allocators.beside_blocks`.
"""

from __future__ import annotations

import numpy as np

from policies.allocators.allocator import Demand, Limits
from policies.allocators.block_allocator import BlockOptions
from policies.allocators.capabilities import Drafts, Forks, KeepsStates, Migration, Swaps
from policies.allocators.kv_layout import ByteRuns, KvLayout
from policies.allocators.movable_tables import MovableTables
from policies.allocators.row_tables import NO_BLOCKS
from policies.requests.requests import IntArray


class TableAllocator(MovableTables, Swaps, Drafts, KeepsStates, Forks):
    """Blocks as tokens are stored; of a model with windows those that it still attends to."""

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: BlockOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self._swapped: dict[int, int] = {}

    @property
    def state_block(self) -> int:
        return self.block if self._state_caches else 0

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        most = prompt + output - 1
        if ahead := self.limits.lookahead.slots:
            most = np.maximum(np.minimum(most + ahead, self.limits.max_model_len), most)
        places: IntArray = -(-most // self.block)
        blocks: IntArray = self._beside.most(most)
        for group in range(self.groups):
            blocks = blocks + self._windows.most(group, places)
        return blocks * self.block

    def state_runs(self, request: int, copy: int, nth: int, size: int) -> ByteRuns:
        return self._beside.state_runs(self.layout, self.block, request, copy, nth, size)

    def cached(self, request: int, limit: int, demand: Demand | None = None) -> int:
        """See `Caches.cached`; with its `demand`, also for a request not seen before."""
        return self._found(request, limit, demand).shape[1] * self.block

    def ask(self, request: int, limit: int, demand: Demand) -> tuple[int, int]:
        found = self._found(request, limit, demand)
        return found.shape[1] * self.block, self._free_among(found) * self.block

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        """See `OnDemand.fits`; with its `demand`, blocks that it shares count as found."""
        found, places = self._none_found, self._places(tokens)
        if demand is not None:
            found, request = self._found(request, tokens - 1, demand), -1
        each = [self._windows.most(group, places) for group in range(self.groups)]
        return self._has_room(each, found, self._beside.wanted(request, tokens))

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        found, end = self._found(request, tokens - 1, demand), tokens + self._room_behind(tokens)
        # what lies before a window is given up after it was stored, so that all places count
        each = [self._places(end)] * self.groups
        if not self._has_room(each, found, self._beside.wanted(-1, end)):
            return False
        count = found.shape[1]
        self._admitted(request, demand, count)
        self._set_row(request, self._tables.add(request))
        self._admit(request, 0, 0)
        self._windows.enter(request, count * self.block)
        if count:
            self._hold(request, found)
        saved = None
        if count and self._state_caches:
            saved = self._states_at(self._parts(request, demand, count), count)
        self.reserved_total += self._beside.enter(request, saved) * self.block
        return self.grow(request, tokens - count * self.block)

    def grow(self, request: int, tokens: int) -> bool:
        """Store `tokens` more. False if there is no room: nothing changes, but that windows
        have given up their old blocks."""
        self._require(request)
        demand, before = self._demands[request], int(self.stored[request])
        stored = before + tokens
        end = stored + self._room_behind(stored)
        if self._windows.near:
            self._give_up(request)
        row = int(self._row[request])
        wanted = max(self._places(end) - int(self._tables.count[row]), 0)
        wanted *= len(self._windows.of(request)) if self._windows.near else self.groups
        own = self._beside.wanted(request, end)
        if wanted + own > self._list.free:
            return False
        if self._windows.near:
            self._windows.last[request] = stored - int(self._tables.tokens[row])
        self._extend(row, stored)
        self.reserved[request] += wanted * self.block
        self.reserved_total += (wanted + self._beside.extend(request, own)) * self.block
        self.stored[request] = stored
        self._publish(request, demand, before)
        if self._state_caches:
            self._save_states([request], np.array([before]))
        return True

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        """See `Drafts.store_ahead`. A block that is there already is not taken
        again, so that the slots of rejected drafts are the next ones' (vLLM: `allocate_slots`).
        With windows one after another, since each may give blocks up before the next one takes."""
        together = len(requests) if not self._windows.near else 1
        for at in range(0, len(requests), max(together, 1)):
            part = slice(at, at + together)
            if self._windows.near:
                more = int(unseen[at]) * self._windows.sees_drafts
                self._give_up(int(requests[at]), more)
            fitting = self._store_ahead(requests[part], kept[part], beyond[part])
            if fitting < len(requests[part]):
                return at + fitting
        return len(requests)

    def _store_ahead(self, requests: IntArray, kept: IntArray, beyond: IntArray) -> int:
        """As `store_ahead`, of all together."""
        rows = self._row[requests]
        ends = self._tables.tokens[rows] + kept + beyond
        wanted = np.maximum(-(-ends // self.block) - self._tables.count[rows], 0) * self.groups
        own = np.zeros(len(rows), np.int64)
        if self._beside.groups:
            pairs = zip(requests.tolist(), ends.tolist(), strict=True)
            own[:] = [self._beside.wanted(one, end) for one, end in pairs]
        fitting = int(np.searchsorted(np.cumsum(wanted + own), self._list.free, "right"))
        for at in np.flatnonzero((wanted + own)[:fitting]).tolist():
            if wanted[at]:
                self._tables.hand_out(int(rows[at]), self._list.pop(int(wanted[at])))
            self._beside.extend(int(requests[at]), int(own[at]))
        held, kept = requests[:fitting], kept[:fitting]
        before = self.stored[held]
        self._tables.tokens[rows[:fitting]] += kept
        self.stored[held] += kept
        self.reserved[held] += wanted[:fitting] * self.block
        self.reserved_total += int((wanted + own)[:fitting].sum()) * self.block
        if self._windows.near:
            self._windows.last[held] = np.where(kept > 0, kept, self._windows.last[held])
        if self._state_caches:
            self._save_states(held.tolist(), before)
        return fitting

    def release_known(self, request: int, tokens: int) -> int:
        self._require(request)
        demand, unknown = self._demands[request], int(self.stored[request]) - tokens
        row = int(self._row[request])
        self.reserved_total -= self._beside.leave_states(request) * self.block
        hashed = self._hashed(row, demand, unknown)
        for group in range(self.groups):
            gone = self._windows.gone_of(request, group)
            if self._keeps(demand):
                self._keep(request, group, gone, hashed, hashed)
            self._free_row(row, group, gone, hashed)
        self._reused.pop(request, None)
        self.reserved_total -= self._beside.leave_drafter(request) * self.block
        self._tables.remove(row)
        self._set_row(request, -1)
        return self._dismiss(request)

    def finished(self, request: int, prompt: int, output: int) -> None:
        super().finished(request, prompt, output)
        self._swapped.pop(request, None)

    def swap_out(self, request: int) -> int:
        stored = int(self.stored[request])
        self.release(request)
        for cache in (*self._caches, *self._state_caches):
            cache.drop(("own", request))
        self._swapped[request] = stored
        return stored

    def swap_in(self, request: int) -> bool:
        if (tokens := self._swapped.get(request)) is None:
            raise KeyError(f"request {request} is not swapped out")
        demand, windowed = self._demands[request], bool(self._windows.near)
        enter = self._enter_behind_windows if windowed else self.reserve
        if not enter(request, demand, tokens):
            return False
        del self._swapped[request]
        return True

    def _enter_behind_windows(self, request: int, demand: Demand, tokens: int) -> bool:
        """As `reserve`, of a request whose KV comes with it: of each group what the next token
        attends to has a block, and nothing that is found here counts."""
        end = tokens + self._room_behind(tokens)
        places, own = self._places(end), self._beside.wanted(-1, end)
        gone = [int(self._windows.left(group, tokens, 0)) for group in range(self.groups)]
        wanted = self.groups * places - sum(gone)
        if wanted + self._beside.fixed + own + self._kept_free > self._list.free:
            return False
        self._admitted(request, demand, 0)
        row = self._tables.add(request)
        self._set_row(request, row)
        self._admit(request, wanted * self.block, tokens)
        self._windows.enter(request, tokens)
        blocks = np.zeros((self.groups, places), np.int64)
        for group, first in enumerate(gone):
            blocks[group, first:] = held = self._list.pop(places - first)
            self._tables.uses[held] += 1
        self._tables.append(row, blocks.ravel())
        self._tables.tokens[row] = tokens
        self.reserved_total += self._beside.enter(request) * self.block
        self.reserved_total += self._beside.extend(request, own) * self.block
        return True

    def fork(self, request: int, source: int) -> None:
        """See `Forks.fork`. Full blocks are held together; what lies in the last one, if that is
        not full, is copied to the last block of `request` (Kwon et al. 2023, section 4.4)."""
        self._require(request)
        self._require(source)
        tables, tokens = self._tables, int(self.stored[request])
        own, other = int(self._row[request]), int(self._row[source])
        full, part = divmod(tokens, self.block)
        left, shared = tables.blocks(own)[:full].copy(), tables.blocks(other)[:full].copy()
        alike = left == shared
        left, held = left[~alike], shared[~alike]
        self._others[held] += 1
        self._shares = True
        self._free(left, 0)
        self.reserved_total -= len(left) * self.block  # `_free` has added those that stay
        tables.replace(own, 0, shared)
        if part:
            places = tables.blocks(other)[full], tables.blocks(own)[full]
            start, target = (int(place) * self.block for place in places)
            self._copies.append(Migration(request, start, target, part, self.block))
            self._copied_tokens += part

    def headroom(self, requests: IntArray, limit: int) -> int:
        if self._windows.near:
            return self._headroom_in_windows(requests, limit)
        return self._tables.rounds(self._rows(requests), self._list.free, limit)

    def growing(self, requests: IntArray) -> int:
        if self._windows.near:
            return super().growing(requests)
        return self._tables.growing(self._row[requests], self._list.free)

    def refuses(self, request: int, demand: Demand, tokens: int) -> bool:
        shares = demand.prefix_id >= 0 or demand.parent >= 0 or demand.session >= 0
        if shares or demand.above or self._windows.near or self._state_caches:
            return False  # it needs fewer where others have stored what it finds
        # blocks of its own that it finds again are free ones, which it takes like any other
        wanted = self.groups * self._places(tokens) + self._beside.wanted(-1, tokens)
        return wanted + self._beside.fixed + self._kept_free > self._list.free

    def taken(self, requests: IntArray, rounds: int) -> int:
        return self._tables.wanted(self._rows(requests), rounds)[0] * self.block

    def advance(self, requests: IntArray, rounds: int) -> None:
        if self._windows.near:
            return self._advance_in_windows(requests, rounds)
        rows = self._rows(requests)
        wanted, most = self._tables.wanted(rows, rounds)
        before = self.stored[requests] if self._state_caches else None
        blocks = self._list.pop_apart(wanted) if wanted else NO_BLOCKS
        self._tables.advance(rows, rounds, blocks, most, self.stored, self.reserved)
        self.reserved_total += wanted * self.block
        if before is not None:
            self._save_states(requests.tolist(), before)
        return None

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        if self._windows.near:
            return self._grown_in_windows(requests, rounds)
        return self.block * self._tables.grown(self._rows(requests), rounds)

    def _has_room(self, places: list[int], found: IntArray, own: int) -> bool:
        """Whether a request can be admitted that needs so many places in each group and `own`
        blocks of a drafter's, and finds these, int64 (groups, blocks); free ones are used up, too.
        """
        count = found.shape[1]
        wanted = self._beside.fixed + own + self._kept_free
        for most in places:
            wanted += max(most - count, 0)
        return wanted <= self._list.free and wanted + self._free_among(found) <= self._list.free

    def _free_among(self, found: IntArray) -> int:
        """Of these blocks, int64 (groups, blocks), that a request finds and will still attend to,
        those that nobody holds."""
        if not (count := found.shape[1]):
            return 0
        gone = [self._windows.left(group, count * self.block, 0) for group in range(self.groups)]
        return sum(
            int(self._list.is_free(found[group, first:]).sum()) for group, first in enumerate(gone)
        )
