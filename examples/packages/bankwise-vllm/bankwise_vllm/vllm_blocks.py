"""The blocks that the installed vLLM gave, as an allocator of bankwise: `policy: vllm`, which goes
with `engine: {name: vllm}` alone. Where KV lies is copied from vLLM; nothing here chooses a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from bankwise_vllm.installed_vllm import rules_here
from bankwise_vllm.mirrored_blocks import MirroredBlocks
from hwmodel.description.description import DescriptionError
from hwmodel.specs.accelerator import Paging
from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.capabilities import OnDemand
from policies.allocators.declaration import CHOICES, Range, References
from policies.allocators.kv_groups import WindowKv
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.kv_managers import managers_of
from policies.allocators.losses import GROWING
from policies.allocators.paged import PagedOptions
from policies.engines.vllm_version import VERSIONS
from policies.requests.requests import IntArray

_NONE: IntArray = np.zeros(0, np.int64)


class VllmBlockOptions(PolicyOptions):
    """Options of `policy: vllm`, which are vLLM's `CacheConfig`."""

    name: Literal["vllm"] = "vllm"
    block: Annotated[int, Field(ge=1, le=256)] | None = None
    """Tokens in a block (`block_size`). None: the device's."""
    prefix_caching: bool = True
    """Blocks are found again by what they hold (`enable_prefix_caching`)."""
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the blocks that admission leaves free (`watermark`, since 0.33)."""

    def on_device(self, paging: Paging) -> VllmBlockOptions:
        return self.model_copy(update={"block": paging.block}) if self.block is None else self

    @property
    def kv_of_windows(self) -> WindowKv:
        return "blocks"


class VllmBlocks(Allocator, OnDemand, MirroredBlocks):
    """The block tables of vLLM's `KVCacheManager`, as they are after each of its steps."""

    Options = VllmBlockOptions
    losses = GROWING
    searched = {"block": Range(1, 256), "prefix_caching": CHOICES, "watermark": Range(0, 1)}
    references = References(("static",), ceilings=("ideal",))

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: VllmBlockOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self.block = Paging().block if options.block is None else options.block
        self.blocks = layout.slots // self.block
        groups = layout.groups
        self.windows: list[int | None] = [None] if groups is None else list(groups.kept)
        self.tables: dict[int, list[IntArray]] = {}
        """Of each resident, group by group, its blocks by vLLM's numbers; 0 is the null block."""
        paged = VERSIONS[rules_here()].paged
        window_rules = paged.get("window_rules", PagedOptions().window_rules)
        self._managers = managers_of(layout, requests, limits, self.block, window_rules)
        """What admission of this version counts for each group of layers."""
        if limits.states or limits.lookahead.slots:
            raise DescriptionError(
                "policy vllm: neither layers with a state nor drafts; expected engine v1 with like"
            )

    @property
    def transfer_block(self) -> int:
        return self.block

    @property
    def reach(self) -> int:
        return (self.blocks - 1) * self.block

    @property
    def free_slots(self) -> int:
        return self.reach - self.reserved_total

    @property
    def fragmentation(self) -> float:
        return 0.0

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        places = -(-(prompt + output - 1) // self.block)
        return self.block * sum(manager.most(places) for manager in self._managers)

    # what vLLM did

    def mirror(self, request: int, stored: int, held: Sequence[Sequence[Any]]) -> None:
        self.stored[request] = stored
        before = self.tables.get(request) or [_NONE] * len(held)
        if self.windows == [None] and len(held[0]) == len(before[0]):
            return  # blocks stay where they are, but behind a window
        tables = [
            np.array([block.block_id for block in blocks], np.int64) if window is not None
            else np.append(table, [block.block_id for block in blocks[len(table) :]])
            for window, table, blocks in zip(self.windows, before, held, strict=True)
        ]  # fmt: skip
        self.tables[request] = tables
        self.resident[request] = True
        self.reserved[request] = sum(int((each > 0).sum()) for each in tables) * self.block

    def release(self, request: int) -> int:
        self.require(request)
        del self.tables[request]
        total, held = self._total, self._dismiss(request)
        self._total = total  # vLLM's pool counts
        return held

    def count(self, free: int) -> None:
        self._total = (self.blocks - 1 - free) * self.block

    # where they lie

    def units(self, request: int) -> Units:
        self.require(request)
        each = [self.layer_units(request, group) for group in range(len(self.windows))]
        held = [unit.start > 0 for unit in each]
        return Units(*(
            np.concatenate([column[keeps] for column, keeps in zip(columns, held, strict=True)])
            for columns in zip(*each, strict=True)
        ))  # fmt: skip

    def layer_units(self, request: int, group: int) -> Units:
        """See `Allocator.layer_units`; places behind a window name the null block."""
        self.require(request)
        places = -(-int(self.stored[request]) // self.block)
        start = self.block * self.tables[request][group][:places]
        size = np.full(places, self.block, np.int64)
        tokens = size.copy()
        if places:
            tokens[-1] = int(self.stored[request]) - (places - 1) * self.block
        return Units(start, tokens, size)

    def first_kept(self, request: int, group: int = 0) -> int:
        self.require(request)
        table = self.tables[request][group]
        kept = np.flatnonzero(table > 0)
        return int(kept[0] if len(kept) else len(table)) * self.block

    # what others would decide

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        raise self._alone()

    def grow(self, request: int, tokens: int) -> bool:
        raise self._alone()

    def advance(self, requests: IntArray, rounds: int) -> None:
        raise self._alone()

    def headroom(self, requests: IntArray, limit: int) -> int:
        raise self._alone()

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        raise self._alone()

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        return np.zeros(rounds, np.int64)  # steps come one at a time

    @staticmethod
    def _alone() -> DescriptionError:
        return DescriptionError("policy vllm: its blocks are those of vLLM; expected engine: vllm")
