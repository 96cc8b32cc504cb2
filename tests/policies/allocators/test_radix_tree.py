"""Does the tree find the longest prefix stored, and evict the leaf asked for longest ago?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.allocators.radix_tree import Key, RadixNode, RadixTree
from tests.rotation import LONG

Text = tuple[str, ...]
"""The owner of each token."""


@dataclass
class Run:
    """What the reference knows of the pages `start` and following of a text."""

    start: int
    access: int
    locks: int = 0


class Prefixes:
    """A dictionary of whole texts, each up to the end of a node; nothing is linked."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.runs: dict[Text, Run] = {}
        self.now = 0

    def alike(self, text: Text, stored: Text) -> int:
        """Whole pages with which both begin."""
        most = min(len(text), len(stored)) // self.page
        ends = [pages * self.page for pages in range(most, 0, -1)]
        return next((end // self.page for end in ends if text[:end] == stored[:end]), 0)

    def find(self, text: Text) -> int:
        return max((self.alike(text, stored) for stored in self.runs), default=0)

    def visit(self, text: Text, locks: int = 0) -> int:
        """Look a text up; what it is found in is split where it ends, and accessed."""
        self.now += 1
        found = self.find(text)
        for stored, run in list(self.runs.items()):
            alike = self.alike(text, stored)
            if alike <= run.start:
                continue
            run.access = self.now
            if alike * self.page < len(stored):
                upper = Run(run.start, self.now, run.locks)
                self.runs[stored[: alike * self.page]] = upper
                run.start = alike
                run = upper
            run.locks += locks
        return found

    def store(self, text: Text, locks: int) -> int:
        text = text[: len(text) // self.page * self.page]
        found = self.visit(text, locks)
        if found * self.page < len(text):
            self.runs[text] = Run(found, self.now, locks)
        return found

    def leave(self, text: Text) -> None:
        for stored, run in self.runs.items():
            run.locks -= text[: len(stored)] == stored

    def leaves(self) -> dict[Text, Run]:
        parents = {text[: run.start * self.page] for text, run in self.runs.items()}
        return {t: r for t, r in self.runs.items() if not r.locks and t not in parents}


TEXTS: list[list[tuple[str, int]]] = [
    [("a", 20)], [("a", 7), ("b", 20)], [("a", 7), ("b", 11), ("c", 20)], [("d", 20)],
    [("a", 7), ("b", 11), ("d", 20)], [("a", 12), ("b", 20)], [("d", 3), ("a", 20)],
]  # fmt: skip


def cut(parts: list[tuple[str, int]], length: int) -> tuple[Key, Text]:
    text: Text = ()
    for owner, end in parts:
        text += (owner,) * (end - len(text))
    return tuple(parts), text[:length]


@settings(max_examples=100 if LONG else 40)
@given(data=st.data(), page=st.sampled_from([1, 2, 4]))
def test_equals_a_dictionary_of_prefixes(data: st.DataObject, page: int) -> None:
    tree, plain = RadixTree(page), Prefixes(page)
    holds: dict[int, Text] = {}
    held: list[tuple[RadixNode, Text]] = []
    for turn in range(data.draw(st.integers(1, 30))):
        action = data.draw(st.sampled_from(["store", "store", "store", "leave", "evict", "evict"]))
        parts = data.draw(st.sampled_from(TEXTS))
        key, text = cut(parts, data.draw(st.integers(page, 20)))
        full, locks = len(text) // page, data.draw(st.integers(0, 1))
        if action == "store":
            path = tree.descend(key, full)
            node = path[-1] if path else tree.root
            assert node.end == len(tree.find(key, full)) == plain.find(text)
            if locks:
                tree.lock(path)
            assert plain.store(text, locks) == node.end
            if node.end < full:
                new = np.arange(node.end, full) + 100 * turn
                holds |= {int(p): text[: (i + node.end + 1) * page] for i, p in enumerate(new)}
                node = tree.add(node, key, new, locks)
            tree.touch(node)
            if locks:
                held.append((node, text[: full * page]))
        elif action == "leave" and held:
            node, text = held.pop(data.draw(st.integers(0, len(held) - 1)))
            tree.unlock(node)
            plain.leave(text)
        elif action == "evict" and (leaves := plain.leaves()):
            first = min(leaf.access for leaf in leaves.values())
            pages = tree.evict().tolist()
            gone = holds[pages[-1]]
            run = plain.runs.pop(gone)
            assert gone in leaves and len(pages) == len(gone) // page - run.start
            assert first == run.access
            for page_gone in pages:
                del holds[page_gone]
        for other in TEXTS:  # every page is where its text is looked for
            key, text = cut(other, 20)
            found = tree.find(key, 20 // page).tolist()
            assert len(found) == plain.find(text)
            assert [holds[p] for p in found] == [text[: (i + 1) * page] for i in range(len(found))]


def test_only_whole_pages_are_shared() -> None:
    tree = RadixTree(4)
    tree.touch(tree.add(tree.root, (("system", 6), ("one", 20)), np.arange(5)))
    assert tree.find((("system", 6), ("two", 20)), 5).tolist() == [0]
    assert tree.find((("system", 6), ("one", 20)), 3).tolist() == [0, 1, 2]
    assert tree.find((("system", 5), ("one", 20)), 5).tolist() == [0]
