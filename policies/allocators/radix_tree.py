"""A radix tree of the texts that pages hold (Zheng et al. 2024; SGLang: `radix_cache.py`).

An edge holds a run of pages and is split at any page boundary. Nodes on the way to what a request
holds are locked; leaves without locks are evicted whole, by last access or by age. There are no
tokens here: a `Key` says whose text lies at each position.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from policies.requests.requests import IntArray

Key = tuple[tuple[Hashable, int], ...]
"""Owners of a text's parts and where these end, in tokens, ascending. Two texts are alike up to the
first position where their owners differ."""
Eviction = Literal["lru", "fifo"]
NO_PAGES = np.zeros(0, np.int64)


@dataclass(eq=False, slots=True)
class Node:
    """Pages `start` and following of the text `key`; `access`, `born`: when it was last found and
    when it was made, 0 for a text that nothing has asked for yet."""

    key: Key
    start: int
    pages: IntArray
    parent: Node | None
    access: int = 0
    born: int = 0
    locks: int = 0
    children: dict[Key, Node] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + len(self.pages)


ORDERS: dict[str, Callable[[Node], int]] = {
    "lru": lambda node: node.access, "fifo": lambda node: node.born
}  # fmt: skip


class RadixTree:
    """`page`: tokens in a page."""

    def __init__(self, page: int, eviction: Eviction) -> None:
        self.page = page
        self.root = Node((), 0, NO_PAGES, None)
        self._order = ORDERS[eviction]
        self._now = 0
        self._made = 0
        self._leaves: list[tuple[int, int, Node]] = []
        """A heap of leaves by order; entries whose node has changed since are skipped."""

    def find(self, key: Key, end: int, below: Node | None = None) -> IntArray:
        """Pages that hold the text up to page `end`, as far as there are any: from the beginning,
        or behind the node `below`, which holds what comes before."""
        found = [node.pages[:count] for node, count in self._walk(below or self.root, key, end)]
        return np.concatenate(found) if found else NO_PAGES

    def descend(self, key: Key, end: int, below: Node | None = None) -> list[Node]:
        """As `find`, the nodes that hold just these pages; the last one is split where needed."""
        path = []
        for node, count in self._walk(below or self.root, key, end):
            path.append(node if count == len(node.pages) else self._split(node, count))
        return path

    def add(self, parent: Node, key: Key, pages: IntArray, locks: int = 0) -> Node:
        """A leaf with the pages of the text that follow those of `parent`."""
        node = Node(key, parent.end, pages.copy(), parent, locks=locks)
        parent.children[self._first(key, node.start)] = node
        self._offer(node)
        return node

    def lock(self, path: list[Node]) -> IntArray:
        """Keep these nodes from eviction; the pages that no lock held before."""
        fresh = [node.pages for node in path if not node.locks]
        for node in path:
            node.locks += 1
        return np.concatenate(fresh) if fresh else NO_PAGES

    def unlock(self, node: Node) -> IntArray:
        """Take back a lock of the way to `node`; the pages that no lock holds any more."""
        freed = []
        while node.parent is not None:
            node.locks -= 1
            if not node.locks:
                freed.append(node.pages)
                self._offer(node)
            node = node.parent
        return np.concatenate(freed[::-1]) if freed else NO_PAGES

    def touch(self, node: Node) -> None:
        """The text up to this node is asked for now."""
        self._now += 1
        last: Node | None = node
        while last is not None:
            last.access = self._now
            last.born = last.born or self._now
            last = last.parent
        self._offer(node)

    def evict(self) -> IntArray:
        """Drop the first leaf in order that is not locked; its pages. There must be one."""
        while True:
            order, _, node = heapq.heappop(self._leaves)
            if order == self._order(node) and self._evictable(node):
                break
        parent = node.parent
        assert parent is not None
        del parent.children[self._first(node.key, node.start)]
        node.parent = None
        self._offer(parent)
        return node.pages

    def _walk(self, node: Node, key: Key, end: int) -> Iterator[tuple[Node, int]]:
        """Nodes below `node` on the way of the text, and how many pages of each agree with it."""
        while node.end < end:
            child = node.children.get(self._first(key, node.end))
            if child is None:
                return
            last = min(child.end, end)
            alike = _alike(child.key, key, child.start * self.page, last * self.page) // self.page
            count, whole = alike - child.start, child.end
            yield child, count
            if alike < whole:
                return
            node = child

    def _split(self, node: Node, count: int) -> Node:
        """The first `count` pages of a node become its parent, which is returned."""
        self._now += 1
        node.access = self._now
        upper = Node(
            node.key,
            node.start,
            node.pages[:count],
            node.parent,
            node.access,
            self._now,
            node.locks,
        )
        assert node.parent is not None
        node.parent.children[self._first(node.key, node.start)] = upper
        node.start, node.pages, node.parent = upper.end, node.pages[count:], upper
        upper.children[self._first(node.key, node.start)] = node
        self._offer(node)
        return upper

    def _first(self, key: Key, page: int) -> Key:
        """What tells the text of a page from those of its siblings."""
        start, end = page * self.page, (page + 1) * self.page
        found: list[tuple[Hashable, int]] = []
        for owner, last in key:
            if last > start:
                found.append((owner, min(last, end)))
                if last >= end:
                    break
        return tuple(found)

    def _evictable(self, node: Node) -> bool:
        return node.parent is not None and not node.locks and not node.children

    def _offer(self, node: Node) -> None:
        """The node may be evicted, if it is a leaf without locks."""
        if self._evictable(node):
            self._made += 1
            heapq.heappush(self._leaves, (self._order(node), self._made, node))


def _alike(one: Key, other: Key, start: int, end: int) -> int:
    """The first position from `start` to `end` where the owners differ, else `end`."""
    at, i, j = start, 0, 0
    while at < end:
        while one[i][1] <= at:
            i += 1
        while other[j][1] <= at:
            j += 1
        if one[i][0] != other[j][0]:
            return at
        at = min(one[i][1], other[j][1])
    return min(at, end)
