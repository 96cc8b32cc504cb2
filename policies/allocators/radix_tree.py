"""A radix tree of the texts that pages hold (Zheng et al. 2024; SGLang: `radix_cache.py`).

An edge holds a run of pages and is split at any page boundary. Nodes on the way to what a request
holds are locked; leaves without locks are evicted whole, the one found longest ago first. There are
no tokens here: a `Key` says whose text lies at each position.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from policies.allocators.allocator import Demand
from policies.requests.requests import IntArray

NO_END = 1 << 62
Key = tuple[tuple[Hashable, int], ...]
"""Owners of a text's parts, each other than the one before, and where these end, in tokens. Two
texts are alike up to the first position where their owners differ."""
NO_PAGES = np.zeros(0, np.int64)


def text_of(request: int, demand: Demand) -> Key:
    """Whose text a request is: of the prefixes that it begins with, of a prompt that samples have
    in common, of its session, or its own."""
    shared = [(("prefix", key), tokens) for key, tokens in demand.above]
    if demand.prefix_id >= 0:
        shared.append((("prefix", demand.prefix_id), demand.prefix_tokens))
    if demand.parent >= 0:
        shared.append((("prompt", demand.parent), demand.prompt))
    own = ("session", demand.session) if demand.session >= 0 else ("own", request)
    return (*((owner, min(end, demand.prompt)) for owner, end in shared), (own, NO_END))


def beginning(request: int, demand: Demand, tokens: int) -> Key:
    """Whose text the first tokens of a request are: the same where two begin alike."""
    return _part(text_of(request, demand), 0, tokens)


@dataclass(eq=False, slots=True)
class RadixNode:
    """Pages `start` and following of the text `key`; `access`: when it was asked for last, 0: never
    yet."""

    key: Key
    start: int
    pages: IntArray
    parent: RadixNode | None
    access: int = 0
    locks: int = 0
    children: dict[Key, RadixNode] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.pages)


class RadixTree:
    """`page`: tokens in a page."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.root = RadixNode((), 0, NO_PAGES, None)
        self._now = 0
        self._made = 0
        self._leaves: list[tuple[int, int, RadixNode]] = []
        """A heap of leaves by access; entries whose node has changed since are skipped."""

    def find(self, key: Key, end: int, below: RadixNode | None = None) -> IntArray:
        """Pages that hold the text up to page `end`, as far as there are any: from the beginning,
        or behind the node `below`, which holds what comes before."""
        pages = [node.pages[:count] for node, count in self._walk(below or self.root, key, end)]
        return np.concatenate(pages) if pages else NO_PAGES

    def descend(self, key: Key, end: int, below: RadixNode | None = None) -> list[RadixNode]:
        """As `find`, the nodes that hold just these pages; the last one is split where needed."""
        path = []
        for node, count in self._walk(below or self.root, key, end):
            path.append(node if count == len(node.pages) else self._split(node, count))
        return path

    def add(self, parent: RadixNode, key: Key, pages: IntArray, locks: int = 0) -> RadixNode:
        """A leaf with the pages of the text that follow those of `parent`."""
        node = RadixNode(key, parent.end, pages.copy(), parent, locks=locks)
        parent.children[self._first(key, node.start)] = node
        self._offer(node)
        return node

    def lock(self, path: list[RadixNode]) -> IntArray:
        """Keep these nodes from eviction; the pages that no lock held before."""
        fresh = [node.pages for node in path if not node.locks]
        for node in path:
            node.locks += 1
        return np.concatenate(fresh) if fresh else NO_PAGES

    def unlock(self, node: RadixNode) -> IntArray:
        """Take back a lock of the way to `node`; the pages that no lock holds any more."""
        freed = []
        while node.parent is not None:
            node.locks -= 1
            if not node.locks:
                freed.append(node.pages)
                self._offer(node)
            node = node.parent
        return np.concatenate(freed[::-1]) if freed else NO_PAGES

    def touch(self, node: RadixNode) -> None:
        """The text up to this node is asked for now."""
        self._now += 1
        last: RadixNode | None = node
        while last is not None:
            last.access = self._now
            last = last.parent
        self._offer(node)

    def evict(self) -> IntArray:
        """Drop the leaf without locks that was asked for longest ago; its pages. There must be
        one."""
        access, node = -1, self.root
        while access != node.access or not self._evictable(node):
            access, _, node = heapq.heappop(self._leaves)
        parent = node.parent
        assert parent is not None
        del parent.children[self._first(node.key, node.start)]
        node.parent = None
        self._offer(parent)
        return node.pages

    def _walk(self, node: RadixNode, key: Key, end: int) -> Iterator[tuple[RadixNode, int]]:
        """Nodes below `node` on the way of the text, and how many pages of each agree with it."""
        while node.end < end:
            child = node.children.get(self._first(key, node.end))
            if child is None:
                return
            last = min(child.end, end)
            alike = (
                common_end(child.key, key, child.start * self.page, last * self.page) // self.page
            )
            count, whole = alike - child.start, child.end
            yield child, count
            if alike < whole:
                return
            node = child

    def _split(self, node: RadixNode, count: int) -> RadixNode:
        """The first `count` pages of a node become its parent, which is returned."""
        self._now += 1
        node.access = self._now
        parent, now = node.parent, self._now
        assert parent is not None
        upper = RadixNode(node.key, node.start, node.pages[:count], parent, now, node.locks)
        parent.children[self._first(node.key, node.start)] = upper
        node.start, node.pages, node.parent = upper.end, node.pages[count:], upper
        upper.children[self._first(node.key, node.start)] = node
        self._offer(node)
        return upper

    def _first(self, key: Key, page: int) -> Key:
        """What tells the text of a page from those of its siblings."""
        return _part(key, page * self.page, (page + 1) * self.page)

    def _evictable(self, node: RadixNode) -> bool:
        return node.parent is not None and not node.locks and not node.children

    def _offer(self, node: RadixNode) -> None:
        """The node may be evicted, if it is a leaf without locks."""
        if self._evictable(node):
            self._made += 1
            heapq.heappush(self._leaves, (node.access, self._made, node))


def _part(key: Key, start: int, end: int) -> Key:
    """The key of what lies from `start` to `end`."""
    before = bisect_right(key, start, key=itemgetter(1))
    last = bisect_left(key, end, key=itemgetter(1))
    return (*key[before:last], (key[last][0], end))


def common_end(one: Key, other: Key, start: int, end: int) -> int:
    """The first position from `start` to `end` where the owners differ, else `end`."""
    for mine, its in zip(_part(one, start, end), _part(other, start, end), strict=False):
        if mine[0] == its[0]:
            start = min(mine[1], its[1])
        if mine != its:
            break
    return start
