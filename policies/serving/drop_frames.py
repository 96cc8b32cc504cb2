"""What the memory of each card holds, in frames that are mapped anew as layers go and come
(`dropping.py`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwmodel.specs.stages import stages_of
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import MovesBlocks
from policies.allocators.kv_frames import CardFrames, Placed, all_of_blocks, in_frames
from policies.allocators.kv_layout import KV_ALIGN_BYTES, KvLayout
from policies.engines.memory_beside import NONE
from policies.requests.requests import IntArray
from policies.serving.drop_groups import Group, Place, pipeline_order
from policies.transfers.guests import require_blocks

Kept = tuple[int, int, float, IntArray]
"""A request that goes on, its tokens, when at the earliest, and its blocks; none: any."""


class DropFrames:
    """Of the cards of a node. Without a size of a frame nothing is mapped: no block keeps its
    place. `stayed`: bytes of blocks that kept theirs."""

    def __init__(
        self, regions: Sequence[KvLayout], size: int, model: TransformerSpec, layout: KvLayout,
        cards: int, stages: int,
    ) -> None:  # fmt: skip
        """regions: of a card of each stage by itself, where frames have a size; layout: of all
        layers."""
        self._model, self._layout, self._stages = model, layout, stages
        self._own = self._mapped(regions, size) if size else []
        """What a card of each stage holds by itself, where it is mapped in frames."""
        self.held: dict[Place, CardFrames] = {}
        """What each card's memory holds now."""
        self._first: dict[int, int | None] = {}
        """The block of its group at which those begin that a card had before; None: inside one."""
        self.stayed = 0
        for card in range(cards if self._own else 0):
            self.alone(card)

    @staticmethod
    def _mapped(regions: Sequence[KvLayout], size: int) -> list[CardFrames]:
        """What a card of each stage holds by itself: as many blocks as the fullest."""
        cards = [in_frames(region, size)[1] for region in regions]
        frames = min(card.held.shape[1] for card in cards)
        at, whole = 0, []
        for card in cards:
            layers = range(at, at := at + len(card.layers))
            own = card._replace(layers=layers)
            whole.append(own.remapped(layers, own.base, 0, frames))
        return whole

    def alone(self, card: int) -> None:
        """A card has its own layers and memory again."""
        self._first[card] = 0
        for stage, whole in enumerate(self._own):
            self.held[card, stage] = whole

    def shifted(self, cards: Group, shift: int | None) -> None:
        """These cards join another group, in which their blocks lie so many further; None: those
        of others are among them."""
        for card in cards:
            at = self._first.get(card)
            self._first[card] = None if at is None or shift is None else at + shift

    def place(self, first: Group, cards: Group) -> Placed | None:
        """Map what these cards no longer need behind the KV that they keep; that of the first of
        the two groups comes first."""
        if not self.held:
            return None
        places = pipeline_order(cards, self._stages)
        stages, held = stages_of(self._model, len(places)), [self.held[each] for each in places]
        ends = [-(-stage.weight_bytes // KV_ALIGN_BYTES) * KV_ALIGN_BYTES for stage in stages]
        room = [c.room(s.kv_layers, end) for c, s, end in zip(held, stages, ends, strict=True)]
        behind, at = self.held[first[0], 0].held.shape[1], 0
        for place, stage, end in zip(places, stages, ends, strict=True):
            layers, begins = range(at, at := at + stage.kv_layers), behind * (place[0] not in first)
            self.held[place] = self.held[place].remapped(layers, end, begins, min(room))
        least = room.index(min(room))
        chosen = self.held[places[least]]
        return least, chosen.region(self._layout), chosen

    def strange(self, group: Group, slots: int, blocks: MovesBlocks) -> IntArray:
        """Blocks of a group with a part in frames that weights had, int64 (n,)."""
        if not self._own:
            return NONE
        places = pipeline_order(group, self._stages)
        own = [self.held[place].held >= self._own[place[1]].base for place in places]
        every = np.logical_and.reduce(np.concatenate(own))
        return np.flatnonzero(~all_of_blocks(every, slots, blocks.block))

    def settle(self, card: int, kept: list[Kept], own: Allocator) -> tuple[list[Kept], int]:
        """Those of a group's requests that have room on a card, with their blocks there, and bytes
        that are copied in its memory: those in frames that are not where the card had them. own:
        the allocator of the card alone."""
        first = self._first.get(card)
        if not self._own or first is None or not kept:
            return [(*each[:3], NONE) for each in kept], 0
        blocks = require_blocks(own)
        free, block = blocks.free_blocks(), blocks.block
        here = [(self.held[card, stage], whole) for stage, whole in enumerate(self._own)]
        begin = first * block * self._own[0].held.shape[1] // own.slots
        same = np.concatenate([frames.stays(whole, begin) for frames, whole in here])
        layers = sum(len(frames.layers) for frames, _ in here)
        staying = all_of_blocks(same, own.slots, block).mean(axis=0)
        used = np.unique(np.concatenate([each[3] for each in kept]))
        share, at, inside = np.zeros(len(used)), used - first, np.isin(used - first, free)
        share[inside] = staying[at[inside]]
        others = np.flatnonzero(share == 0)
        new = np.setdiff1d(free, at[share > 0])[: len(others)]
        at[others] = -1
        at[others[: len(new)]] = new
        named = [(*each[:3], at[np.searchsorted(used, each[3])]) for each in kept]
        room = [each for each in named if each[3].min() >= 0]
        share = share[np.isin(at, np.concatenate([NONE, *(each[3] for each in room)]))]
        each_bytes = block * layers * self._model.kv_layer_bytes
        stayed = round(share.sum() * each_bytes)
        self.stayed += stayed
        return room, len(share) * each_bytes - stayed
