"""The blocks of a tier and the links to it: what a transfer between two tables of blocks moves, and
how long it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.kv_order import Dims
from hwmodel.specs.link import LinkSpec, load_link
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.block_allocator import BlockAllocator
from policies.memory.step import StepModel
from policies.requests.requests import IntArray
from policies.transfers.hidden_states import PROFILED, HiddenStates
from policies.transfers.link_queue import IN, Job
from policies.transfers.pieces import Pieces
from policies.transfers.restoring import HCACHE_CHUNK
from policies.transfers.tier_options import TiersSpec
from policies.transfers.transfer import Moved, Server, transfer


class TierLinks:
    """Of the shard `model` of one card, of `cards`, over a link of its own to the host. A transfer
    is of one card, but over the drive's link of all."""

    def __init__(
        self, spec: TiersSpec, device: Device, model: TransformerSpec, allocator: BlockAllocator,
        steps: StepModel, cards: int,
    ) -> None:  # fmt: skip
        """Raises DescriptionError for KV that `transfer` refuses, and as `HiddenStates`."""
        layout = allocator.layout
        self._model, self._allocator, self._cards = model, allocator, cards
        self.near_block = allocator.block
        """Tokens of a block of the device."""
        usual = HCACHE_CHUNK if spec.host.hcache else 1
        usual = -(-usual // allocator.block) * allocator.block
        self.block = spec.host.block_size or usual
        """Tokens of a block of the tiers."""
        if self.block % allocator.block:
            raise DescriptionError(
                f"serving.tiers.host.block_size: expected a multiple of {allocator.block}, the "
                f"device's block; got {self.block}"
            )
        self._near: Dims = layout.dims
        self._far: Dims = spec.host.kv_layout or layout.dims
        self.host = load_link(spec.host.link)
        self._drive = load_link(spec.ssd.link) if spec.ssd is not None else None
        self.block_bytes = self.block * layout.token_bytes * cards
        """Of a block of the tiers, of all cards."""
        self.hidden: HiddenStates | None = None
        """What of it is hidden states; None: all is KV."""
        self._transfer: Callable[..., Moved] = transfer
        if spec.host.hcache is not None:
            if cards > 1:
                raise DescriptionError("serving.tiers.host.hcache: expected tensor_parallel: 1")
            ends = self._apart(-(-PROFILED // self.block), self.near_block, self._near)
            self.hidden = HiddenStates(spec.host.hcache, self.host, device, model, steps, ends)
            self._transfer = self.hidden.transfer
            if spec.host.kv_layout and not self.hidden.keeps_kv:
                raise DescriptionError(
                    "serving.tiers.host.kv_layout: HCache keeps no KV here, whose order it is; "
                    "expected null, or fewer hcache.layers"
                )
            self.block_bytes = self.block * self.hidden.token_bytes

    @property
    def drive(self) -> LinkSpec:
        """Between the drive and the host, of all cards together; to be asked where there is one."""
        assert self._drive is not None
        return self._drive

    def table(self, request: int, first: int, end: int) -> IntArray:
        """Block ids on the device of these tokens of a request."""
        start = self._allocator.units(request).start // self.near_block
        return start[first // self.near_block : end // self.block * self.block // self.near_block]

    def near(self, table: IntArray) -> Server:
        """The device, with these blocks."""
        return Server(self._near, self.near_block, table)

    def far(self, table: IntArray) -> Server:
        """The host or the drive, with these blocks."""
        return Server(self._far, self.block, table)

    def job(
        self, direction: int, priority: int, link: LinkSpec, ends: tuple[Server, Server],
        tokens: int, what: Any, skip: int = 0,
    ) -> Job:  # fmt: skip
        """A transfer of `tokens` tokens between the first and the second of `ends`."""
        alone = both = self._moved(link, tokens, ends, skip=skip)
        if link.both_ways is not None:
            both = self._moved(link, tokens, ends, both_ways=True, skip=skip)
        found, near = alone.pieces, ends[direction == IN].table[skip // self.near_block :]
        return Job(
            direction, priority, found.bytes, found.descriptors, alone.cost, both.cost, what, near
        )  # fmt: skip

    def host_s(self, blocks: int) -> float:
        """Seconds to move so many blocks between host and device whose ids are not known yet: none
        lie together."""
        return self._estimate_s(self.host, blocks, self.near_block, self._near)

    def drive_s(self, blocks: int) -> float:
        """The same between drive and host."""
        return self._estimate_s(self.drive, blocks, self.block, self._far)

    def _estimate_s(self, link: LinkSpec, blocks: int, near_block: int, dims: Dims) -> float:
        if not blocks:
            return 0.0
        ends = self._apart(blocks, near_block, dims)
        return self._moved(link, blocks * self.block, ends).cost.total_ns / 1e9

    def _moved(
        self, link: LinkSpec, tokens: int, ends: tuple[Server, Server], both_ways: bool = False,
        skip: int = 0,
    ) -> Moved:  # fmt: skip
        """What such a transfer moves and takes: over the drive's link the shards of all cards."""
        moved = self._transfer(link, self._model, tokens, *ends, both_ways=both_ways, skip=skip)
        if self._cards == 1 or link is not self._drive:
            return moved
        own = moved.pieces
        counts, regions = own.counts * self._cards, own.regions * self._cards
        cost = link.cost(own.sizes, counts, both_ways)
        return Moved(Pieces(own.sizes, counts, regions, own.runs), cost, 1)

    def _apart(self, blocks: int, small: int, dims: Dims) -> tuple[Server, Server]:
        """So many blocks of the host, and those of `small` tokens: none lie together."""
        near = Server(dims, small, np.arange(blocks * self.block // small) * 2)
        return self.far(np.arange(blocks) * 2), near
