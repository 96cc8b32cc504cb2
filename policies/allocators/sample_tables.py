"""Block tables of requests: a row for each sample of a request, in each group of layers.

Parallel samples of one prompt are sequences of their own. They hold the prompt's full blocks
together; when the first output token is stored, every sample but the first gets a copy of the
prompt's last block if that is not full (copy-on-write), in each group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.allocators.allocator import Allocator, Demand, Limits
from policies.allocators.beside_blocks import BesideBlocks
from policies.allocators.block_allocator import BlockOptions, SharingAllocator
from policies.allocators.block_tables import BlockTables
from policies.allocators.capabilities import CopiesOnWrite, Migration
from policies.allocators.columns import sum_of
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.prefix_cache import BlockCache
from policies.allocators.sliding_windows import SlidingWindows, kept_of
from policies.requests.requests import IntArray

NO_BLOCKS: IntArray = np.zeros(0, np.int64)


class SampleTables(SharingAllocator, CopiesOnWrite):
    """`_rows[request]`: rows of the block tables, one for each sample, the first sample's first.
    `groups`: of layers, each of which has a block at each place but those that `_windows` says."""

    holds_states = True
    by_request = (*Allocator.by_request, "resident", "_first_row")

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: BlockOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self._windows = SlidingWindows(layout, requests, limits, self.block, options.window_rules)
        self.groups = len(kept_of(layout))
        self._tables = BlockTables(self.block, self._list.blocks, self.groups)
        self._beside = BesideBlocks(self._list, limits, self.block, self._tables.uses)
        saved = self._beside.state_groups if limits.saves_states else 0
        self._state_caches = [BlockCache(self._tables.uses) for _ in range(saved)]
        """As `_caches`, of the states at the ends of blocks."""
        self._caches = [BlockCache(self._tables.uses) for _ in range(self.groups)]
        self._first_row = np.full(requests, -1, np.int64)
        self._asked: tuple[IntArray | None, IntArray] = (None, NO_BLOCKS)
        """The requests that were asked for last, and their rows: a step asks several times."""
        self._samples: dict[int, list[int]] = {}
        """Rows of the samples after the first, from the first output token on."""
        self._unforked: set[int] = set()
        """Requests of several samples that have no output token yet."""
        self._copies: list[Migration] = []
        self._copied_tokens = 0
        self._none_found: IntArray = np.zeros((self.groups, 0), np.int64)

    @property
    def states(self) -> dict[int, IntArray]:
        """Blocks of residents that hold states, group by group."""
        return self._beside.states

    @property
    def drafter(self) -> dict[int, IntArray]:
        """Blocks of residents that hold a drafter's KV: int64 (groups, places)."""
        return self._beside.drafter

    def copies(self) -> list[Migration]:
        """Copies on write since the last call: part of a prompt's last block, for one sample."""
        made, self._copies = self._copies, []
        return made

    def units(self, request: int) -> Units:
        """Group by group, the blocks of the first sample, then those that each further sample has
        for itself; a block's tokens are all that lie in it, copies too."""
        self._require(request)
        first, *others = self._rows(request)
        common = self._demands[request].prompt // self.block
        parts = []
        for group in range(self.groups):
            gone = self._windows.gone_of(request, group)
            parts.append(self._row_units(first, gone, group))
            parts += [self._row_units(row, max(common, gone), group) for row in others]
        return Units(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def layer_units(self, request: int, group: int) -> Units:
        """See `Allocator.layer_units`; places that a window has given up name the null block."""
        if self._uniform:
            return self.units(request)
        first, *others = self._rows(request)
        common = self._demands[request].prompt // self.block
        parts = [self._row_units(first, 0, group)]
        parts += [self._row_units(row, common, group) for row in others]
        return Units(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def first_kept(self, request: int, group: int = 0) -> int:
        self._require(request)
        return self._windows.gone_of(request, group) * self.block

    def extent_count(self, requests: IntArray) -> int:
        if not self._samples and self._uniform:
            return sum_of(self._tables.runs, self._first_row[requests])
        return super().extent_count(requests)

    def report(self) -> dict[str, Any]:
        """As `SharingAllocator.report`, and tokens copied on write; of a model with states, why no
        prefix is found where none is."""
        found = {"prefix_asked_tokens": 0.0, "prefix_hit_tokens": 0.0} | super().report()
        shares: dict[str, Any] = found | {"copied_tokens": float(self._copied_tokens)}
        if self._asked_tokens and self.limits.state_bytes and not self._state_caches:
            shares["prefixes"] = "not found: of layers with a state that of the last token is kept"
        return shares if self._asked_tokens or self._copied_tokens else {}

    @property
    def _uniform(self) -> bool:
        """Whether there is one group, which keeps everything."""
        return self.groups == 1 and not self._windows.near

    def _forks_among(self, requests: IntArray) -> bool:
        """Whether the next output token of some of `requests` makes copies."""
        return not self._unforked.isdisjoint(requests.tolist())

    def _rows(self, request: int) -> list[int]:
        return [int(self._first_row[request]), *self._samples.get(request, ())]

    def _set_row(self, request: int, row: int) -> None:
        """The first sample of a request has this row; -1: none."""
        self._first_row[request] = row
        self._asked = None, NO_BLOCKS

    def _all_rows(self, requests: IntArray) -> IntArray:
        """Rows of all samples of `requests`, in order."""
        if not self._samples:
            if self._asked[0] is not requests:
                self._asked = requests, self._first_row[requests]
            return self._asked[1]
        rows = [row for request in requests.tolist() for row in self._rows(request)]
        return np.array(rows, np.int64)

    def _row_units(self, row: int, skipped: int, group: int = 0) -> Units:
        tokens = int(self._tables.tokens[row])
        return self._units_of(self._tables.blocks(row, group)[skipped:], tokens, skipped)

    def _lengths(self, demand: Demand, stored: int) -> list[int]:
        """Tokens of each sample that holds any when the request stores `stored`: the prompt's
        belong to all, outputs are dealt in turn."""
        outputs = stored - demand.prompt
        if demand.samples == 1 or outputs <= 0:
            return [stored]
        turns = range(demand.samples - 1, -1, -1)
        return [demand.prompt + (outputs + turn) // demand.samples for turn in turns]

    def _places(self, demand: Demand, stored: int) -> int:
        """Places in a group of a request that stores `stored` tokens, common ones once."""
        if demand.samples == 1:
            return -(-stored // self.block)
        lengths = self._lengths(demand, stored)
        common = (len(lengths) - 1) * (demand.prompt // self.block)
        return sum(-(-length // self.block) for length in lengths) - common

    def _places_held(self, request: int) -> int:
        """As `_places`, of what a request holds now, with those given up."""
        if not (others := self._samples.get(request)):
            return int(self._tables.count[self._first_row[request]])
        common = self._demands[request].prompt // self.block
        count = self._tables.count[self._rows(request)]
        return int(count.sum()) - len(others) * common

    def _shortest(self, requests: IntArray) -> Any:
        """Tokens of the shortest sample of each request, int64 (n,)."""
        if not self._samples:
            return self.stored[requests]
        return self._tables.tokens[[self._rows(request)[-1] for request in requests.tolist()]]

    def _apart(self, requests: IntArray, places: IntArray) -> IntArray:
        """Blocks that the samples of `requests` together have at the first `places` of each in a
        group, common ones once; int64 (n,), or (m, n) for m rows of places."""
        if not self._samples:
            return places
        asked = requests.tolist()
        common = np.array([self._demands[request].prompt // self.block for request in asked])
        many = np.array([1 + len(self._samples.get(request, ())) for request in asked])
        return np.minimum(places, common) + many * np.maximum(places - common, 0)

    def _extend(self, row: int, tokens: int) -> None:
        """So many tokens lie in a row; there is room."""
        wanted = -(-(tokens + self._room_behind(tokens)) // self.block)
        wanted -= int(self._tables.count[row])
        if wanted > 0:
            self._hand_out(row, wanted)
        self._tables.tokens[row] = tokens

    def _hand_out(self, row: int, places: int) -> None:
        """So many places more of a row get a block in each group that keeps them."""
        if not self._windows.near:
            self._tables.hand_out(row, self._list.pop(places * self.groups))
            return
        kept = self._windows.of(int(self._tables.owner[row]))
        if len(kept) == self.groups:
            self._tables.hand_out(row, self._list.pop(places * self.groups))
            return
        blocks = np.zeros((self.groups, places), np.int64)
        blocks[kept] = self._list.pop(places * len(kept)).reshape(len(kept), places)
        self._tables.uses[blocks[kept]] += 1
        self._tables.append(row, blocks.ravel())

    def _fork(self, request: int, copied: bool) -> None:
        """Rows for the samples after the first. What lies in the prompt's last block, if that is
        not full, is copied for each, or is computed again with the outputs of a preempted request.
        """
        demand, tables = self._demands[request], self._tables
        whole, part = divmod(demand.prompt, self.block)
        first = int(self._first_row[request])
        held = [tables.blocks(first, group).copy() for group in range(self.groups)]
        rows = [tables.add(request) for _ in range(demand.samples - 1)]
        for row in rows:
            tables.append(row, np.concatenate([blocks[:whole] for blocks in held]))
            self._extend(row, demand.prompt)
            if not (part and copied):
                continue
            for group, blocks in enumerate(held):
                places = int(blocks[whole]), int(tables.blocks(row, group)[whole])
                source, target = (place * self.block for place in places)
                self._copies.append(Migration(request, source, target, part, self.block))
            self._copied_tokens += part
        self._samples[request] = rows
        self._unforked.discard(request)
