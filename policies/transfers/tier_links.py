"""The blocks of a tier and the links to it: what a transfer between two tables of blocks moves, and
how long it takes.

A block of a tier holds the tokens of a block in the layers of a group
(`policies.transfers.located`), of which there is one but for models with windows. States of hybrids
are those behind the last whole block, and take as many blocks as they fill; they move whole. Where
that block ends inside a prefill or among outputs, its kernels give the states there (assumed:
SGLang's `mamba_track_interval`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.kv_order import Dims
from hwmodel.specs.link import LinkSpec, load_link
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.kv_layout import Units
from policies.memory.step import StepModel
from policies.requests.requests import IntArray
from policies.transfers.eviction import BlockKey
from policies.transfers.hidden_states import PROFILED, HiddenStates
from policies.transfers.kv_link import OUT, KvPlace, Near, Transfer
from policies.transfers.located import Layers, layers_of, table_of
from policies.transfers.pieces import Pieces
from policies.transfers.restoring import HCACHE_CHUNK
from policies.transfers.tier_options import TiersSpec
from policies.transfers.transfer import (
    Index,
    Leg,
    Moved,
    TransferEnd,
    of_layers,
    states,
    together,
    transfer_legs,
)


class TierBlocks(NamedTuple):
    """Blocks of a tier that hold tokens of a request in a group of layers, one after another from
    block number `first` on."""

    group: int
    first: int
    keys: tuple[BlockKey, ...]


class TierLinks:
    """Of the shard `model` of one card, of `cards`, over a link of its own to the host. A transfer
    is of one card, but over the drive's link of all."""

    def __init__(
        self, spec: TiersSpec, device: Device, model: TransformerSpec, allocator: Allocator,
        steps: StepModel, cards: int, stages: int, places: Sequence[KvPlace],
    ) -> None:  # fmt: skip
        """places: the cards. Raises DescriptionError for blocks that are no multiple of the
        device's, and as `HiddenStates`."""
        layout = allocator.layout
        self._allocator, self._cards, self._places = allocator, cards, tuple(places)
        self.way = "pauses" if spec.pauses else "hcache" if spec.host.hcache else "tiers"
        """Of its transfers."""
        self.groups = layers_of(layout, model.kv_layers)
        self.kv_groups = len(self.groups)
        """Of them, those that hold KV; the others, states."""
        self._states = states(model)
        self._models = [of_layers(model, len(group.numbers)) for group in self.groups]
        self._whole = of_layers(model, layout.layers)
        index = layout.layer_index_bytes
        self._index = Index(layout.layers, index) if index else None
        self.near_block = allocator.transfer_block
        """Tokens of a block of the device."""
        usual = HCACHE_CHUNK if spec.host.hcache else 1
        usual = -(-usual // self.near_block) * self.near_block
        self.block = spec.host.block_size or usual
        """Tokens of a block of the tiers."""
        if self.block % self.near_block:
            raise DescriptionError(
                f"serving.tiers.host.block_size: expected a multiple of {self.near_block}, the "
                f"device's block; got {self.block}"
            )
        self._near: Dims = layout.dims
        self._far: Dims = spec.host.kv_layout or layout.dims
        self.host = load_link(spec.host.link)
        self._host_back = self.host.back
        self._drive = load_link(spec.ssd.link) if spec.ssd is not None else None
        self._drive_back = None if self._drive is None else self._drive.back
        self.block_bytes = self.block * layout.token_bytes * cards
        """Of a block of the tiers, of all cards."""
        self.hidden: HiddenStates | None = None
        """What of it is hidden states; None: all is KV."""
        if spec.host.hcache is not None:
            whole = [len(group.numbers) for group in self.groups if group.window is None]
            if not whole:
                raise DescriptionError(
                    "serving.tiers.host.hcache: hidden states are of layers that keep all tokens; "
                    f"{model.name} has none"
                )
            # the whole model, or what is left of it without windows and states
            self._whole = of_layers(model, max(whole))
            alone = stages == 1 and len(self.groups) == 1 and self._states is None
            ends = self._apart(-(-PROFILED // self.block), self.near_block, self._near)
            self.hidden = HiddenStates(
                spec.host.hcache, self.host, device, self._whole, steps, ends, stages, cards,
                ("kv", "recompute") if alone else ("kv",),
            )  # fmt: skip
            if spec.host.kv_layout and not self.hidden.keeps_kv:
                raise DescriptionError(
                    "serving.tiers.host.kv_layout: HCache keeps no KV here, whose order it is; "
                    "expected null, or fewer hcache.layers"
                )
            own = self.block * self.hidden.token_bytes
            # blocks of a tier are alike, whatever they hold
            self.block_bytes = own if len(self.groups) == 1 else max(own, self.block_bytes)
        if self._states is not None:
            filled = -(-self._states.bytes * cards // self.block_bytes)
            self.groups += [Layers((), self.block)] * filled

    @property
    def drive(self) -> LinkSpec:
        """Between the drive and the host, of all cards together; to be asked where there is one."""
        assert self._drive is not None
        return self._drive

    def loading(
        self,
        request: int,
        start: int,
        parts: Sequence[tuple[TierBlocks, IntArray]],
        what: Any,
        to: int,
    ) -> Transfer:
        """A transfer of parts, with their ids at the host, to what a request has from token `start`
        on; `to`: the direction."""
        legs, near = [], []
        for part, ids in parts:
            if part.group >= self.kv_groups:
                continue
            begin, end = part.first * self.block, (part.first + len(ids)) * self.block
            block, table = table_of(self._allocator, request, part.group)
            step = math.gcd(block, self.block)
            skip = max(begin, start // step * step)
            far = np.concatenate((np.zeros(part.first, np.int64), ids))
            ends = TransferEnd(self._far, self.block, far), TransferEnd(self._near, block, table)
            legs.append(self._leg(part.group, end, ends, skip))
            near.append(self._near_of(request, part.group, block, table, skip, end))
        return self._job(to, 0, self.host, legs, what, near, self._states)

    def storing(
        self, request: int, parts: Sequence[tuple[TierBlocks, list[int], IntArray]], priority: int,
        what: Any, to: int,
    ) -> Transfer:  # fmt: skip
        """A transfer of blocks of a request, numbers of those in a part, to these ids at the
        host."""
        legs, near, beside = [], [], None
        for part, places, ids in parts:
            if part.group >= self.kv_groups:
                beside = self._states
                continue
            block, table = table_of(self._allocator, request, part.group)
            if self.block % block == 0:  # whole blocks, in the order of the tier's
                many = self.block // block
                most = (max(places) + 1) * many
                table = table[:most].reshape(-1, many)[places].ravel()
                ends = (
                    TransferEnd(self._near, block, table),
                    TransferEnd(self._far, self.block, ids),
                )
                legs.append(self._leg(part.group, len(ids) * self.block, ends))
                near.append(_near_blocks(block, table))
                continue
            breaks = np.flatnonzero(np.diff(places) != 1) + 1
            for run, here in zip(np.split(places, breaks), np.split(ids, breaks), strict=True):
                begin, end = int(run[0]) * self.block, (int(run[-1]) + 1) * self.block
                far = np.concatenate((np.zeros(int(run[0]), np.int64), here))
                ends = (
                    TransferEnd(self._near, block, table),
                    TransferEnd(self._far, self.block, far),
                )
                legs.append(self._leg(part.group, end, ends, begin))
                near.append(self._near_of(request, part.group, block, table, begin, end))
        return self._job(to, priority, self._host_back, legs, what, near, beside)

    def over_drive(
        self, to: int, priority: int, source: IntArray, target: IntArray, what: Any
    ) -> Transfer:  # fmt: skip
        """A transfer of blocks between host and drive; `to`: onto the drive is OUT."""
        ends = (
            TransferEnd(self._far, self.block, source),
            TransferEnd(self._far, self.block, target),
        )
        leg = Leg(self._whole, len(source) * self.block, *ends, 0, self._index)
        link = self._drive_back if to == OUT else self._drive
        assert link is not None
        return self._job(to, priority, link, [leg], what, [])

    def host_s(self, blocks: int, to: int) -> float:
        """Seconds to move so many blocks between host and device whose ids are not known yet: none
        lie together. to: the direction."""
        link = self._host_back if to == OUT else self.host
        return self._estimate_s(link, blocks, self.near_block, self._near)

    def drive_s(self, blocks: int) -> float:
        """The same from the drive to the host."""
        return self._estimate_s(self.drive, blocks, self.block, self._far)

    def _leg(
        self, group: int, tokens: int, ends: tuple[TransferEnd, TransferEnd], skip: int = 0
    ) -> Leg:
        index = self._index if group == 0 else None
        hidden = self.hidden is not None and self.groups[group].window is None
        return Leg(self._whole if hidden else self._models[group], tokens, *ends, skip, index)

    def _near_of(
        self, request: int, group: int, block: int, table: IntArray, first: int, last: int
    ) -> Near:  # fmt: skip
        """What tokens from `first` to `last` of a request take of the card."""
        units = self._allocator.layer_units(request, group)
        if len(units.start) == len(table) and block == self.near_block:
            return _near_blocks(block, table[first // block : -(-last // block)])
        return Near(units, first, last)

    def _job(
        self, direction: int, priority: int, link: LinkSpec, legs: Sequence[Leg], what: Any,
        near: list[Near], beside: Pieces | None = None,
    ) -> Transfer:  # fmt: skip
        hosts = tuple(each.host for each in self._places)
        drives = tuple(each.drive for each in self._places)
        ends = (hosts, drives if self._is_drive(link) else self._places)
        source, target = ends if (direction == OUT) == self._is_drive(link) else ends[::-1]
        alone = both = self._moved(link, legs, beside)
        if link.both_ways is not None:
            both = self._moved(link, legs, beside, both_ways=True)
        found = alone.pieces
        return Transfer(
            source=source, target=target, request=max(what.request, -1), way=self.way,
            ends=(direction,), bytes=found.bytes, descriptors=found.descriptors,
            alone_s=alone.cost.total_ns / 1e9, both_s=both.cost.total_ns / 1e9,
            priority=priority, what=what, near=tuple(near),
        )  # fmt: skip

    def _estimate_s(self, link: LinkSpec, blocks: int, near_block: int, dims: Dims) -> float:
        if not blocks:
            return 0.0
        ends = self._apart(blocks, near_block, dims)
        leg = Leg(self._whole, blocks * self.block, *ends, 0, self._index)
        return self._moved(link, [leg]).cost.total_ns / 1e9

    def _moved(
        self, link: LinkSpec, legs: Sequence[Leg], beside: Pieces | None = None,
        both_ways: bool = False,
    ) -> Moved:  # fmt: skip
        """What such a transfer moves and takes: over the drive's link the shards of all cards."""
        if self.hidden is not None:
            return self._moved_hidden(self.hidden, link, legs, beside, both_ways)
        moved = transfer_legs(link, legs, both_ways, beside=beside)
        if self._cards == 1 or not self._is_drive(link):
            return moved
        own = moved.pieces
        counts, regions = own.counts * self._cards, own.regions * self._cards
        cost = link.cost(own.sizes, counts, both_ways)
        return Moved(Pieces(own.sizes, counts, regions, own.runs), cost, 1)

    def _is_drive(self, link: LinkSpec) -> bool:
        """Whether it is the drive's, either way."""
        return link is self._drive or link is self._drive_back

    def _moved_hidden(
        self, hidden: HiddenStates, link: LinkSpec, legs: Sequence[Leg], beside: Pieces | None,
        both_ways: bool,
    ) -> Moved:  # fmt: skip
        """As `_moved`, where layers that keep all tokens come by hidden states."""
        found = [
            hidden.transfer(
                link, leg.model, leg.tokens, leg.source, leg.target, both_ways, leg.skip,
                self._is_drive(link),
            )
            for leg in legs if leg.model is self._whole
        ]  # fmt: skip
        others = [leg for leg in legs if leg.model is not self._whole]
        if len(found) == 1 and not others and beside is None:
            return found[0]
        parts = [each.pieces for each in found] + ([] if beside is None else [beside])
        return transfer_legs(
            link, others, both_ways, beside=reduce(together, parts) if parts else None
        )

    def _apart(self, blocks: int, small: int, dims: Dims) -> tuple[TransferEnd, TransferEnd]:
        """So many blocks of the host, and those of `small` tokens: none lie together."""
        near = TransferEnd(dims, small, np.arange(blocks * self.block // small) * 2)
        return TransferEnd(self._far, self.block, np.arange(blocks) * 2), near


def _near_blocks(block: int, table: IntArray) -> Near:
    size = np.full(len(table), block)
    return Near(Units(table * block, size, size), 0, None)
