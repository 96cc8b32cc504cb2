"""KV in frames of memory that can be mapped elsewhere (CUDA's virtual memory management: 2 MiB).

A plane is the K, or V, of one layer: a range of virtual addresses, of whole frames. A card that
drops layers (KunServe, arXiv 2412.18169v4) keeps the planes of the others where they are. Behind
their tails it maps the frames of planes whose layers left, for the other group's blocks, and those
of dropped weights last (the order is assumed): block ids grow, and blocks keep their addresses.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.extents import Frames
from policies.allocators.kv_layout import SLOT_ALIGN_TOKENS, KvLayout
from policies.requests.requests import IntArray


class CardFrames(NamedTuple):
    """Which frames hold what on a card."""

    layers: range
    """Of the model, whose KV is here."""
    held: IntArray
    """First byte of each frame, int64 (planes, frames), the planes of a layer together."""
    spare: IntArray
    """Of those that nothing uses, int64 (n,)."""
    base: int
    """First byte behind the weights."""
    size: int
    """Bytes of a frame."""

    @property
    def number(self) -> int:
        return self.held.size + len(self.spare)

    def freed(self, weights_end: int) -> int:
        """Frames between the weights that stay, up to so many bytes, and those that were there."""
        return max(self.base - weights_end, 0) // self.size

    def remapped(self, layers: range, weights_end: int, first: int, frames: int) -> CardFrames:
        """With these layers, of which it may lack some, in planes of so many frames: what it had
        of them lies from frame `first` on."""
        added = self.freed(weights_end)
        base, each = self.base - added * self.size, len(self.held) // len(self.layers)
        held = np.full((len(layers), each, frames), -1, np.int64)
        old = self.held.reshape(len(self.layers), each, -1)[:, :, : frames - first]
        stay = range(max(layers.start, self.layers.start), min(layers.stop, self.layers.stop))
        if len(stay):
            new = slice(stay.start - layers.start, stay.stop - layers.start)
            kept = slice(stay.start - self.layers.start, stay.stop - self.layers.start)
            held[new, :, first : first + old.shape[2]] = old[kept]
        free = np.concatenate((
            base + np.arange(added)[::-1] * self.size, self.spare, np.setdiff1d(self.held, held)
        ))  # fmt: skip
        columns = np.moveaxis(held, 2, 0).ravel()
        gaps = np.flatnonzero(columns < 0)[::-1]  # the tail first
        columns[gaps] = free[: len(gaps)]
        held = columns.reshape(frames, -1).T.copy()
        return CardFrames(layers, held, free[len(gaps) :], base, self.size)

    def mapped(self) -> Frames:
        """As the kernel has them: the virtual frame of each physical one."""
        at = (self.held.ravel() - self.base) // self.size
        virtual = np.arange(self.number) + self.held.size  # spare ones lie behind all planes
        virtual[at] = np.arange(len(at))
        return Frames(self.base, self.size, virtual)


class StageFrames(NamedTuple):
    """The stage of a pipeline with the least room: which it is, its region at virtual addresses,
    and where these lie."""

    stage: int
    layout: KvLayout
    frames: CardFrames


def _steps(layout: KvLayout, size: int) -> tuple[int, int]:
    """(planes, the least tokens that are whole frames of a plane)."""
    outer = layout.dims[: layout.dims.index("unit")]
    if outer[:1] != ("layer",):
        raise DescriptionError(
            "cluster.dropping.frame: with this kv_layout layers are not apart; expected one that "
            "begins with layer, or frame: null"
        )
    sizes = {"layer": layout.layers, "kv": layout.halves, "head": layout.kv_heads}
    planes = math.prod(sizes[dim] for dim in outer)
    slot_bytes = layout.token_bytes // planes
    return planes, math.lcm(size, slot_bytes * SLOT_ALIGN_TOKENS) // slot_bytes


def whole_frames(layout: KvLayout, size: int) -> KvLayout:
    """A region with whole frames of `size` bytes in each plane. Raises DescriptionError where no
    frame fits, and for layouts in which layers are not apart."""
    step = _steps(layout, size)[1]
    if layout.slots < step:
        raise DescriptionError(
            f"cluster.dropping.frame: {layout.slots} tokens of KV; expected at least {step} for "
            f"whole frames of {size} B in each layer's K and V; choose a smaller one"
        )
    return replace(layout, slots=layout.slots - layout.slots % step)


def frames_of(layout: KvLayout, size: int) -> CardFrames:
    """Those of a region of whole frames, one after the other."""
    planes, count = _steps(layout, size)[0], layout.bytes // size
    held = layout.base + np.arange(count).reshape(planes, -1) * size
    return CardFrames(range(layout.layers), held, np.zeros(0, np.int64), layout.base, size)


def plane_frames(
    layout: KvLayout, cards: list[CardFrames], layers: list[int], weights_end: list[int]
) -> list[int]:
    """Frames of each plane, in cards that keep so many layers and bytes of weights. layout: of a
    card that has all of them."""
    size = cards[0].size
    planes, step = _steps(layout, size)
    unit = step * layout.token_bytes // planes // size
    found = []
    for card, many, end in zip(cards, layers, weights_end, strict=True):
        frames = (card.number + card.freed(end)) // (many * planes // layout.layers)
        found.append(frames - frames % unit)
    return found


def stage_layout(layout: KvLayout, card: CardFrames) -> KvLayout:
    """The region of a card that keeps some layers of `layout`, at virtual addresses."""
    slots = card.held.size * card.size * layout.layers // (len(card.layers) * layout.token_bytes)
    return replace(layout, base=card.base, layers=len(card.layers), slots=slots)
