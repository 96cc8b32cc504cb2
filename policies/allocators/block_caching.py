"""What an allocator of blocks finds again: the capabilities `Caches`, `Remembers` and `Reports`, on
its index (`prefix_index`)."""

from __future__ import annotations

from typing import Any

from policies.allocators.allocator import Demand
from policies.allocators.block_holder import BlockHolder
from policies.allocators.capabilities import Caches, Remembers, Reports
from policies.allocators.prefix_index import PrefixIndex
from policies.requests.requests import IntArray


class BlockCaching(Caches, Remembers, Reports):
    """Of an allocator of blocks. `index`: what is found. `looked_up_tokens`, `hit_tokens`: see
    `report`."""

    def __init__(self, blocks: BlockHolder) -> None:
        self._of = blocks
        self.index = PrefixIndex(
            blocks.pool, blocks.tables, blocks.managers, blocks.state_blocks, blocks.limits,
            blocks.options,
        )  # fmt: skip
        self.looked_up_tokens = self.hit_tokens = 0
        self._leaving = -1
        """A request that is released for good."""

    def find(self, request: int, limit: int, demand: Demand | None) -> IntArray:
        """See `PrefixIndex.find`; of a request without demand that which it had last."""
        return self.index.find(request, demand or self._of.demands.get(request), limit)

    def cached(self, request: int, limit: int, demand: Demand | None = None) -> int:
        """See `Caches.cached`; with its `demand`, also for a request not seen before."""
        return self.find(request, limit, demand).shape[1] * self._of.block

    def ask(self, request: int, limit: int, demand: Demand) -> tuple[int, int]:
        found = self.find(request, limit, demand)
        return found.shape[1] * self._of.block, self.free_among(found) * self._of.block

    def free_among(self, hits: IntArray) -> int:
        """Of these blocks, int64 (groups, blocks), that a request finds and will still attend to,
        those that nobody holds."""
        if not (count := hits.shape[1]):
            return 0
        of, tokens = self._of, count * self._of.block
        return sum(
            int(of.pool.is_free(blocks[manager.left(tokens, 0) :]).sum())
            for manager, blocks in zip(of.managers, hits, strict=True)
        )

    def enter(self, request: int, demand: Demand, hits: int) -> None:
        """A request is admitted that found so many blocks."""
        of = self._of
        if (demand.prefix_id >= 0 or demand.session >= 0) and request not in of.demands:
            self.looked_up_tokens += demand.prompt
            self.hit_tokens += hits * of.block
        self.index.reuse(request, hits)

    def hold(self, request: int, hits: IntArray) -> None:
        """These blocks, which hold their content already, are the request's first ones."""
        of = self._of
        row, places = int(of.row[request]), hits.shape[1]
        of.tables.append(row, hits.ravel())
        of.tables.tokens[row] = of.stored[request] = places * of.block
        for manager, blocks in zip(of.managers, hits, strict=True):
            held = blocks[manager.gone(request) :]
            of.pool.share(held)
            of.reserved[request] += len(held) * of.block

    def stored(self, request: int, demand: Demand, before: int, stored: int) -> None:
        """A request that had stored `before` tokens has stored so many: others may find them."""
        self.index.publish(int(self._of.row[request]), request, demand, before)
        if self.index.states:
            self.index.save_states(request, demand, before, stored)

    def save_states(self, requests: IntArray, before: IntArray) -> None:
        """These have stored more than `before`, int64 (n,)."""
        of = self._of
        for request, tokens in zip(requests.tolist(), before.tolist(), strict=True):
            stored = int(of.stored[request])
            self.index.save_states(request, of.demands[request], tokens, stored)

    def keep(self, request: int, group: int, start: int, end: int) -> None:
        """What blocks from place `start` to `end` hold is found again, unless the request is gone
        for good."""
        of, demand = self._of, self._of.demands[request]
        if request != self._leaving or self.index.continues(demand):
            self.index.keep(int(of.row[request]), request, demand, group, start, end)

    def release(self, request: int) -> int:
        return self.release_known(request, int(self._of.stored[request]))

    def release_known(self, request: int, tokens: int) -> int:
        of = self._of
        of.require(request)
        demand, row = of.demands[request], int(of.row[request])
        unknown = int(of.stored[request]) - tokens
        of.state_blocks.leave(request)
        named = self.index.named(demand, int(of.tables.tokens[row]) - unknown)
        for group, manager in enumerate(of.managers):
            gone = manager.gone(request)
            if self.index.keeps(demand):
                self.keep(request, group, gone, named)
            front = manager.window or not of.windows.freed_first
            of.pool.give(of.tables.blocks(row, group)[gone:], max(named - gone, 0), front)
        self.index.leave(request)
        of.drafter_blocks.leave(request)
        return of.dismiss(request)

    @property
    def discards(self) -> bool:
        return True

    def discard(self, request: int) -> int:
        session = self._of.demands[request].session
        held = self.release_known(request, 0)
        self.index.drop(("session", session))
        return held

    def forget(self) -> None:
        self._of.pool.forget()

    @property
    def loses_ends_first(self) -> bool:
        # freed tail first, together, handed out in order
        return self._of.options.free_list in ("fifo", "split")

    def ends(self, request: int) -> None:
        self._leaving = request

    def finished(self, request: int, prompt: int, output: int) -> None:
        self.index.drop(("own", request))
        self._of.demands.pop(request, None)
        self._leaving = -1
        self._of.swaps.away.pop(request, None)

    def report(self) -> dict[str, Any]:
        """Prompt tokens of requests with a system prompt or in sessions, and those of them found in
        memory at their first admission; tokens copied within the memory; of a model with states,
        why no prefix is found where none is. Nothing where there was none of this."""
        copied = self._of.copying.tokens
        if not (self.looked_up_tokens or copied):
            return {}
        figures: dict[str, Any] = {
            "prefix_looked_up_tokens": float(self.looked_up_tokens),
            "prefix_hit_tokens": float(self.hit_tokens),
            "copied_tokens": float(copied),
        }
        if self.looked_up_tokens and self._of.limits.state_bytes and not self.index.states:
            figures["prefixes"] = "not found: of layers with a state that of the last token is kept"
        return figures
