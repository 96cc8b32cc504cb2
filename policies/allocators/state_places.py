"""Where states of fixed size lie: in blocks like those of KV, behind a reservation, or apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from policies.allocators.kv_layout import ByteRuns, KvLayout, Units


class StatePool(NamedTuple):
    """Slots that are kept apart for states, one behind the other."""

    base: int
    """First byte."""
    slots: int
    """That requests get; behind them lies one that pads batches."""
    copies: int
    """States in a slot, each of all layers."""
    copy_bytes: int

    def runs(self, slot: int, copy: int, offset: int, size: int) -> ByteRuns:
        """`size` bytes from `offset` on of a copy."""
        start = self.base + (slot * self.copies + copy) * self.copy_bytes + offset
        return ByteRuns(np.array([start]), np.array([size]))


def in_block(layout: KvLayout, block: int, tokens: int, place: int, size: int) -> ByteRuns:
    """A state in a block of `tokens` slots, where it takes the room of the KV of one layer: that at
    `place` in the layout, or in a plane above all slots where there are fewer layers with KV."""
    if place < layout.layers:
        one = np.array([tokens])
        runs = layout.extents(Units(np.array([block * tokens]), one, one), place, None)
        return cut(runs, 0, size)
    layer_bytes = layout.token_bytes // layout.layers
    above = layout.base + layout.bytes + (place - layout.layers) * layout.slots * layer_bytes
    return ByteRuns(np.array([above + block * tokens * layer_bytes]), np.array([size]))


def behind(
    layout: KvLayout, start: int, slots: int, first: int, last: int, offset: int, size: int
) -> ByteRuns:
    """`size` bytes from `offset` on of what slots [first, last) of a reservation of `slots` slots
    from `start` on have in all layers, one after the other."""
    whole = Units(np.array([start]), np.array([slots]), np.array([slots]))
    each = [layout.extents(whole, layer, None, first, last) for layer in range(layout.layers)]
    return cut(
        ByteRuns(*(np.concatenate(column) for column in zip(*each, strict=True))), offset, size
    )


def cut(runs: ByteRuns, offset: int, size: int) -> ByteRuns:
    """Bytes [offset, offset + size) of runs that follow one another."""
    before = np.cumsum(runs.size) - runs.size
    low = np.clip(offset - before, 0, runs.size)
    high = np.clip(offset + size - before, 0, runs.size)
    kept = high > low
    return ByteRuns((runs.start + low)[kept], (high - low)[kept])
