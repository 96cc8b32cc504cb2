"""Paged allocation: blocks of a few tokens from a free list (Kwon et al. 2023, vLLM).

A freed block keeps its content until it is handed out again, and vLLM finds full blocks by what
they and all before them hold (automatic prefix caching), which makes a tree. Modelled are the cases
of serving: a preempted request finds the blocks of its last residence, requests that begin with the
same texts (`Demand.prefix_id`, `above`) hold their full blocks together, counted by reference, and
a turn of a session finds the prompts and answers of those before. Only an unbroken prefix of full
blocks counts. Blocks can be found as soon as they are stored, as in vLLM v1.

Parallel samples of one prompt are sequences of their own. They hold the prompt's full blocks
together; when the first output token is stored, every sample but the first gets a copy of the
prompt's last block if that is not full (copy-on-write).
"""

from __future__ import annotations

from collections import deque
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from hwmodel.specs.accelerator import Paging
from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.block_allocator import BlockOptions, SharingAllocator
from policies.allocators.block_tables import BlockTables
from policies.allocators.capabilities import (
    CopiesOnWrite,
    Drafts,
    KeepsStates,
    Migration,
    Swaps,
)
from policies.allocators.declaration import CHOICES, Range, References
from policies.allocators.free_list import FreeListName
from policies.allocators.kv_groups import WindowKv
from policies.allocators.kv_layout import ByteRuns, KvLayout, Units
from policies.allocators.losses import GROWING
from policies.allocators.prefix_cache import BlockCache
from policies.allocators.state_places import in_block
from policies.requests.requests import IntArray


class PagedOptions(PolicyOptions):
    """Options of `paged`."""

    name: Literal["paged"] = "paged"
    block: Annotated[int, Field(ge=1, le=2048)] | None = None
    """Tokens in a block. None: the device's (`paging.block`), 16 where nothing is known (vLLM's
    default). Above 256 for the sweep `kv-extent` alone, which shows where longer extents no longer
    help."""
    free_list: FreeListName = "fifo"
    """Order of reuse; vLLM v1 has a queue (later versions: blocks without a hash go to its front,
    `split`), v0 a stack. `sorted`, `staged`, `runs` and `buddy` keep blocks together, whatever is
    cached in them; `oldest_runs` begins each run at the block freed first."""
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the blocks, rounded down, that admission leaves free (vLLM v0: 0.01)."""
    idle_watermark: bool = True
    """Whether admission also leaves them free while no request runs (vLLM v0). vLLM v1 from 0.33
    on does not: a request that fits the memory is admitted when it is alone."""
    null_block: bool = False
    """The first block is never handed out (vLLM v1: `BlockPool.null_block`); the watermark is a
    share of the blocks with it."""
    cached_recompute: bool = True
    """A preempted request keeps what is still in its freed blocks (vLLM v1: enable_prefix_caching
    is on by default). False: all is computed again."""
    prefix_caching: bool = True
    """Requests with the same system prompt hold its full blocks together, and turns of a session
    find those of the turns before."""
    window_rules: Literal["0.11", "0.19", "0.23", "0.33"] = "0.33"
    """vLLM version whose rules hold for sliding windows (`policies.allocators.paged_groups`)."""
    states: Literal["unified", "two_pools", "compact"] | None = None
    """Where layers with a state keep it (`policies.allocators.hybrid`): in blocks like those of KV,
    or apart, by SGLang's ratio, or for `max_num_seqs` and one more. None: `unified`, where the
    model has such layers."""
    state_ratio: Annotated[float, Field(gt=0, le=100)] | None = None
    """With `two_pools`: bytes of states over bytes of KV (SGLang: `mamba_full_memory_ratio`). None:
    0.9, its default."""
    indirection: Annotated[float, Field(ge=1, le=10)] = 1.0
    """What looking blocks up costs the kernel: factor on the time of the decode attention. Assumed
    to be nothing, as measured for pages of 128 by bulk copy; see docs/step-time.md."""

    @model_validator(mode="after")
    def _ratio_of_pools(self) -> PagedOptions:
        if self.state_ratio is not None and self.states != "two_pools":
            raise ValueError("state_ratio: only with states: two_pools")
        return self

    @property
    def kernel_cost(self) -> float:
        return self.indirection

    def on_device(self, paging: Paging) -> PagedOptions:
        return self.model_copy(update={"block": paging.block}) if self.block is None else self

    @property
    def samples(self) -> Literal["together", "as_engine", "apart"]:
        # without prefix caching, requests of their own could not hold their prompt together
        return "as_engine" if self.prefix_caching else "apart"

    @property
    def kv_of_windows(self) -> WindowKv:
        return "blocks"


class PagedAllocator(SharingAllocator, CopiesOnWrite, Swaps, Drafts, KeepsStates):
    """`_rows[request]`: rows of the block tables, one for each sample, the first sample's first."""

    Options: ClassVar[type[PolicyOptions]] = PagedOptions
    reading = (
        "blocks of 16 tokens from one free list, preemption by recomputation (Kwon et al. "
        "2023), with vLLM's defaults of the engine's generation"
    )
    losses = GROWING
    searched = {
        "block": Range(1, 2048), "free_list": CHOICES, "watermark": Range(0, 1),
        "idle_watermark": CHOICES, "null_block": CHOICES, "cached_recompute": CHOICES,
        "prefix_caching": CHOICES, "window_rules": CHOICES, "indirection": Range(1, 10),
        "state_ratio": Range(0, 100),
    }  # fmt: skip
    references = References(("static",), ceilings=("ideal",))
    by_request = (*Allocator.by_request, "resident", "_first_row")

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: BlockOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self._tables = BlockTables(self.block, self._list.blocks)
        self._cache = BlockCache(self._tables.uses)
        self._caches = [self._cache]
        self._swapped: dict[int, int] = {}
        self._first_row = np.full(requests, -1, np.int64)
        self._samples: dict[int, list[int]] = {}
        """Rows of the samples after the first, from the first output token on."""
        self._unforked: set[int] = set()
        """Requests of several samples that have no output token yet."""
        self._copies: list[Migration] = []
        self._copied_tokens = 0
        self._fixed = limits.states // self.block * limits.kept_states
        """Blocks of a request that hold states."""
        self.states: dict[int, IntArray] = {}
        """These blocks of residents, group by group."""
        pool = limits.state_pool
        self._free_states = deque(range(pool.slots if pool else 0))
        self._state_slot: dict[int, int] = {}
        """Slots of residents in the pool of states."""
        self._own_groups, self._own_block = limits.drafter
        self.drafter: dict[int, IntArray] = {}
        """Blocks of residents that hold a drafter's KV: int64 (groups, places)."""
        self._barred = np.zeros(0, np.int64)

    def needs(
        self, prompt: IntArray, output: IntArray, samples: IntArray | Literal[1] = 1
    ) -> IntArray:
        most = prompt + output - 1
        if ahead := self.limits.lookahead.slots:
            most = np.maximum(np.minimum(most + ahead, self.limits.max_model_len), most)
        last: IntArray = -(-most // self.block)
        apart = last - prompt // self.block
        own = self._own_groups * -(-most // self._own_block)
        return (last + (samples - 1) * apart + self._fixed + own) * self.block

    def cached(self, request: int, limit: int, demand: Demand | None = None) -> int:
        """See `Caches.cached`; with its `demand`, also for a request not seen before."""
        return len(self._found(request, limit, demand)) * self.block

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        """See `OnDemand.fits`; with its `demand`, blocks that it shares count as found."""
        if demand is None:
            wanted = -(-tokens // self.block) + self._fixed + self._own_wanted(request, tokens)
            return wanted + self._kept_free <= self._list.free
        return self._has_room(demand, tokens, self._found(request, tokens - 1, demand))

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        cached = self._found(request, tokens - 1, demand)
        if not self._has_room(demand, tokens + self._room_behind(tokens), cached):
            return False
        self._admitted(request, demand, len(cached))
        self._first_row[request] = self._tables.add(request)
        if demand.samples > 1:
            self._unforked.add(request)
        self._admit(request, 0, 0, demand.samples)
        if self._fixed:
            self.states[request] = self._list.pop(self._fixed)
            self.reserved_total += self._fixed * self.block
        if (pool := self.limits.state_pool) is not None:
            # one that comes while another, which has ended, still holds its slot gets the padding
            self._state_slot[request] = (
                self._free_states.popleft() if self._free_states else pool.slots
            )
        if self._own_groups:
            self.drafter[request] = np.zeros((self._own_groups, 0), np.int64)
        if len(cached):
            self._hold(request, cached)
        return self.grow(request, tokens - len(cached) * self.block)

    def grow(self, request: int, tokens: int) -> bool:
        """Store `tokens` more: those of the prompt first, then outputs, dealt to the samples in
        turn. False (nothing changes) if there is no room."""
        self._require(request)
        demand = self._demands[request]
        before = int(self.stored[request])
        stored = before + tokens
        end = stored + self._room_behind(stored)
        wanted = max(self._blocks(demand, end) - int(self.reserved[request]) // self.block, 0)
        own = self._own_wanted(request, end)
        if wanted + own > self._list.free:
            return False
        lengths = self._lengths(demand, stored)
        if len(lengths) > 1 and request in self._unforked:
            self._extend(int(self._first_row[request]), demand.prompt)
            self._fork(request, before >= demand.prompt)
        for row, length in zip(self._rows(request), lengths, strict=False):
            self._extend(row, length)
        self._extend_own(request, own)
        self.reserved[request] += wanted * self.block
        self.reserved_total += wanted * self.block
        self.stored[request] = stored
        self._publish(request, demand, before)
        return True

    def drop_first(self, request: int, tokens: int) -> None:
        """So many of its first tokens, in whole blocks, lie elsewhere from now on; what is left is
        not found by others."""
        self._demands[request] = self._demands[request]._replace(
            prefix_id=-1, prefix_tokens=0, session=-1, parent=-1, above=()
        )
        row, many, tables = int(self._first_row[request]), tokens // self.block, self._tables
        if not many:
            return
        held = tables.blocks(row).copy()
        tables.count[row] = tables.runs[row] = 0
        tables.append(row, held[many:])
        tables.tokens[row] -= tokens
        self._free(held[:many], int((self._others[held[:many]] > 0).sum()))
        self.stored[request] -= tokens
        self.reserved[request] -= tokens
        self.reserved_total -= tokens

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        """See `Drafts.store_ahead`; each of one sample. A block that is there already is not taken
        again, so that the slots of rejected drafts are the next ones' (vLLM: `allocate_slots`)."""
        rows = self._first_row[requests]
        ends = self._tables.tokens[rows] + kept + beyond
        wanted = np.maximum(-(-ends // self.block) - self._tables.count[rows], 0)
        own = np.zeros(len(rows), np.int64)
        if self._own_groups:
            pairs = zip(requests.tolist(), ends.tolist(), strict=True)
            own[:] = [self._own_wanted(one, end) for one, end in pairs]
        fitting = int(np.searchsorted(np.cumsum(wanted + own), self._list.free, "right"))
        for at in np.flatnonzero((wanted + own)[:fitting]).tolist():
            if wanted[at]:
                self._tables.hand_out(int(rows[at]), self._list.pop(int(wanted[at])))
            self._extend_own(int(requests[at]), int(own[at]))
        held, kept = requests[:fitting], kept[:fitting]
        self._tables.tokens[rows[:fitting]] += kept
        self.stored[held] += kept
        self.reserved[held] += wanted[:fitting] * self.block
        self.reserved_total += int(wanted[:fitting].sum()) * self.block
        return fitting

    def adopt(self, request: int, demand: Demand, blocks: IntArray, tokens: int) -> bool:
        """Admit a request whose `tokens` lie in these blocks; False where the memory ends before
        them. Others may hold them, too."""
        if blocks.max(initial=0) >= self._list.blocks:
            return False
        self._admitted(request, demand, 0)
        row = self._first_row[request] = self._tables.add(request)
        self._admit(request, 0, 0, demand.samples)
        self._tables.uses[blocks] += 1
        self._hold(request, blocks)
        self._tables.tokens[row] = self.stored[request] = tokens
        return True

    def forget(self) -> None:
        """What free blocks hold is not found again."""
        self._tables.uses += 1

    def free_blocks(self) -> IntArray:
        """Those that are free, in ascending order."""
        return np.flatnonzero(self._list.is_free(np.arange(self._list.blocks)))

    def bar(self, blocks: IntArray) -> int | None:
        """These, and no others, are not handed out from now on. What lies in them is copied to
        free blocks (`copies`), and is not found again: tokens; None (nothing changes): no room."""
        before, behind = self._barred, np.setdiff1d(blocks, self._barred)
        free = self._list.is_free(behind)
        held, spare = behind[~free], np.setdiff1d(before, blocks)
        if len(held) > self._list.free + len(spare) - int(free.sum()):
            return None
        self._barred = blocks
        self._list.take(behind[free])
        self._list.push(spare)
        names, fresh = np.arange(self._list.blocks), self._list.pop(len(held))
        names[held] = fresh
        self._tables.uses[np.concatenate((held, fresh))] += 1
        self._others[fresh], self._others[held] = self._others[held], 0
        copied: dict[int, Migration] = {}
        for request in np.flatnonzero(self.resident).tolist() if len(held) else ():
            for row in self._rows(request):
                start, tokens, _ = self._row_units(row, 0)
                table, size = start // self.block, self.block
                for at in np.flatnonzero(names[table] != table).tolist():
                    source, target = int(start[at]), int(names[table[at]]) * size
                    copied[source] = Migration(request, source, target, int(tokens[at]), size)
                self._tables.replace(row, 0, names[table])
        self._copies += copied.values()
        return sum(copy.tokens for copy in copied.values())

    def release_known(self, request: int, tokens: int) -> int:
        self._require(request)
        demand = self._demands[request]
        common = demand.prompt // self.block
        unknown = int(self.stored[request]) - tokens
        first, *others = self._rows(request)
        for row in others:
            own = self._tables.blocks(row)[common:]
            self._free(own, max(self._hashed(row, demand, unknown) - common, 0))
            self._tables.remove(row)
        if self._fixed:  # each group on its own, tail first, before the KV
            for group in np.split(self.states.pop(request), self._fixed // self.limits.kept_states):
                self._list.push(group[::-1], len(group))
            self.reserved_total -= self._fixed * self.block
        if (pool := self.limits.state_pool) is not None:
            slot = self._state_slot.pop(request)
            if slot < pool.slots:
                self._free_states.append(slot)
        held, hashed = self._tables.blocks(first), self._hashed(first, demand, unknown)
        if self._keeps(demand):
            # one sample's outputs are not another's: what several find again is the prompt
            part = self._parts(request, demand, hashed)[-1]
            start = max(part.start, self._reused.get(request, 0))
            last = min(hashed, common) if others else hashed
            self._cache.keep(part.key, held[start:last], start)
        self._reused.pop(request, None)
        self._free(held, hashed)
        if self._own_groups:
            for group in self.drafter.pop(request):
                self._list.push(group[::-1], len(group))
                self.reserved_total -= len(group) * self.block
        self._tables.remove(first)
        self._first_row[request] = -1
        self._samples.pop(request, None)
        self._unforked.discard(request)
        return self._dismiss(request)

    def finished(self, request: int, prompt: int, output: int) -> None:
        super().finished(request, prompt, output)
        self._swapped.pop(request, None)

    def state_runs(self, request: int, copy: int, nth: int, size: int) -> ByteRuns:
        limits = self.limits
        if (pool := limits.state_pool) is not None:
            return pool.runs(self._state_slot[request], copy, nth * limits.state_bytes, size)
        blocks = self.states[request].reshape(-1, limits.kept_states)
        place, group = divmod(nth, len(blocks))
        return in_block(self.layout, int(blocks[group, copy]), self.block, place, size)

    def swap_out(self, request: int) -> int:
        stored = int(self.stored[request])
        self.release(request)
        self._cache.drop(("own", request))
        self._swapped[request] = stored
        return stored

    def swap_in(self, request: int) -> bool:
        if (tokens := self._swapped.get(request)) is None:
            raise KeyError(f"request {request} is not swapped out")
        if not self.reserve(request, self._demands[request], tokens):
            return False
        del self._swapped[request]
        return True

    def copies(self) -> list[Migration]:
        """Copies on write since the last call: part of a prompt's last block, for one sample."""
        made, self._copies = self._copies, []
        return made

    def headroom(self, requests: IntArray, limit: int) -> int:
        if self._forks_among(requests):
            return self._headroom_before_forks(requests, limit)
        return self._tables.rounds(self._all_rows(requests), self._list.free, limit)

    def advance(self, requests: IntArray, rounds: int) -> None:
        if rounds and self._forks_among(requests):
            for request in requests.tolist():
                self.grow(request, self._demands[request].samples)
            rounds -= 1
        rows = self._all_rows(requests)
        wanted = self._tables.wanted(rows, rounds)
        self._tables.advance(rows, rounds, self._list.pop_apart(wanted), self.stored, self.reserved)
        self.reserved_total += wanted * self.block

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        return self.block * self._tables.grown(self._all_rows(requests), rounds)

    def units(self, request: int) -> Units:
        """The blocks of the first sample, then those that each further sample has for itself; a
        block's tokens are all that lie in it, copies too."""
        self._require(request)
        first, *others = self._rows(request)
        parts = [self._row_units(first, 0)]
        common = self._demands[request].prompt // self.block
        parts += [self._row_units(row, common) for row in others]
        return Units(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def extent_count(self, requests: IntArray) -> int:
        if not self._samples:
            return int(self._tables.runs[self._first_row[requests]].sum())
        return super().extent_count(requests)

    def report(self) -> dict[str, float]:
        """As `SharingAllocator.report`, and tokens copied on write."""
        found = {"prefix_asked_tokens": 0.0, "prefix_hit_tokens": 0.0} | super().report()
        shares = found | {"copied_tokens": float(self._copied_tokens)}
        return shares if self._asked_tokens or self._copied_tokens else {}

    def _forks_among(self, requests: IntArray) -> bool:
        """Whether the next output token of some of `requests` makes copies."""
        return bool(self._unforked) and not self._unforked.isdisjoint(requests.tolist())

    def _rows(self, request: int) -> list[int]:
        return [int(self._first_row[request]), *self._samples.get(request, ())]

    def _all_rows(self, requests: IntArray) -> IntArray:
        """Rows of all samples of `requests`, in order."""
        if not self._samples:
            return self._first_row[requests]
        rows = [row for request in requests.tolist() for row in self._rows(request)]
        return np.array(rows, np.int64)

    def _row_units(self, row: int, skipped: int) -> Units:
        tokens = int(self._tables.tokens[row])
        return self._units_of(self._tables.blocks(row)[skipped:], tokens, skipped)

    def _lengths(self, demand: Demand, stored: int) -> list[int]:
        """Tokens of each sample that holds any when the request stores `stored`: the prompt's
        belong to all, outputs are dealt in turn."""
        outputs = stored - demand.prompt
        if demand.samples == 1 or outputs <= 0:
            return [stored]
        turns = range(demand.samples - 1, -1, -1)
        return [demand.prompt + (outputs + turn) // demand.samples for turn in turns]

    def _blocks(self, demand: Demand, stored: int) -> int:
        """Blocks of a request that stores `stored` tokens."""
        lengths = self._lengths(demand, stored)
        common = (len(lengths) - 1) * (demand.prompt // self.block)
        return sum(-(-length // self.block) for length in lengths) - common

    def _found(self, request: int, limit: int, demand: Demand | None) -> IntArray:
        """Blocks in memory that hold the first tokens of a request, at most `limit` of them."""
        found: list[IntArray] = []
        demand, wanted = demand or self._demands.get(request), limit // self.block
        if less := demand is not None and self.limits.lookahead.hit == "less_one":
            limit = max(limit, demand.prompt + demand.samples * demand.generated - 1)
        for key, start, end in self._parts(request, demand, limit // self.block):
            blocks, alive = self._cache.find(key)
            alive = alive[start:end]
            whole = len(alive) if alive.all() else int(alive.argmin())
            found.append(blocks[start : start + whole])
            if whole < end - start:
                break
        blocks = np.concatenate(found)
        return blocks[:-1][:wanted] if less else blocks

    def _has_room(self, demand: Demand, tokens: int, cached: IntArray) -> bool:
        """Whether a request can be admitted that finds these blocks; free ones are used up, too."""
        held = int((~self._list.is_free(cached)).sum()) if len(cached) else 0
        wanted = self._blocks(demand, tokens) + self._fixed + self._own_wanted(-1, tokens)
        return wanted - held + self._kept_free <= self._list.free

    def _own_wanted(self, request: int, tokens: int) -> int:
        """Further blocks of a drafter's groups for so many tokens of a request."""
        if not self._own_groups:
            return 0
        held = self.drafter[request].shape[1] if request in self.drafter else 0
        return self._own_groups * max(-(-tokens // self._own_block) - held, 0)

    def _extend_own(self, request: int, blocks: int) -> None:
        """So many more of a drafter's groups, as many of each, one group after another."""
        if blocks:
            new = self._list.pop(blocks).reshape(self._own_groups, -1)
            self.drafter[request] = np.concatenate((self.drafter[request], new), axis=1)
            self.reserved_total += blocks * self.block

    def _hold(self, request: int, cached: IntArray) -> None:
        """These blocks, which hold their content already, are the request's first ones."""
        free = self._list.is_free(cached)
        self._list.take(cached[free])
        self._others[cached[~free]] += 1
        row = int(self._first_row[request])
        self._tables.append(row, cached)
        self._tables.tokens[row] = self.stored[request] = len(cached) * self.block
        self.reserved[request] = len(cached) * self.block
        self.reserved_total += int(free.sum()) * self.block

    def _hashed(self, row: int, demand: Demand, unknown: int) -> int:
        """How many blocks of a row can be found again once they are free; its last `unknown` tokens
        count for none."""
        full = max(int(self._tables.tokens[row]) - unknown, 0) // self.block
        if self._keeps(demand):
            return full
        return self._parts(-1, demand, full)[-1].start

    def _publish(self, request: int, demand: Demand, before: int) -> None:
        """Others may find full blocks of a prompt from now on, which held `before` tokens."""
        if before >= (demand.prompt if demand.parent >= 0 else demand.prefix_tokens):
            return
        start = before // self.block
        row = int(self._first_row[request])
        held = self._tables.blocks(row)
        full = int(self._tables.tokens[row]) // self.block
        for part in self._parts(request, demand, full)[:-1]:
            if (first := max(start, part.start)) < part.end:
                self._cache.keep(part.key, held[first : part.end], first)

    def _extend(self, row: int, tokens: int) -> None:
        """So many tokens lie in a row; there is room."""
        wanted = -(-(tokens + self._room_behind(tokens)) // self.block)
        wanted -= int(self._tables.count[row])
        if wanted > 0:
            self._tables.hand_out(row, self._list.pop(wanted))
        self._tables.tokens[row] = tokens

    def _fork(self, request: int, copied: bool) -> None:
        """Rows for the samples after the first. What lies in the prompt's last block, if that is
        not full, is copied for each, or is computed again with the outputs of a preempted request.
        """
        demand = self._demands[request]
        whole, part = divmod(demand.prompt, self.block)
        held = self._tables.blocks(int(self._first_row[request])).copy()
        rows = [self._tables.add(request) for _ in range(demand.samples - 1)]
        for row in rows:
            self._tables.append(row, held[:whole])
            self._extend(row, demand.prompt)
            if part and copied:
                source, target = int(held[whole]), int(self._tables.blocks(row)[whole])
                copy = Migration(
                    request, source * self.block, target * self.block, part, self.block
                )
                self._copies.append(copy)
                self._copied_tokens += part
        self._samples[request] = rows
        self._unforked.discard(request)

    def _headroom_before_forks(self, requests: IntArray, limit: int) -> int:
        """As `headroom` where some samples have no rows yet: blocks are counted, not looked at."""
        asked = [(self._demands[r], int(self.stored[r])) for r in requests.tolist()]
        held = int(self.reserved[requests].sum()) // self.block
        low, high = 0, limit
        while low < high:
            rounds = (low + high + 1) // 2
            wanted = sum(self._blocks(d, stored + rounds * d.samples) for d, stored in asked) - held
            low, high = (rounds, high) if wanted <= self._list.free else (low, rounds - 1)
        return low
