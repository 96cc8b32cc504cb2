"""Which blocks hold what a request begins with: full blocks by what they and all before them hold
(vLLM's automatic prefix caching), which makes a tree.

Found are, of each request, the blocks of its last residence, of texts that others begin with too
(`Demand.prefix_id`, `above`), of the prompt that samples have in common, and of earlier turns of
its session. A block is found from the moment it is stored until it is handed out again. Only an
unbroken prefix of full blocks counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from policies.allocators.allocator import Demand, Limits
from policies.allocators.block_pool import BlockPool
from policies.allocators.block_tables import BlockTables
from policies.allocators.kv_managers import Manager, longest
from policies.allocators.prefix_cache import BlockCache
from policies.allocators.state_blocks import StateBlocks
from policies.requests.requests import IntArray

NO_BLOCKS: IntArray = np.zeros(0, np.int64)


class Caching(Protocol):
    """Options; see `PagedOptions`."""

    @property
    def cached_recompute(self) -> bool: ...
    @property
    def prefix_caching(self) -> bool: ...
    @property
    def shared_samples(self) -> bool | None: ...


class KeptBlocks(NamedTuple):
    """Blocks from `start` to `end` of a request that are kept under `key`."""

    key: tuple[str, int]
    start: int
    end: int


class PrefixIndex:
    """`caches`: the trees of full blocks, of each group of layers: by ("prefix", id); by ("prompt",
    parent), those that samples have in common; by ("session", id); by ("own", request), those of
    earlier residences. `states`: as they, of the states at the ends of blocks."""

    def __init__(
        self, pool: BlockPool, tables: BlockTables, managers: Sequence[Manager],
        state_blocks: StateBlocks, limits: Limits, options: Caching,
    ) -> None:  # fmt: skip
        self._block, self._tables, self._managers = tables.block, tables, managers
        self._state_blocks, self._limits, self._options = state_blocks, limits, options
        self.caches = [BlockCache(pool.written) for _ in managers]
        saved = state_blocks.groups if limits.saves_states else 0
        self.states = [BlockCache(pool.written) for _ in range(saved)]
        shares = options.shared_samples
        self._samples_share = options.prefix_caching if shares is None else shares
        self._alone = len(managers) == 1 and not managers[0].window
        self._nothing: IntArray = np.zeros((len(managers), 0), np.int64)
        self._reused: dict[int, int] = {}
        """Blocks that a resident found at its admission."""

    def find(self, request: int, demand: Demand | None, limit: int) -> IntArray:
        """Blocks in memory of the longest prefix of a request, of at most `limit` tokens, that all
        groups have; int64 (groups, blocks), 0 where a window has given a block up."""
        if self._has_nothing_of(request, demand):
            return self._nothing
        wanted, less = limit // self._block, 0
        if demand is not None and self._limits.lookahead.hit == "less_one":
            less, limit = 1, max(limit, demand.prompt + demand.generated - 1)
        parts = self._parts(request, demand, limit // self._block)
        if self._alone:
            blocks = self._unbroken(parts)
            blocks = blocks[:-1][:wanted] if less else blocks
            return blocks[np.newaxis, : self._with_states(parts, len(blocks))]
        found = np.zeros((len(self.caches), parts[-1].end), np.int64)
        alive = np.zeros(found.shape, np.bool_)
        for group, cache in enumerate(self.caches):
            for key, start, end in parts:
                kept, lives = cache.find(key)
                last = max(min(end, len(kept)), start)
                found[group, start:last] = kept[start:last]
                alive[group, start:last] = lives[start:last]
        count = self._with_states(parts, longest(self._managers, alive, less))
        for group, manager in enumerate(self._managers):
            found[group, : manager.left(count * self._block, 0)] = 0
        return found[:, :count]

    def reuse(self, request: int, blocks: int) -> None:
        """A request is admitted that found so many."""
        if blocks:
            self._reused[request] = blocks

    def states_at(self, request: int, demand: Demand, count: int) -> IntArray | None:
        """The blocks that hold the states behind the first `count` blocks, int64 (groups,); None:
        none are kept, or some are lost."""
        return self._states_of(self._parts(request, demand, count), count)

    def publish(self, row: int, request: int, demand: Demand, before: int) -> None:
        """Others may find the full blocks of a prompt from now on, which held `before` tokens."""
        if before >= (demand.prompt if demand.parent >= 0 else demand.prefix_tokens):
            return
        full = int(self._tables.tokens[row]) // self._block
        for part in self._parts(request, demand, full)[:-1]:
            if (first := max(before // self._block, part.start)) < part.end:
                for group, cache in enumerate(self.caches):
                    held = self._tables.blocks(row, group)
                    cache.keep(part.key, held[first : part.end], first)

    def named(self, demand: Demand, tokens: int) -> int:
        """How many blocks of so many known tokens can be found again once they are free."""
        full = max(tokens, 0) // self._block
        return full if self.keeps(demand) else self._parts(-1, demand, full)[-1].start

    def keep(
        self, row: int, request: int, demand: Demand, group: int, start: int, end: int
    ) -> None:  # fmt: skip
        """Blocks of a row from place `start` to `end` are given up: those that no other running
        request has are found under the request's own key."""
        part = self._parts(request, demand, end)[-1]
        start = max(start, part.start, self._reused.get(request, 0))
        self.caches[group].keep(part.key, self._tables.blocks(row, group)[start:end], start)

    def save_states(self, request: int, demand: Demand, before: int, stored: int) -> None:
        """A request has stored more than `before` tokens: if it has come to the end of a block the
        states there are kept."""
        if request not in self._state_blocks.held:  # it runs elsewhere
            return
        size = self._block
        for full in range(before // size + 1, stored // size + 1):
            # a step over an end leaves no state there, but for tokens decoded one by one
            if full * size != stored and before < demand.prompt + demand.generated:
                continue
            held = self._state_blocks.save(request)
            part = next(p for p in self._parts(request, demand, full) if p.end >= full)
            if part.key[0] == "own" and not self.keeps(demand):
                continue
            for cache, block in zip(self.states, held, strict=True):
                cache.keep(part.key, np.array([block]), full - 1)

    def leave(self, request: int) -> None:
        """A request holds nothing any more."""
        self._reused.pop(request, None)

    def drop(self, key: tuple[str, int]) -> None:
        """Nothing is to be found under a key."""
        for cache in (*self.caches, *self.states):
            cache.drop(key)

    def keeps(self, demand: Demand) -> bool:
        """Whether what a request has stored is kept for itself or for later turns."""
        return self._options.cached_recompute or self.continues(demand)

    def continues(self, demand: Demand) -> bool:
        """Whether later turns find what a request has stored."""
        return demand.session >= 0 and self._options.prefix_caching

    def shares(self, demand: Demand) -> bool:
        """Whether a request may find what others have stored."""
        return (
            demand.prefix_id >= 0 or demand.parent >= 0 or demand.session >= 0
            or bool(demand.above) or bool(self.states)
        )  # fmt: skip

    def _parts(self, request: int, demand: Demand | None, full: int) -> list[KeptBlocks]:
        """The path through the tree of the first `full` blocks of a request. A block belongs to the
        part that its last token is of; the last part is what no other request that runs has."""
        parts: list[KeptBlocks] = []
        own = ("own", request)
        if demand is not None:
            known = self._limits.lookahead.hit == "next_known"
            for key, tokens in self._texts(demand):
                at = parts[-1].end if parts else 0
                tokens -= known  # the token behind a block is part of its name
                end = max(min(min(tokens, demand.prompt) // self._block, full), at)
                parts.append(KeptBlocks(key, at, end))
            if self.continues(demand):
                own = ("session", demand.session)
        return [*parts, KeptBlocks(own, parts[-1].end if parts else 0, full)]

    def _texts(self, demand: Demand) -> list[tuple[tuple[str, int], int]]:
        """(key, tokens up to its end) of what a prompt has in common with others."""
        texts: list[tuple[tuple[str, int], int]] = []
        if self._options.prefix_caching:
            texts += [(("prefix", key), tokens) for key, tokens in demand.above]
            if demand.prefix_id >= 0:
                texts.append((("prefix", demand.prefix_id), demand.prefix_tokens))
        if demand.parent >= 0 and self._samples_share:
            texts.append((("prompt", demand.parent), demand.prompt))
        return texts

    def _has_nothing_of(self, request: int, demand: Demand | None) -> bool:
        """Whether nothing was ever kept that a request could find."""
        key = ("own", request)
        if demand is not None:
            if demand.parent >= 0 and self._samples_share:
                return False
            if self._options.prefix_caching:
                if demand.prefix_id >= 0 or demand.above:
                    return False
                if demand.session >= 0:
                    key = ("session", demand.session)
        return not any(cache.has(key) for cache in self.caches)

    def _unbroken(self, parts: list[KeptBlocks]) -> IntArray:
        """Blocks in memory of the longest prefix, in the one group."""
        found: list[IntArray] = []
        for key, start, end in parts:
            blocks, alive = self.caches[0].find(key)
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
        return np.concatenate(found) if found else NO_BLOCKS

    def _with_states(self, parts: list[KeptBlocks], count: int) -> int:
        """The most of the first `count` blocks at whose end the states are in memory, too."""
        while self.states and count and self._states_of(parts, count) is None:
            count -= 1
        return count

    def _states_of(self, parts: list[KeptBlocks], count: int) -> IntArray | None:
        at = count - 1
        key = next((key for key, start, end in parts if start <= at < end), None)
        held = [cache.find(key) for cache in self.states] if key is not None else []
        if not held or not all(at < len(alive) and alive[at] for _, alive in held):
            return None
        return np.array([blocks[at] for blocks, _ in held])
