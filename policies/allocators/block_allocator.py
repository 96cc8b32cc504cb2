"""What allocators of blocks have in common: one free list, and blocks that requests find again and
hold together (docs/allocators.md)."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.accelerator import Paging
from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.capabilities import Caches, OnDemand, Reports
from policies.allocators.free_lists.free_list import FreeList
from policies.allocators.free_lists.free_list_registry import free_list
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.prefix_cache import BlockCache
from policies.allocators.sliding_windows import WindowRules
from policies.requests.requests import IntArray


class BlockOptions(Protocol):
    """What allocators of blocks ask of their options; see `PagedOptions`."""

    @property
    def block(self) -> int | None: ...
    @property
    def free_list(self) -> str: ...
    @property
    def watermark(self) -> float: ...
    @property
    def idle_watermark(self) -> bool: ...
    @property
    def null_block(self) -> bool: ...
    @property
    def cached_recompute(self) -> bool: ...
    @property
    def prefix_caching(self) -> bool: ...
    @property
    def shared_samples(self) -> bool | None: ...
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
    """Blocks from one free list."""

    options: BlockOptions

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: BlockOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self.block = Paging().block if options.block is None else options.block
        self._list = self._free_list()
        self._spared = int(options.watermark * self._list.blocks)
        self._spared_idle = self._spared * options.idle_watermark
        if options.null_block:
            self._list.take(np.zeros(1, np.int64))
        self._usable = self._list.free

    @property
    def transfer_block(self) -> int:
        return self.block

    @property
    def free_slots(self) -> int:
        return self._list.free * self.block

    @property
    def largest_hole(self) -> int:
        return max(self._list.free - self._kept_free, 0) * self.block

    @property
    def reach(self) -> int:
        return (self._usable - self._spared_idle) * self.block

    @property
    def fragmentation(self) -> float:
        return 0.0  # any free block serves any request; the watermark is no hole

    @property
    def _kept_free(self) -> int:
        """Blocks that admission leaves free now."""
        return self._spared if self.reserved_total else self._spared_idle

    def _free_list(self) -> FreeList:
        return free_list(self.options.free_list, self.layout.slots // self.block)

    def _units_of(self, blocks: IntArray, tokens: int, first: int) -> Units:
        """Units of the blocks from place `first` on, where so many tokens lie."""
        before = np.arange(first, first + len(blocks)) * self.block
        held = np.clip(tokens - before, 0, self.block)
        return Units(blocks * self.block, held, np.full(len(blocks), self.block, np.int64))


class Part(NamedTuple):
    """Blocks from `start` to `end` of a request that are kept under `key`."""

    key: tuple[str, int]
    start: int
    end: int


class SharingAllocator(BlockAllocator, Caches, Reports):
    """Allocators of blocks that requests find again and hold together, counted by reference."""

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: BlockOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self._caches: list[BlockCache] = []
        """The trees of full blocks, of each group of layers: by ("prefix", id); by ("prompt",
        parent), those that samples have in common; by ("session", id); by ("own", request), those
        of earlier residences."""
        self._state_caches: list[BlockCache] = []
        self._reused: dict[int, int] = {}
        """Blocks that a resident found at its admission."""
        self._others = np.zeros(self._list.blocks, np.int64)
        """Requests that hold a block, but for the first."""
        self._shares = False
        """Whether there ever was one."""
        self._leaving = -1
        """A request that is released for good."""
        self._demands: dict[int, Demand] = {}
        self._asked_tokens = self._hit_tokens = 0
        shares = options.shared_samples
        self._samples_share = options.prefix_caching if shares is None else shares
        self._behind = limits.lookahead.drafter
        """Tokens behind those stored that have slots too."""

    @property
    def loses_ends_first(self) -> bool:
        # freed tail first, together, handed out in order
        return self.options.free_list in ("fifo", "split")

    @property
    def discards(self) -> bool:
        return True

    def discard(self, request: int) -> int:
        session = self._demands[request].session
        held = self.release_known(request, 0)
        for cache in (*self._caches, *self._state_caches):
            cache.drop(("session", session))
        return held

    def release(self, request: int) -> int:
        return self.release_known(request, int(self.stored[request]))

    def ends(self, request: int) -> None:
        self._leaving = request

    def finished(self, request: int, prompt: int, output: int) -> None:
        for cache in (*self._caches, *self._state_caches):
            cache.drop(("own", request))
        self._demands.pop(request, None)
        self._leaving = -1

    def report(self) -> dict[str, Any]:
        """Prompt tokens of requests with a system prompt or in sessions, and those of them found in
        memory at their first admission; nothing where there were none."""
        asked, hit = float(self._asked_tokens), float(self._hit_tokens)
        return {"prefix_asked_tokens": asked, "prefix_hit_tokens": hit} if asked else {}

    def _room_behind(self, stored: int) -> int:
        """Tokens that have slots behind so many stored ones."""
        if not self._behind:
            return 0
        return max(min(self._behind, self.limits.max_model_len - stored), 0)

    def _admitted(self, request: int, demand: Demand, found: int) -> None:
        """A request is admitted that found so many blocks."""
        if (demand.prefix_id >= 0 or demand.session >= 0) and request not in self._demands:
            self._asked_tokens += demand.prompt
            self._hit_tokens += found * self.block
        self._demands[request] = demand
        if found:
            self._reused[request] = found

    def _keeps(self, demand: Demand) -> bool:
        """Whether what a request has stored is kept for itself or for later turns."""
        return self.options.cached_recompute or self._continues(demand)

    def _continues(self, demand: Demand) -> bool:
        """Whether later turns find what a request has stored."""
        return demand.session >= 0 and self.options.prefix_caching

    def _parts(self, request: int, demand: Demand | None, full: int) -> list[Part]:
        """The path through the tree of the first `full` blocks of a request. A block belongs to the
        part that its last token is of; the last part is what no other request that runs has."""
        parts: list[Part] = []
        if demand is not None and (self.options.prefix_caching or self._samples_share):
            ends = []
            if self.options.prefix_caching:
                ends += [(("prefix", key), tokens) for key, tokens in demand.above]
            if self.options.prefix_caching and demand.prefix_id >= 0:
                ends.append((("prefix", demand.prefix_id), demand.prefix_tokens))
            if demand.parent >= 0 and self._samples_share:
                ends.append((("prompt", demand.parent), demand.prompt))
            known = self.limits.lookahead.hit == "next_known"
            for key, tokens in ends:
                at = parts[-1].end if parts else 0
                tokens -= known  # the token behind a block is part of its name
                end = max(min(min(tokens, demand.prompt) // self.block, full), at)
                parts.append(Part(key, at, end))
        own = ("own", request)
        if demand is not None and self._continues(demand):
            own = ("session", demand.session)
        return [*parts, Part(own, parts[-1].end if parts else 0, full)]

    def _free(self, blocks: IntArray, hashed: int, first: bool = True) -> None:
        """Give up blocks, tail first as vLLM does; the first `hashed` can be found again. `first`:
        the others are handed out before them."""
        if self._shares and (shared := self._others[blocks] > 0).any():
            # these others keep
            self._others[blocks[shared]] -= 1
            self.reserved_total += int(shared.sum()) * self.block  # `_dismiss` takes all of it off
            hashed -= int(shared[:hashed].sum())
            blocks = blocks[~shared]
        self._list.push(blocks[::-1], (len(blocks) - hashed) * first)
