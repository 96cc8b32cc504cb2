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

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hwmodel.specs.kv_order import LAYOUTS
from policies.allocators.allocator import (
    Allocator,
    Capability,
    Demand,
    Limits,
    PolicyOptions,
)
from policies.allocators.block_allocator import BlockAllocator, refuse_prefixes
from policies.allocators.block_moves import BlockMoves
from policies.allocators.capabilities import Batches, Forks
from policies.allocators.declaration import CHOICES, Range, References
from policies.allocators.free_lists.free_list import FreeList
from policies.allocators.free_lists.free_list_registry import free_list
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.kv_managers import WindowRules
from policies.allocators.losses import GROWING
from policies.allocators.radix_tree import NO_PAGES, RadixNode, RadixTree, text_of
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


class RadixAllocator(BlockAllocator, Batches):
    """`_nodes[request]`: the node up to which a resident locks the tree."""

    Options = RadixOptions
    reading = (
        "pages of one token from a queue, and a radix tree with eviction of leaves by last access "
        "(SGLang; Zheng et al. 2024), under the engine's scheduler"
    )
    losses = GROWING
    searched = {"page": Range(1, 256), "free_list": CHOICES, "prefix_caching": CHOICES}
    references = References(("static", "paged"), ceilings=("ideal",))
    options: RadixOptions

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: RadixOptions
    ) -> None:
        self._tree = RadixTree(options.page)
        super().__init__(layout, requests, limits, options)
        assert isinstance(self.pool.order, _Pages)
        self._order = self.pool.order
        self.block_moves = _FewMoves(self)
        self._nodes: dict[int, RadixNode] = {}
        self._left: dict[int, RadixNode] = {}
        """The leaf of what a request has left in the tree, until it has ended."""
        self._promised: list[tuple[int, int, int]] = []
        """Prefills whose pages are not chosen yet: request, tokens it had stored, tokens more."""
        self._decoding: IntArray = NO_PAGES
        """Requests that decode a token whose pages are not chosen yet."""
        self._pages = self._extents = self._alone = 0
        """Full pages of the prompts of requests that have left, the runs of neighbouring pages
        among them, and the runs of one page."""

    def _free_list(self) -> FreeList:
        kind, pages = self.options.free_list, self.layout.slots // self.block
        if kind == "by_page":
            kind = "queue" if self.block == 1 else "stack"
        return _Pages(free_list(LISTS[kind], pages), self._tree)

    @property
    def loses_ends_first(self) -> bool:
        return False  # a leaf is lost whole

    @property
    def discards(self) -> bool:
        return False  # the tree keeps what a prefill stored

    def able(self, capability: type[Capability]) -> Capability | None:
        """See `Allocator.able`; nodes of the tree are not forked."""
        return None if capability is Forks else super().able(capability)

    def grow(self, request: int, tokens: int) -> bool:
        self.require(request)
        demand, before = self.demands[request], int(self.stored[request])
        if before >= demand.prompt + demand.generated:
            self.settle_step()
            return super().grow(request, tokens)
        slots = self.places(before + tokens) * self.block - int(self.reserved[request])
        if slots > self.free_slots:
            return False
        self._order.promise(slots // self.block)
        self.reserved[request] += slots
        self.stored[request] += tokens
        self._promised.append((request, before, tokens))
        return True

    def forget(self) -> None:
        self._order.prepare(self._order.blocks)

    def settle_step(self) -> None:
        self._settle_decodes()
        promised, self._promised = self._promised, []
        if promised:
            self._settle_prefills(promised)

    def _settle_decodes(self) -> None:
        requests, self._decoding = self._decoding, NO_PAGES
        if len(requests):
            rows = self.rows(requests)
            self._order.promise(-self.tables.wanted(rows, 1)[0])
            self._order.prepare(len(rows))
            super().advance(requests, 1)

    def _settle_prefills(self, promised: list[tuple[int, int, int]]) -> None:
        rows = self.row[[request for request, _, _ in promised]]
        ends = np.array([before + tokens for _, before, tokens in promised])
        wanted = -(-ends // self.block) - self.tables.count[rows]
        self._order.promise(-int(wanted.sum()))
        self._order.prepare_prefills(sum(tokens for _, _, tokens in promised), len(promised))
        for row, end, pages in zip(rows.tolist(), ends, wanted.tolist(), strict=True):
            self.tables.append(row, self.pool.take(pages))
            self.tables.tokens[row] = end
        for request, before, _ in promised:
            self._publish(request, self.demands[request], before)

    def ask(self, request: int, limit: int, demand: Demand) -> tuple[int, int]:
        found = self.find(request, limit, demand)[0]
        if len(found):
            self._tree.touch(self._tree.descend(text_of(request, demand), len(found))[-1])
        free = int(self.pool.is_free(found).sum())
        return len(found) * self.block, free * self.block

    def make_room(self, slots: int) -> None:
        self._order.prepare(-(-slots // self.block))

    def release_together(self, begins: bool) -> None:
        self.settle_step()
        self._order.group(begins)

    def headroom(self, requests: IntArray, limit: int) -> int:
        self.settle_step()
        return super().headroom(requests, limit)

    def growing(self, requests: IntArray) -> int:
        return Allocator.growing(self, requests)  # free pages include those of the tree

    def refuses(self, request: int, demand: Demand, tokens: int) -> bool:
        return False  # the tree gives pages up for it

    def advance_later(self, requests: IntArray) -> None:
        self.settle_step()
        self._order.promise(self.tables.wanted(self.rows(requests), 1)[0])
        self._decoding = requests

    def advance(self, requests: IntArray, rounds: int) -> None:
        self.settle_step()
        rows = self.rows(requests)
        if self._order.ample(self.tables.wanted(rows, rounds)[0], len(rows)):
            super().advance(requests, rounds)
            return
        for _ in range(rounds):
            self._order.prepare(len(rows))
            super().advance(requests, 1)

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        """See `Drafts.store_ahead`. Pages of rejected drafts stay with their request, as those that
        SGLang allocates ahead (`kv_allocated_len`)."""
        self.settle_step()
        return super().store_ahead(requests, kept, beyond, unseen)

    def units(self, request: int) -> Units:
        self.settle_step()
        return super().units(request)

    def extent_count(self, requests: IntArray) -> int:
        self.settle_step()
        return super().extent_count(requests)

    def release_known(self, request: int, tokens: int) -> int:
        self.require(request)
        if self._promised or (self._decoding == request).any():
            self.settle_step()
        demand, node = self.demands[request], self._nodes.pop(request, self._tree.root)
        row = int(self.row[request])
        known = int(self.tables.tokens[row]) - int(self.stored[request]) + tokens
        full = known // self.block if self.options.prefix_caching else 0
        held, key = self.tables.blocks(row), text_of(request, demand)
        last = [node, *self._tree.descend(key, full, node)][-1]
        there = held[node.end : last.end]
        if full > last.end:
            self._order.leave(held[last.end : full])
            last = self._tree.add(last, key, held[last.end : full])
        self._left[request] = last
        self._order.push(np.concatenate((there, held[last.end :])))
        self._count_extents(held[: demand.prompt // self.block])
        self.tables.remove(row)
        self.state_blocks.leave(request)
        self._order.leave(self._tree.unlock(node))
        self._set_row(request, -1)
        return self._dismiss(request)

    def finished(self, request: int, prompt: int, output: int) -> None:
        super().finished(request, prompt, output)
        if (node := self._left.pop(request, None)) is not None:
            self._tree.touch(node)

    def report(self) -> dict[str, Any]:
        """As `BlockAllocator.report`; of the prompts of all requests (full pages) the mean extent
        in tokens, and the share of the pages that are an extent each."""
        if not self._pages:
            return super().report()
        return super().report() | {
            "prompt_extent_tokens": self.block * self._pages / self._extents,
            "prompt_single_page_share": self._alone / self._pages,
        }

    def _count_extents(self, pages: IntArray) -> None:
        begins = np.flatnonzero(np.diff(pages, prepend=-2) != 1)
        self._pages += len(pages)
        self._extents += len(begins)
        self._alone += int((np.diff(begins, append=len(pages)) == 1).sum())

    def find(self, request: int, limit: int, demand: Demand | None) -> IntArray:
        demand = demand or self.demands.get(request)
        if demand is None:
            return NO_PAGES[np.newaxis]
        self._settle_decodes()  # before what is found is locked
        return self._tree.find(text_of(request, demand), limit // self.block)[np.newaxis]

    def hold(self, request: int, found: IntArray) -> None:
        key, cached = text_of(request, self.demands[request]), found[0]
        self._lock(request, self._tree.descend(key, len(cached)))
        row = int(self.row[request])
        self.tables.append(row, cached)
        self.tables.tokens[row] = self.stored[request] = len(cached) * self.block
        self.reserved[request] = len(cached) * self.block

    def _publish(self, request: int, demand: Demand, before: int) -> None:
        """Put what was prefilled behind the first `before` tokens into the tree."""
        prefill = demand.prompt + demand.generated
        if before >= prefill or not self.options.prefix_caching:
            return
        row, node = int(self.row[request]), self._nodes.get(request, self._tree.root)
        held = self.tables.blocks(row)
        full = min(int(self.tables.tokens[row]), prefill) // self.block
        key = text_of(request, demand)
        known = self._tree.find(key, full, node)
        if len(known):
            own = held[node.end : node.end + len(known)].copy()
            self.tables.replace(row, node.end, known)
            self._lock(request, self._tree.descend(key, full, node))
            self._order.push(own)
            node = self._nodes[request]
        if full > node.end:
            node = self._tree.add(node, key, held[node.end : full], locks=1)
            self._nodes[request] = node
        self._tree.touch(node)

    def _lock(self, request: int, path: list[RadixNode]) -> None:
        """The request holds these nodes, too."""
        fresh = self._tree.lock(path)
        self._order.take(fresh)
        self._nodes[request] = path[-1]
        self._tree.touch(path[-1])


class _FewMoves(BlockMoves):
    """Pages of the tree stay where they are."""

    lies_apart = False

    def adopt(self, request: int, demand: Demand, blocks: IntArray, tokens: int) -> bool:
        return False  # the tree has no place for them

    def bar(self, blocks: IntArray) -> int | None:
        return None if len(blocks) else 0


class _Pages(FreeList):
    """A free list, and behind it the pages of the tree that no request holds: `free` counts both.
    A page that is free is in one of them."""

    def __init__(self, pages: FreeList, tree: RadixTree) -> None:
        super().__init__(pages.blocks)
        self._pages, self._tree = pages, tree
        self._held = np.zeros(pages.blocks, np.bool_)
        self._group: list[IntArray] | None = None
        self._promised = 0

    def promise(self, pages: int) -> None:
        """So many pages are spoken for, though not chosen yet; below 0: they are chosen now."""
        self.free -= pages
        self._promised += pages

    def ample(self, pages: int, requests: int) -> bool:
        """Whether so many pages that decode steps of so many requests take are the same together
        and step by step."""
        return self._pages.same_in_steps(pages + requests)

    def prepare(self, pages: int, at_hand: int = 0) -> None:
        """A step is about to take up to so many pages. `at_hand`: for how many none is sorted."""
        while self._pages.free < min(pages, self.free + self._promised):
            evicted = self._tree.evict()
            self._pages.push(evicted, len(evicted))
        self._pages.prepare(at_hand or pages)

    def prepare_prefills(self, tokens: int, requests: int) -> None:
        """Prefills of so many tokens together are about to take pages."""
        if (page := self._tree.page) == 1:
            self.prepare(tokens)
        else:
            self.prepare(-(-tokens // page) + requests, tokens // page + requests + 1)

    def pop(self, count: int) -> IntArray:
        self.prepare(count)
        pages = self._pages.pop(count)
        self.take(pages)
        return pages

    def push(self, blocks: IntArray, unhashed: int = 0) -> None:
        """Free these pages, whose content nothing can find."""
        if self._group is None:
            self._pages.push(blocks, len(blocks))
        else:
            self._group.append(blocks)
        self.leave(blocks)

    def group(self, begins: bool) -> None:
        """What is pushed from here on, up to the call with False, is pushed at once."""
        group, self._group = self._group, [] if begins else None
        if group:
            pages = np.concatenate(group)
            self._pages.push(pages, len(pages))

    def leave(self, blocks: IntArray) -> int:
        """These pages of the tree are held no more; how many."""
        self._held[blocks] = False
        self.free += len(blocks)
        return len(blocks)

    def take(self, blocks: IntArray) -> None:
        self._held[blocks] = True
        self.free -= len(blocks)

    def is_free(self, blocks: IntArray) -> NDArray[np.bool_]:
        return ~self._held[blocks]
