"""What SGLang's allocator has in place of vLLM's parts (`radix.py`): a tree of the texts that pages
hold, and pages that are chosen when a step is known."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from policies.allocators.allocator import Demand
from policies.allocators.block_caching import BlockCaching
from policies.allocators.block_holder import BlockHolder
from policies.allocators.block_moves import BlockMoves
from policies.allocators.block_parts import BlockDrafts
from policies.allocators.capabilities import Batches
from policies.allocators.radix_pages import RadixPages
from policies.allocators.radix_tree import NO_PAGES, RadixNode, RadixTree, text_of
from policies.requests.requests import IntArray


class PageHolder(BlockHolder, Protocol):
    """What these parts may ask of the allocator, further."""

    tree: RadixTree
    pages: RadixPages
    steps: RadixSteps
    store_blocks: Any
    """`advance` as of blocks, where pages are at hand."""


class RadixCaching(BlockCaching):
    """What requests have stored stands in the tree. `_nodes[request]`: the node up to which a
    resident locks it."""

    _of: PageHolder

    def __init__(self, blocks: PageHolder) -> None:
        super().__init__(blocks)
        self._tree, self._pages = blocks.tree, blocks.pages
        self._nodes: dict[int, RadixNode] = {}
        self._left: dict[int, RadixNode] = {}
        """The leaf of what a request has left in the tree, until it has ended."""
        self._counted = self._extents = self._alone = 0
        """Full pages of the prompts of requests that have left, the runs of neighbouring pages
        among them, and the runs of one page."""

    @property
    def loses_ends_first(self) -> bool:
        return False  # a leaf is lost whole

    @property
    def discards(self) -> bool:
        return False  # the tree keeps what a prefill stored

    def find(self, request: int, limit: int, demand: Demand | None) -> IntArray:
        demand = demand or self._of.demands.get(request)
        if demand is None:
            return NO_PAGES[np.newaxis]
        self._of.steps.settle_decodes()  # before what is found is locked
        return self._tree.find(text_of(request, demand), limit // self._of.block)[np.newaxis]

    def ask(self, request: int, limit: int, demand: Demand) -> tuple[int, int]:
        found = self.find(request, limit, demand)[0]
        if len(found):
            self._tree.touch(self._tree.descend(text_of(request, demand), len(found))[-1])
        free = int(self._of.pool.is_free(found).sum())
        return len(found) * self._of.block, free * self._of.block

    def hold(self, request: int, hits: IntArray) -> None:
        of = self._of
        key, cached = text_of(request, of.demands[request]), hits[0]
        self._lock(request, self._tree.descend(key, len(cached)))
        row = int(of.row[request])
        of.tables.append(row, cached)
        of.tables.tokens[row] = of.stored[request] = len(cached) * of.block
        of.reserved[request] = len(cached) * of.block

    def stored(self, request: int, demand: Demand, before: int, stored: int) -> None:
        """Put what was prefilled behind the first `before` tokens into the tree."""
        of, prefill = self._of, demand.prompt + demand.generated
        if before >= prefill or not of.options.prefix_caching:
            return
        row, node = int(of.row[request]), self._nodes.get(request, self._tree.root)
        held = of.tables.blocks(row)
        full = min(int(of.tables.tokens[row]), prefill) // of.block
        key = text_of(request, demand)
        known = self._tree.find(key, full, node)
        if len(known):
            own = held[node.end : node.end + len(known)].copy()
            of.tables.replace(row, node.end, known)
            self._lock(request, self._tree.descend(key, full, node))
            self._pages.push(own)
            node = self._nodes[request]
        if full > node.end:
            node = self._tree.add(node, key, held[node.end : full], locks=1)
            self._nodes[request] = node
        self._tree.touch(node)

    def release_known(self, request: int, tokens: int) -> int:
        of = self._of
        of.require(request)
        of.steps.settle_for(request)
        demand, node = of.demands[request], self._nodes.pop(request, self._tree.root)
        row = int(of.row[request])
        known = int(of.tables.tokens[row]) - int(of.stored[request]) + tokens
        full = known // of.block if of.options.prefix_caching else 0
        held, key = of.tables.blocks(row), text_of(request, demand)
        last = [node, *self._tree.descend(key, full, node)][-1]
        there = held[node.end : last.end]
        if full > last.end:
            self._pages.leave(held[last.end : full])
            last = self._tree.add(last, key, held[last.end : full])
        self._left[request] = last
        self._pages.push(np.concatenate((there, held[last.end :])))
        self._count_extents(held[: demand.prompt // of.block])
        of.state_blocks.leave(request)
        self._pages.leave(self._tree.unlock(node))
        return of.dismiss(request)

    def finished(self, request: int, prompt: int, output: int) -> None:
        super().finished(request, prompt, output)
        if (node := self._left.pop(request, None)) is not None:
            self._tree.touch(node)

    def forget(self) -> None:
        self._pages.prepare(self._pages.blocks)

    def report(self) -> dict[str, Any]:
        """As of blocks; of the prompts of all requests (full pages) the mean extent in tokens, and
        the share of the pages that are an extent each."""
        if not self._counted:
            return super().report()
        return super().report() | {
            "prompt_extent_tokens": self._of.block * self._counted / self._extents,
            "prompt_single_page_share": self._alone / self._counted,
        }

    def _count_extents(self, pages: IntArray) -> None:
        begins = np.flatnonzero(np.diff(pages, prepend=-2) != 1)
        self._counted += len(pages)
        self._extents += len(begins)
        self._alone += int((np.diff(begins, append=len(pages)) == 1).sum())

    def _lock(self, request: int, path: list[RadixNode]) -> None:
        """The request holds these nodes, too."""
        fresh = self._tree.lock(path)
        self._pages.take(fresh)
        self._nodes[request] = path[-1]
        self._tree.touch(path[-1])


class RadixSteps(Batches):
    """Pages of a step are promised one by one, and chosen together."""

    def __init__(self, pages: PageHolder) -> None:
        self._of, self._pages = pages, pages.pages
        self._promised: list[tuple[int, int, int]] = []
        """Prefills whose pages are not chosen yet: request, tokens it had stored, tokens more."""
        self._decoding: IntArray = NO_PAGES
        """Requests that decode a token whose pages are not chosen yet."""

    def promise(self, request: int, before: int, tokens: int, pages: int) -> None:
        """A prefill stores so many tokens more, which take so many pages."""
        self._pages.promise(pages)
        self._promised.append((request, before, tokens))

    def advance_later(self, requests: IntArray) -> None:
        self.settle_step()
        wanted = self._of.tables.wanted(self._of.holdings.rows(requests), 1)[0]
        self._pages.promise(wanted)
        self._decoding = requests

    def settle_step(self) -> None:
        self.settle_decodes()
        promised, self._promised = self._promised, []
        if promised:
            self._settle_prefills(promised)

    def settle_for(self, request: int) -> None:
        """A request is about to leave."""
        if self._promised or (self._decoding == request).any():
            self.settle_step()

    def make_room(self, slots: int) -> None:
        self._pages.prepare(-(-slots // self._of.block))

    def release_together(self, begins: bool) -> None:
        self.settle_step()
        self._pages.group(begins)

    def settle_decodes(self) -> None:
        """Choose those of decodes."""
        requests, self._decoding = self._decoding, NO_PAGES
        if len(requests):
            rows = self._of.holdings.rows(requests)
            self._pages.promise(-self._of.tables.wanted(rows, 1)[0])
            self._pages.prepare(len(rows))
            self._of.store_blocks(requests, 1)

    def _settle_prefills(self, promised: list[tuple[int, int, int]]) -> None:
        of = self._of
        rows = of.row[[request for request, _, _ in promised]]
        ends = np.array([before + tokens for _, before, tokens in promised])
        wanted = -(-ends // of.block) - of.tables.count[rows]
        self._pages.promise(-int(wanted.sum()))
        self._pages.prepare_prefills(sum(tokens for _, _, tokens in promised), len(promised))
        for row, end, pages in zip(rows.tolist(), ends, wanted.tolist(), strict=True):
            of.tables.append(row, of.pool.take(pages))
            of.tables.tokens[row] = end
        for request, before, tokens in promised:
            of.caching.stored(request, of.demands[request], before, before + tokens)


class RadixDrafts(BlockDrafts):
    """Pages of rejected drafts stay with their request, as those that SGLang allocates ahead
    (`kv_allocated_len`)."""

    _of: PageHolder

    def __init__(self, blocks: PageHolder) -> None:
        super().__init__(blocks)

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        self._of.steps.settle_step()
        return super().store_ahead(requests, kept, beyond, unseen)


class FewMoves(BlockMoves):
    """Pages of the tree stay where they are."""

    lies_apart = False

    def adopt(self, request: int, demand: Demand, blocks: IntArray, tokens: int) -> bool:
        return False  # the tree has no place for them

    def bar(self, blocks: IntArray) -> int | None:
        return None if len(blocks) else 0
