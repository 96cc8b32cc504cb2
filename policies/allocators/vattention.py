"""vAttention: contiguous virtual addresses over physical frames that are mapped as requests grow
(Prabhu et al. 2024, arXiv 2405.04437; microsoft/vattention).

K and V of each layer are a virtual tensor with a place for each request id, as long as the longest
context. Physical memory is a pool of groups of frames, one for each tensor, last in first out. A
request takes a free id, and a group is mapped behind its last one whenever it has filled that. A
finished request's groups stay mapped to its id, for the next request that takes it (deferred
reclaim). Groups without a token count as free, since they are unmapped when others need them, also
those of an id that a shorter request has taken over (assumed). When no group is left, a request is
preempted.

With `slicing` K and V are two tensors with all layers of a token side by side: groups of two frames
and as many times fewer tokens, so less waste; a layer is read in strides.

A frame holds whole tokens, rounded down as in the code. Frames of a tensor lie in a part of the
memory of their own (assumed: the driver's choice is not public).
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.description.units import Nanoseconds
from hwmodel.kernel.extents import Frames
from hwmodel.specs.kv_order import LAYOUTS, Dims
from hwmodel.specs.virtual_memory import Frame
from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.capabilities import Drafts, KeepsStates, Maps, OnDemand, Reports, Swaps
from policies.allocators.declaration import CHOICES, Range, References
from policies.allocators.kv_layout import ByteRuns, KvLayout, Units
from policies.allocators.losses import GROWING
from policies.allocators.state_places import cut
from policies.requests.requests import FloatArray, IntArray

SLICED: Dims = ("kv", "unit", "token", "layer", "head")
"""Two tensors, with all layers of a token side by side."""
NO_PREFIXES = "not found: a request's place in a tensor is its own, and no frame is mapped twice"
"""In the authors' code."""
LOW = 0.1
"""Share of the frames that `reclaim: low` keeps unmapped (paper)."""


class VattentionOptions(PolicyOptions):
    """Options of `vattention`."""

    kv_layout = LAYOUTS["layer_kv_token"]
    name: Literal["vattention"] = "vattention"
    frame: Frame = 64 << 10
    """64 (the paper's default), 128 or 256 KiB with the authors' driver, 2 MiB with NVIDIA's."""
    slicing: bool = False
    """All layers of a token side by side in one tensor ("megacache")."""
    reclaim: Literal["demand", "low"] = "demand"
    """When groups without tokens are unmapped, highest id first: when a request finds none in the
    pool (the code, with which the published figures were measured), or as soon as the pool holds
    less than a tenth of all (the paper). Unmapping takes no time (assumed)."""
    growth: Literal["background", "synchronous"] = "background"
    """`background`: the frames that decoding requests need are mapped during the step before; what
    takes longer than a step delays it. Prompts wait for theirs (assumed). `synchronous`: so does
    every step."""
    map_cost: Nanoseconds = 40_000.0
    """To map a frame and grant access to it (paper: about 40 us)."""


class VattentionAllocator(Allocator, OnDemand, Maps, Reports, Drafts, KeepsStates, Swaps):
    """`_groups[id]`: groups mapped to each request id, in token order, the first `_needed[id]` of
    which are in use: `_fixed` by states (assumed, as the paper's models have none), the others by
    tokens. `block`: tokens in a group. Raises DescriptionError for a layout that is not
    of whole tensors, and where no group fits."""

    Options = VattentionOptions
    reading = (
        "frames of 64 KiB mapped in the background, freed ones left to the next request (Prabhu et "
        "al. 2024)"
    )
    losses = GROWING
    searched = {
        "frame": CHOICES,
        "slicing": CHOICES,
        "reclaim": CHOICES,
        "growth": CHOICES,
        "map_cost": Range(0, 1e9),
    }
    references = References(("static", "paged"), ceilings=("ideal",))
    holds_states = True
    options: VattentionOptions

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: VattentionOptions
    ) -> None:
        if layout.dims != LAYOUTS["layer_kv_token"] or layout.pad_bytes:
            raise DescriptionError(
                "kv_layout: policy vattention has tensors of its own; expected layer_kv_token"
            )
        if layout.apart is not None or layout.parts > 1 or layout.index_bytes:
            raise DescriptionError(
                "policy vattention: its tensors hold as many tokens of every layer; expected KV "
                "without parts that lie apart, a model without kept windows, attention without "
                "an index"
            )
        inside = layout.layers if options.slicing else 1
        self.tensors = layout.halves * layout.layers // inside
        self.block = options.frame // (inside * layout.half_bytes)
        groups = layout.bytes // (self.tensors * options.frame)
        if not self.block or not groups:
            raise DescriptionError(
                f"policy.frame: {self.tensors} frames of {options.frame} B, one a tensor, do not "
                f"fit the KV region of {layout.bytes} B, or hold no token"
            )
        dims = SLICED if options.slicing else layout.dims
        own = replace(layout, slots=groups * self.block, dims=dims)
        super().__init__(own, requests, limits, options)
        self.frame_bytes = options.frame
        self._pool = list(range(groups - 1, -1, -1))
        self._groups: list[list[int]] = []
        self._needed: list[int] = []
        self._spare: list[int] = []
        """Ids that may have more groups than they need, negative: a heap, the highest first."""
        self._free_ids: set[int] = set()
        self._id = np.full(requests, -1, np.int64)
        self._runs = np.zeros(requests, np.int64)
        self._virtual = np.zeros(groups, np.int64)
        """Where each group that is mapped lies: its id times `_span`, and its number there."""
        self._away: dict[int, int] = {}
        """Tokens of requests that are swapped out."""
        self._asked = False
        """Whether a request had a prefix in common with others."""
        self._fixed = -(-limits.states // self.block) * limits.kept_states
        self._span = self._fixed + -(-max(limits.max_model_len, self.slots) // self.block)
        self._low = int(LOW * groups) if options.reclaim == "low" else 0
        self._now = self._behind = 0
        """Groups mapped since `charged`: waited for, or behind a step."""
        self._mapped = self._taken = 0

    @property
    def transfer_block(self) -> int:
        return self.block

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        most = prompt + output - 1
        if ahead := self.limits.lookahead.slots:
            most = np.maximum(np.minimum(most + ahead, self.limits.max_model_len), most)
        needed: IntArray = self._in_use(most) * self.block
        return needed

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        return self._in_use(tokens) * self.block <= self.free_slots

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        if not self.fits(tokens):
            return False
        self._id[request] = self._fitting_id(self._in_use(tokens))
        self._asked |= demand.prefix_id >= 0 or demand.session >= 0
        self._admit(request, 0, 0)
        return self.grow(request, tokens)

    def swap_out(self, request: int) -> int:
        self.require(request)
        stored = int(self.stored[request])
        self._away[request] = stored
        self.release(request)
        return stored

    def swap_in(self, request: int) -> bool:
        tokens = self._away[request]
        if not self.fits(tokens):
            return False
        del self._away[request]
        self._id[request] = self._fitting_id(self._in_use(tokens))
        self._admit(request, 0, 0)
        return self.grow(request, tokens)

    def grow(self, request: int, tokens: int) -> bool:
        self.require(request)
        stored = int(self.stored[request]) + tokens
        lacking = self._in_use(stored) - int(self.reserved[request]) // self.block
        if lacking * self.block > self.free_slots:
            return False
        self._now += sum(self._take(request) for _ in range(lacking))
        self.stored[request] = stored
        return True

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        """See `Drafts.store_ahead`. Frames behind rejected drafts are the next step's."""
        for at, (request, tokens) in enumerate(zip(requests.tolist(), kept.tolist(), strict=True)):
            end = int(self.stored[request]) + tokens + int(beyond[at])
            lacking = self._in_use(end) - int(self.reserved[request]) // self.block
            if lacking * self.block > self.free_slots:
                return at
            self._behind += sum(self._take(request) for _ in range(lacking))
            self.stored[request] += tokens
        return len(requests)

    def release(self, request: int) -> int:
        self.require(request)
        left = int(self._id[request])
        self._needed[left] = self._runs[request] = 0
        self._free_ids.add(left)
        heapq.heappush(self._spare, -left)
        self._keep_low()
        return self._dismiss(request)

    def state_runs(self, request: int, copy: int, nth: int, size: int) -> ByteRuns:
        each = self._fixed // self.limits.kept_states
        groups = self._groups[int(self._id[request])][copy * each : (copy + 1) * each]
        whole = np.full(len(groups), self.block, np.int64)
        units = Units(np.array(groups, np.int64) * self.block, whole, whole)
        layers = [self.layout.extents(units, layer, None) for layer in range(self.layout.layers)]
        runs = ByteRuns(*(np.concatenate(column) for column in zip(*layers, strict=True)))
        return cut(runs, nth * self.limits.state_bytes, size)

    def units(self, request: int) -> Units:
        self.require(request)
        held = int(self._id[request])
        groups = self._groups[held][self._fixed : self._needed[held]]
        start = np.array(groups, np.int64) * self.block
        tokens = np.clip(self.stored[request] - np.arange(len(start)) * self.block, 0, self.block)
        return Units(start, tokens, np.full(len(start), self.block, np.int64))

    def headroom(self, requests: IntArray, limit: int) -> int:
        low, high = 0, limit
        free = self.free_slots // self.block
        while low < high:
            rounds = (low + high + 1) // 2
            fits = self._lacking(requests, rounds).sum() <= free
            low, high = (rounds, high) if fits else (low, rounds - 1)
        return low

    def taken(self, requests: IntArray, rounds: int) -> int:
        return int(self._lacking(requests, rounds).sum()) * self.block

    def advance(self, requests: IntArray, rounds: int) -> None:
        who, _, _ = self._growth(requests, rounds)
        self._behind += sum(self._take(request) for request in who.tolist())
        self.stored[requests] += rounds

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        left = np.arange(rounds - 1, -1, -1)[:, None]
        held = self._in_use(self.stored[requests] - left) * self.block
        fewer: IntArray = (self.reserved[requests] - held).sum(axis=1)
        return fewer

    def stalls(self, requests: IntArray, steps_s: FloatArray) -> FloatArray:
        behind = np.zeros(len(steps_s))
        behind[0] = self._behind
        who, when, _ = self._growth(requests, len(steps_s) - 1)
        if len(who):
            behind += np.bincount(when + 1, self._mapping(who), minlength=len(behind))
        seconds = self.tensors * self.options.map_cost * 1e-9
        waited = behind * seconds
        if self.options.growth == "background":
            waited = np.maximum(waited - steps_s, 0)
        waited[0] += self._now * seconds
        return waited

    def _mapping(self, who: IntArray) -> list[bool]:
        """Whether each of these further groups will have to be mapped, as `_take` finds it when its
        turn comes: until then others may have taken what its id had mapped."""
        have, needed = [len(groups) for groups in self._groups], self._needed.copy()
        pool, spare, ids = len(self._pool), self._spare.copy(), []
        for held in self._id[who].tolist():
            new = have[held] == needed[held]
            needed[held] += 1
            have[held] += new
            pool -= new
            while (pool < 0 or pool < self._low) and spare:
                if have[-spare[0]] > needed[-spare[0]]:
                    have[-spare[0]] -= 1
                    pool += 1
                else:
                    heapq.heappop(spare)
            ids.append(new)
        return ids

    def charged(self) -> None:
        self._now = self._behind = 0

    def frames(self) -> Frames:
        plane = np.arange(self.tensors)[:, None] * (self._span * (len(self._groups) + 1))
        size = self.layout.bytes // (self.tensors * len(self._virtual))
        return Frames(self.layout.base, size, (plane + self._virtual).ravel())

    def extent_count(self, requests: IntArray) -> int:
        return int(self._runs[requests].sum())

    def report(self) -> dict[str, Any]:
        """Frames mapped, and the share of those used that were found mapped; why no prefix is
        found where requests have some."""
        found = 1 - self._mapped / max(self._taken, 1)
        shares = {"mapped_frames": float(self._mapped * self.tensors), "found_mapped_share": found}
        return shares | ({"prefixes": NO_PREFIXES} if self._asked else {})

    def _in_use(self, tokens: Any) -> Any:
        """Groups of a request of so many tokens: an int, or int64 (n,)."""
        return self._fixed + -(-tokens // self.block)

    def _lacking(self, requests: IntArray, rounds: int) -> IntArray:
        """Groups that each of `requests` lacks to store `rounds` tokens more."""
        stored = self.stored[requests] + rounds
        lacking: IntArray = self._in_use(stored) - self.reserved[requests] // self.block
        return np.maximum(lacking, 0)

    def _growth(self, requests: IntArray, rounds: int) -> tuple[IntArray, IntArray, IntArray]:
        """(request, round, how many before it) of each group that `requests` need in `rounds`
        rounds, in order."""
        lacking = self._lacking(requests, rounds)
        place = np.repeat(np.arange(len(requests)), lacking)
        nth = np.arange(len(place)) - np.repeat(np.cumsum(lacking) - lacking, lacking)
        who = requests[place]
        behind = self.reserved[who] - self._fixed * self.block
        first = behind + nth * self.block  # token that the group is needed for
        when = first - self.stored[who]
        order = np.lexsort((nth, place, when))
        return who[order], when[order], nth[order]

    def _take(self, request: int) -> bool:
        """A group more for a request, of which there is one; whether it had to be mapped."""
        held = int(self._id[request])
        groups, at = self._groups[held], self._needed[held]
        new = len(groups) == at
        if new:
            if not self._pool:
                self._reclaim()
            group = self._pool.pop()
            self._virtual[group] = held * self._span + at
            groups.append(group)
        self._taken += 1
        self._mapped += new
        self._needed[held] += 1
        if at >= self._fixed:
            self._runs[request] += at == self._fixed or groups[at - 1] + 1 != groups[at]
        self.reserved[request] += self.block
        self.reserved_total += self.block
        self._keep_low()
        return new

    def _keep_low(self) -> None:
        while len(self._pool) < self._low and self._reclaim():
            pass

    def _reclaim(self) -> bool:
        """Unmap the last group that the highest id does not need; whether any had one."""
        while self._spare:
            held = -self._spare[0]
            if len(self._groups[held]) > self._needed[held]:
                self._pool.append(self._groups[held].pop())
                return True
            heapq.heappop(self._spare)
        return False

    def _fitting_id(self, wanted: int) -> int:
        """A free id: of those with so many groups the one with the fewest, else the one with the
        most; a new one where none is free."""
        if not self._free_ids:
            self._groups.append([])
            self._needed.append(0)
            return len(self._groups) - 1
        have = [(len(self._groups[each]), each) for each in self._free_ids]
        chosen = min((groups < wanted, abs(groups - wanted), each) for groups, each in have)[2]
        self._free_ids.remove(chosen)
        return chosen
