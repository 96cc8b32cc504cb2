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
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.extents import Frames
from policies.allocators.kv_layout import SLOT_ALIGN_TOKENS, KvLayout
from policies.requests.requests import IntArray


class CardFrames(NamedTuple):
    """Which frames hold what on a card, by their first bytes."""

    layers: range
    """Of the model, whose KV is here."""
    held: IntArray
    """int64 (planes, frames), the planes of a layer together."""
    spare: IntArray
    """Of those that nothing uses, int64 (n,)."""
    base: int
    """First byte behind the weights."""
    frame_bytes: int
    step: int
    """Frames of a plane that are whole blocks."""

    def room(self, layers: int, weights_end: int) -> int:
        """Frames of each plane, with so many layers behind so many bytes of weights."""
        many = self.held.size + len(self.spare) + (self.base - weights_end) // self.frame_bytes
        frames = many // (layers * len(self.held) // len(self.layers))
        return frames - frames % self.step

    def remapped(self, layers: range, weights_end: int, first: int, frames: int) -> CardFrames:
        """With these layers, of which it may lack some, in planes of so many frames: what it had
        of them lies from frame `first` on."""
        added = (self.base - weights_end) // self.frame_bytes
        base, each = self.base - added * self.frame_bytes, len(self.held) // len(self.layers)
        held: IntArray = np.full((len(layers), each, frames), -1, np.int64)
        old = self.held.reshape(len(self.layers), each, -1)[:, :, : frames - first]
        for layer in set(layers) & set(self.layers):
            at = layer - layers.start
            held[at, :, first : first + old.shape[2]] = old[layer - self.layers.start]
        weights = base + np.arange(added)[::-1] * self.frame_bytes
        free = np.concatenate((weights, self.spare, np.setdiff1d(self.held, held)))
        columns = np.moveaxis(held, 2, 0).ravel()
        gaps = np.flatnonzero(columns < 0)[::-1]  # the tail first
        columns[gaps] = free[: len(gaps)]
        held, spare = columns.reshape(frames, -1).T.copy(), free[len(gaps) :]
        return self._replace(layers=layers, held=held, spare=spare, base=base)

    def stays(self, own: CardFrames, first: int) -> NDArray[np.bool_]:
        """Which frames of `own`, in the planes that are here, are where its first is at frame
        `first`, (planes, frames)."""
        each = len(own.held) // len(own.layers)
        same = np.zeros((len(self.held), own.held.shape[1]), np.bool_)
        for layer in set(self.layers) & set(own.layers):
            at, mine = (layer - card.layers.start for card in (self, own))
            there = own.held[mine * each : (mine + 1) * each]
            here = self.held[at * each : (at + 1) * each, first : first + there.shape[1]]
            same[at * each : (at + 1) * each, : here.shape[1]] = here == there[:, : here.shape[1]]
        return same

    def frames(self) -> Frames:
        """As the kernel has them: the virtual frame of each physical one."""
        at = (self.held.ravel() - self.base) // self.frame_bytes
        virtual = np.arange(len(at) + len(self.spare)) + len(at)  # spare ones lie behind
        virtual[at] = np.arange(len(at))
        return Frames(self.base, self.frame_bytes, virtual)

    def region(self, whole: KvLayout) -> KvLayout:
        """Its KV at virtual addresses from `base` on. whole: that of all layers."""
        layers, slots = len(self.layers), self.held.size * self.frame_bytes * whole.layers
        slots //= layers * whole.token_bytes
        return replace(whole, base=self.base, layers=layers, slots=slots)


def all_of_blocks(frames: NDArray[np.bool_], slots: int, block: int) -> NDArray[np.bool_]:
    """Of what is said of each frame of planes of so many slots, (..., frames): whether it holds for
    all that a block lies in, (..., blocks)."""
    many, begin = frames.shape[-1], np.arange(slots // block) * block
    untrue = np.zeros((*frames.shape[:-1], many + 1), np.int64)
    untrue[..., 1:] = np.cumsum(~frames, axis=-1)
    return untrue[..., -(-(begin + block) * many // slots)] == untrue[..., begin * many // slots]


Placed = tuple[int, KvLayout, CardFrames | None]
"""The stage of a pipeline with the least room, its region, and where that lies if it is mapped."""


def in_frames(layout: KvLayout, size: int) -> tuple[KvLayout, CardFrames]:
    """A region with whole frames of `size` bytes in each plane, one after the other. Raises
    DescriptionError where no frame fits, and for layouts in which layers are not apart."""
    if layout.groups is not None or layout.apart is not None:
        raise DescriptionError(
            "cluster.dropping.frame: blocks are those of layers of several kinds in turn, or have "
            "scales apart, so that no frame is of one layer's K or V; expected frame: null"
        )
    outer = layout.dims[: layout.dims.index("unit")]
    if outer[:1] != ("layer",):
        raise DescriptionError(
            "cluster.dropping.frame: with this kv_layout layers are not apart; expected one that "
            "begins with layer, or frame: null"
        )
    sizes = {"layer": layout.layers, "kv": layout.halves, "head": layout.kv_heads}
    planes = math.prod(sizes[dim] for dim in outer)
    slot_bytes = layout.token_bytes // planes
    step = math.lcm(size, slot_bytes * SLOT_ALIGN_TOKENS)
    if not (frames := layout.slots * slot_bytes // step * step // size):
        raise DescriptionError(
            f"cluster.dropping.frame: {layout.slots} tokens of KV; expected {step // slot_bytes} "
            f"or more for whole frames of {size} B in each layer's K and V; choose a smaller one"
        )
    held = layout.base + np.arange(planes * frames).reshape(planes, -1) * size
    none, unit = np.zeros(0, np.int64), step // size
    card = CardFrames(range(layout.layers), held, none, layout.base, size, unit)
    return card.region(layout), card
