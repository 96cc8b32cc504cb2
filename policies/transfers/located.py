"""Where the KV of a request lies on a device, for any allocator: layers that have one table of
blocks together, and that table.

An allocator of blocks has its own, one for each group of layers of a model with windows. A
contiguous reservation is one block, as long as it is, of which any tokens can be moved; a ring is
one that comes again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from policies.allocators.allocator import Allocator
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.radix_tree import NO_PAGES
from policies.requests.requests import IntArray
from policies.transfers.transfer import TransferEnd


class Layers(NamedTuple):
    """Layers of the model with a table in common: their numbers, and the tokens that they keep
    (None: all)."""

    numbers: tuple[int, ...]
    window: int | None

    def needs_from(self, tokens: int) -> int:
        """The first of so many tokens that the next one attends to."""
        return 0 if self.window is None else max(tokens - self.window + 1, 0)


def layers_of(layout: KvLayout, layers: int) -> list[Layers]:
    """Groups of a layout, of a model with so many layers that have KV."""
    groups = layout.groups
    if groups is None:
        return [Layers(tuple(range(layers)), None)]
    return [
        Layers(
            tuple(layer for layer, (group, _) in enumerate(groups.place) if group == number), kept
        )
        for number, kept in enumerate(groups.kept)
    ]  # fmt: skip


def table_of(allocator: Allocator, request: int, group: int) -> tuple[int, IntArray]:
    """(tokens of a block, block ids in token order) of what a request has in a group of layers."""
    return _table(allocator.layer_units(request, group), allocator.transfer_block)


Places = list[tuple[Layers, TransferEnd]]
"""Groups of a model's layers, and where a request has their KV."""


def places_of(
    allocator: Allocator, groups: Sequence[Layers], request: int, cards: int = 1
) -> Places:  # fmt: skip
    """Where the KV of a request lies in each of these groups of layers, of a shard on each of so
    many cards."""
    return [
        (layers, TransferEnd(allocator.layout.dims, *table_of(allocator, request, group), cards))
        for group, layers in enumerate(groups)
    ]


def _table(units: Units, least: int) -> tuple[int, IntArray]:
    start, _, size = units
    if not len(start):
        return least, NO_PAGES
    block = int(size[0])
    if (size == block).all() and not (start % block).any():
        return block, start // block
    if (start == start[0]).all():  # one run: only where its tokens lie to each other matters
        whole = -(-block // least) * least if len(start) == 1 else block
        return whole, np.zeros(len(start), np.int64)
    block = int(np.gcd.reduce(np.concatenate((start, size))))
    runs = [np.arange(a, a + n, block) // block for a, n in zip(start, size, strict=True)]
    return block, np.concatenate(runs).astype(np.int64)
