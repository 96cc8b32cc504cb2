"""SGLang's allocator: a pool of pages of one token, and a radix tree of the texts they hold (Zheng
et al. 2024; `mem_cache/allocator/token.py`, `paged.py`, `radix_cache.py`, `common.py` of 2026).

A request finds the longest prefix in the tree, page by page, and locks it. What its prefill stores
goes into the tree, what it has generated when it ends; of pages whose text is there already its own
are freed; of requests that end in one step those are one group. Free pages come from the head of
the free list, of a decode step one for each request in turn, of the prefills of a step for one
after another, once all of them have locked what they found. Before a step takes pages, leaves
without locks are evicted whole, by last access, and freed in token order, until as many pages are
free as it has tokens; with larger pages as its prefills have, and one more for each request.

A request that is preempted (SGLang: retracted) frees what it generated, under v0 and v1 as the
first leaf to be evicted. What a step computes is found from the next step on. Assumed: waiting
requests do not refresh what they would find, but under engine `sglang`, which has SGLang's
scheduler.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from hwmodel.specs.kv_order import LAYOUTS
from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.block_allocator import BlockAllocator, refuse_prefixes
from policies.allocators.block_parts import BlockCopies, BlockSwaps
from policies.allocators.declaration import CHOICES, Range, References
from policies.allocators.free_lists.free_list import FreeList
from policies.allocators.free_lists.free_list_registry import free_list
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.kv_managers import WindowRules
from policies.allocators.losses import GROWING
from policies.allocators.radix_pages import RadixPages
from policies.allocators.radix_parts import FewMoves, RadixCaching, RadixDrafts, RadixSteps
from policies.allocators.radix_tree import RadixTree
from policies.allocators.state_blocks import StateBlocks
from policies.requests.requests import IntArray

LISTS = {"queue": "fifo", "stack": "split", "staged": "staged"}
"""SGLang's lists by the names they have here."""


class RadixOptions(PolicyOptions):
    """Options of `radix`; the defaults are SGLang's."""

    name: Literal["radix"] = "radix"
    page: Annotated[int, Field(ge=1, le=256)] = 1
    """Tokens in a page (`page_size`); some attention kernels need 16 to 128."""
    free_list: Literal["by_page", "queue", "stack", "staged"] = "by_page"
    """Where freed pages go: to the tail (`queue`: SGLang with pages of one token), to the head
    (`stack`: with larger ones, the pages freed together in token order), or aside until the rest is
    too little for a step, and then all are sorted (`staged`: `need_sort`, with prefill and decode
    disaggregated)."""
    prefix_caching: bool = True
    """False: no tree; pages are free when their request leaves (`disable_radix_cache`)."""
    watermark: ClassVar[float] = 0.0
    idle_watermark: ClassVar[bool] = True
    null_block: ClassVar[bool] = False
    cached_recompute: ClassVar[bool] = True
    shared_samples: ClassVar[bool | None] = None
    window_rules: ClassVar[WindowRules] = "0.33"
    free_list_window: ClassVar[float | None] = None
    kv_layout = LAYOUTS["layer_kv_token"]  # `MHATokenToKVPool`

    @property
    def block(self) -> int:
        """As in `BlockOptions`: SGLang's blocks are its pages."""
        return self.page

    def beside_states(self, model: str, block: int | None) -> RadixOptions:
        refuse_prefixes(self, model)
        return self.model_copy(update={"prefix_caching": False})


class RadixAllocator(BlockAllocator):
    """`tree`: what others find; `pages`: the free list, and the pages of the tree behind it."""

    Options = RadixOptions
    reading = (
        "pages of one token from a queue, and a radix tree with eviction of leaves by last access "
        "(SGLang; Zheng et al. 2024), under the engine's scheduler"
    )
    losses = GROWING
    searched = {"page": Range(1, 256), "free_list": CHOICES, "prefix_caching": CHOICES}
    references = References(("static", "paged"), ceilings=("ideal",))
    members = (
        RadixCaching, BlockSwaps, BlockCopies, StateBlocks, RadixDrafts, RadixSteps, FewMoves,
    )  # fmt: skip
    options: RadixOptions
    caching: RadixCaching

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: RadixOptions
    ) -> None:
        self.tree = RadixTree(options.page)
        super().__init__(layout, requests, limits, options)

    def _free_list(self) -> FreeList:
        kind, pages = self.options.free_list, self.layout.slots // self.block
        if kind == "by_page":
            kind = "queue" if self.block == 1 else "stack"
        self.pages = RadixPages(free_list(LISTS[kind], pages), self.tree)
        return self.pages

    def _caching(self) -> RadixCaching:
        return RadixCaching(self)

    def _further(self) -> tuple[object, ...]:
        self.store_blocks = super().advance
        self.steps = RadixSteps(self)
        return RadixDrafts(self), self.steps, FewMoves(self)

    def grow(self, request: int, tokens: int) -> bool:
        self.require(request)
        demand, before = self.demands[request], int(self.stored[request])
        if before >= demand.prompt + demand.generated:
            self.steps.settle_step()
            return super().grow(request, tokens)
        slots = self.holdings.places(before + tokens) * self.block - int(self.reserved[request])
        if slots > self.free_slots:
            return False
        self.reserved[request] += slots
        self.stored[request] += tokens
        self.steps.promise(request, before, tokens, slots // self.block)
        return True

    def headroom(self, requests: IntArray, limit: int) -> int:
        self.steps.settle_step()
        return super().headroom(requests, limit)

    def growing(self, requests: IntArray) -> int:
        return Allocator.growing(self, requests)  # free pages include those of the tree

    def refuses(self, request: int, demand: Demand, tokens: int) -> bool:
        return False  # the tree gives pages up for it

    def advance(self, requests: IntArray, rounds: int) -> None:
        self.steps.settle_step()
        rows = self.holdings.rows(requests)
        if self.pages.ample(self.tables.wanted(rows, rounds)[0], len(rows)):
            super().advance(requests, rounds)
            return
        for _ in range(rounds):
            self.pages.prepare(len(rows))
            super().advance(requests, 1)

    def units(self, request: int) -> Units:
        self.steps.settle_step()
        return super().units(request)

    def extent_count(self, requests: IntArray) -> int:
        self.steps.settle_step()
        return super().extent_count(requests)
