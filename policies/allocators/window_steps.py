"""What steps do where layers have sliding windows: a request's tables move on with its window
(`policies.allocators.kv_managers`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.allocators.allocator import Demand
from policies.allocators.block_holder import BlockHolder
from policies.requests.requests import IntArray


class WindowSteps:
    """Of an allocator of blocks. `near`: its groups with a window, and their managers. `last`,
    int64 (requests,): tokens that the step before stored."""

    def __init__(self, allocator: BlockHolder) -> None:
        self._of = allocator
        self.near = [
            (group, manager) for group, manager in enumerate(allocator.managers)
            if manager.window
        ]  # fmt: skip
        self.last: IntArray = np.zeros(len(allocator.resident) if self.near else 0, np.int64)
        options = allocator.options
        self.freed_first = (
            bool(self.near) and options.window_rules == "0.23" and options.free_list == "fifo"
        )
        """Whether blocks that a window gives up go to the front of the queue (vLLM 0.23)."""
        self.sees_drafts = not allocator.limits.ahead or options.window_rules != "0.33"
        """Whether windows move on with rejected drafts that are not known to be such."""
        self._held: list[int] = []
        """Blocks that were held after each round of the last `advance`."""

    def give_up(self, request: int, more: int = 0) -> None:
        """Free the blocks of windowed groups that lie before the window of the next token, with so
        many `more` stored."""
        of, demand, row = self._of, self._of.demands[request], int(self._of.row[request])
        stored, last = int(of.tables.tokens[row]) + more, int(self.last[request])
        for group, manager in self.near:
            before, gone = manager.gone(request), int(manager.left(stored, last))
            if gone <= before:
                continue
            named = of.caching.index.named(demand, gone * of.block)
            of.caching.keep(request, group, before, named)
            held = of.tables.blocks(row, group)
            of.pool.give(held[before:gone], max(named - before, 0))
            held[before:gone] = 0
            manager.given_up[request] = gone
            of.reserved[request] -= (gone - before) * of.block

    def headroom(self, requests: IntArray, limit: int) -> int:
        """See `Allocator.headroom`: round by round."""
        of = self._of
        if of.pool.shares and (of.pool.users > 1).any():
            return min(limit, self._one_round(requests))
        free, stored = of.pool.free, of.stored[requests]
        gone = [manager.given_up[requests] for _, manager in self.near]
        last: Any = self.last[requests]
        for done in range(limit):
            change = -of.groups * (stored % of.block == 0)
            for at, (_, manager) in enumerate(self.near):
                left = np.maximum(manager.left(stored, last), gone[at])
                change = change + left - gone[at]
                gone[at] = left
            if free + np.cumsum(change).min(initial=0) < 0:
                return done
            free, stored, last = free + int(change.sum()), stored + 1, 1
        return limit

    def _one_round(self, requests: IntArray) -> int:
        """1 if all of `requests` can grow by a token, else 0, where some hold blocks together."""
        of, released = self._of, dict[int, int]()
        free = of.pool.free
        for request in requests.tolist():
            row, stored = int(of.row[request]), int(of.stored[request])
            length, last = int(of.tables.tokens[row]), int(self.last[request])
            for group, manager in self.near:
                left, gone = int(manager.left(length, last)), manager.gone(request)
                for block in of.tables.blocks(row, group)[gone:left].tolist():
                    released[block] = released.get(block, 0) + 1
                    free += released[block] >= of.pool.users[block]
            places = of.holdings.places(stored + 1 + of.holdings.room_behind(stored + 1))
            free -= max(places - int(of.tables.count[row]), 0) * of.groups
            if free < 0:
                return 0
        return 1

    def advance(self, requests: IntArray, rounds: int) -> None:
        """See `Allocator.advance`: those whose blocks change one by one."""
        of = self._of
        self._held.clear()
        for _ in range(rounds):
            stored, last = of.stored[requests], self.last[requests]
            moving = stored % of.block == 0
            for _, manager in self.near:
                moving |= manager.left(stored, last) > manager.given_up[requests]
            for request in requests[moving].tolist():
                of.grow(request, 1)
            still = requests[~moving]
            of.stored[still] += 1
            of.tables.tokens[of.row[still]] += 1
            self.last[requests] = 1
            self._held.append(of.pool.held)

    def grown(self, rounds: int) -> IntArray:
        """See `OnDemand.grown`. Noted as they are made: what the first round finds hangs on the
        step before it."""
        held = np.array(self._held[len(self._held) - rounds :], np.int64)
        fewer: IntArray = held[-1:] - held
        return self._of.block * fewer

    def enter_behind(self, request: int, demand: Demand, tokens: int) -> bool:
        """As `Allocator.reserve`, of a request whose KV comes with it: of each group what the next
        token attends to has a block, and nothing that is found here counts."""
        of = self._of
        end = tokens + of.holdings.room_behind(tokens)
        places, own = of.holdings.places(end), of.drafter_blocks.lacking(-1, end)
        gone = [int(manager.left(tokens, 0)) for manager in of.managers]
        wanted = of.groups * places - sum(gone)
        if wanted + of.state_blocks.fixed + own + of.kept_free > of.pool.free:
            return False
        of.holdings.enter(request, demand, 0)
        for _, manager in self.near:
            manager.enter(request, tokens)
        row, blocks = int(of.row[request]), np.zeros((of.groups, places), np.int64)
        for group, first in enumerate(gone):
            blocks[group, first:] = of.pool.take(places - first)
        of.tables.append(row, blocks.ravel())
        of.tables.tokens[row] = of.stored[request] = tokens
        of.reserved[request] = wanted * of.block
        of.state_blocks.enter(request)
        of.drafter_blocks.enter(request)
        of.drafter_blocks.extend(request, own)
        return True
