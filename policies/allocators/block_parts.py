"""What an allocator of blocks can do beside its contract, each a part that it has: swap; have room
for drafts; copy and fork."""

from __future__ import annotations

import numpy as np

from policies.allocators.block_holder import BlockHolder
from policies.allocators.capabilities import CopiesKv, Drafts, Forks, Migration, Swaps
from policies.requests.requests import IntArray


class BlockSwaps(Swaps):
    """Blocks are given up, and others taken. `away`: tokens of requests that are swapped out."""

    def __init__(self, blocks: BlockHolder) -> None:
        self._of = blocks
        self.away: dict[int, int] = {}

    def swap_out(self, request: int) -> int:
        stored = int(self._of.stored[request])
        self._of.release(request)
        self._of.caching.index.drop(("own", request))
        self.away[request] = stored
        return stored

    def swap_in(self, request: int) -> bool:
        if (tokens := self.away.get(request)) is None:
            raise KeyError(f"request {request} is not swapped out")
        enter = self._of.windows.enter_behind if self._of.windows.near else self._of.reserve
        if not enter(request, self._of.demands[request], tokens):
            return False
        del self.away[request]
        return True


class BlockDrafts(Drafts):
    """A block that is there already is not taken again, so that the slots of rejected drafts are
    the next ones' (vLLM: `allocate_slots`)."""

    def __init__(self, blocks: BlockHolder) -> None:
        self._of = blocks

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        """See `Drafts.store_ahead`. With windows one after another, since each may give blocks up
        before the next one takes."""
        windows = self._of.windows
        if not windows.near:
            return self._together(requests, kept, beyond)
        for at, request in enumerate(requests.tolist()):
            windows.give_up(request, int(unseen[at]) * windows.sees_drafts)
            one = slice(at, at + 1)
            if not self._together(requests[one], kept[one], beyond[one]):
                return at
        return len(requests)

    def _together(self, requests: IntArray, kept: IntArray, beyond: IntArray) -> int:
        """As `store_ahead`, of all together."""
        of, drafter = self._of, self._of.drafter_blocks
        rows = of.row[requests]
        ends = of.tables.tokens[rows] + kept + beyond
        wanted = np.maximum(-(-ends // of.block) - of.tables.count[rows], 0) * of.groups
        own = np.zeros(len(rows), np.int64)
        if drafter.groups:
            pairs = zip(requests.tolist(), ends.tolist(), strict=True)
            own[:] = [drafter.lacking(one, end) for one, end in pairs]
        fitting = int(np.searchsorted(np.cumsum(wanted + own), of.pool.free, "right"))
        for at in np.flatnonzero((wanted + own)[:fitting]).tolist():
            if wanted[at]:
                row, places = int(rows[at]), int(wanted[at]) // of.groups
                of.tables.append(row, of.holdings.taken(row, [*range(of.groups)], places))
            drafter.extend(int(requests[at]), int(own[at]))
        held, kept = requests[:fitting], kept[:fitting]
        before = of.stored[held]
        of.tables.tokens[rows[:fitting]] += kept
        of.stored[held] += kept
        of.reserved[held] += wanted[:fitting] * of.block
        if of.windows.near:
            of.windows.last[held] = np.where(kept > 0, kept, of.windows.last[held])
        if of.caching.index.states:
            of.caching.save_states(held, before)
        return fitting


class BlockCopies(CopiesKv):
    """`made`: copies since the last `copies`. `tokens`: of all copies on write."""

    def __init__(self) -> None:
        self.made: list[Migration] = []
        self.tokens = 0

    def copies(self) -> list[Migration]:
        made, self.made = self.made, []
        return made


class BlockForks(Forks):
    """Full blocks are held together; what lies in the last one, if that is not full, is copied to
    the last block of the request (Kwon et al. 2023, section 4.4)."""

    def __init__(self, blocks: BlockHolder) -> None:
        self._of = blocks

    def fork(self, request: int, source: int) -> None:
        of = self._of
        of.require(request)
        of.require(source)
        own, other = int(of.row[request]), int(of.row[source])
        full, part = divmod(int(of.stored[request]), of.block)
        left, held = (of.tables.blocks(row)[:full].copy() for row in (own, other))
        differs = left != held
        of.pool.share(held[differs])
        of.pool.give(left[differs], 0)
        of.tables.replace(own, 0, held)
        if part:
            start, target = (int(of.tables.blocks(row)[full]) for row in (other, own))
            move = start * of.block, target * of.block, part, of.block
            of.copying.made.append(Migration(request, *move))
            of.copying.tokens += part
