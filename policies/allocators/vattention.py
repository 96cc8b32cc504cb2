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

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.description.units import Nanoseconds
from hwmodel.specs.kv_order import LAYOUTS, Dims
from hwmodel.specs.virtual_memory import Frame
from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.capabilities import OnDemand
from policies.allocators.declaration import CHOICES, Range, References
from policies.allocators.frame_groups import FrameGroups
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.losses import GROWING
from policies.allocators.vattention_parts import (
    VattentionDrafts,
    VattentionMaps,
    VattentionStates,
    VattentionSwaps,
)
from policies.requests.requests import IntArray

SLICED: Dims = ("kv", "unit", "token", "layer", "head")
"""Two tensors, with all layers of a token side by side."""
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


class VattentionAllocator(Allocator, OnDemand):
    """`groups`: those of frames, mapped to request ids; of an id the first `fixed` are used by
    states (assumed, as the paper's models have none), the others by tokens. `ids`, int64
    (requests,): of each resident. `block`: tokens in a group. Raises DescriptionError for a layout
    that is not of whole tensors, and where no group fits."""

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
    members = (VattentionMaps, VattentionSwaps, VattentionDrafts, VattentionStates)
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
        self.fixed = -(-limits.states // self.block) * limits.kept_states
        span = self.fixed + -(-max(limits.max_model_len, self.slots) // self.block)
        low = int(LOW * groups) if options.reclaim == "low" else 0
        self.groups = FrameGroups(groups, span, low)
        self.ids = np.full(requests, -1, np.int64)
        self._runs = np.zeros(requests, np.int64)
        self.has_prefixes = False
        """Whether a request had a prefix in common with others."""
        self.mapping = VattentionMaps(self)
        parts = VattentionSwaps(self), VattentionDrafts(self), VattentionStates(self)
        self.has = (self.mapping, *parts)

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
        if not self.enter(request, tokens):
            return False
        self.has_prefixes |= demand.prefix_id >= 0 or demand.session >= 0
        return True

    def enter(self, request: int, tokens: int) -> bool:
        """A request gets an id, and room for so many tokens. False: there is none."""
        if not self.fits(tokens):
            return False
        self.ids[request] = self.groups.fitting_id(self._in_use(tokens))
        self._admit(request, 0, 0)
        return self.grow(request, tokens)

    def grow(self, request: int, tokens: int) -> bool:
        self.require(request)
        stored = int(self.stored[request]) + tokens
        if (mapped := self.extend(request, stored)) is None:
            return False
        self.mapping.now += mapped
        self.stored[request] = stored
        return True

    def extend(self, request: int, tokens: int) -> int | None:
        """A request gets the groups that so many tokens lack; how many had to be mapped. None
        (nothing changes): there are too few."""
        lacking = self._in_use(tokens) - int(self.reserved[request]) // self.block
        if lacking * self.block > self.free_slots:
            return None
        return sum(self._take(request) for _ in range(lacking))

    def release(self, request: int) -> int:
        self.require(request)
        self._runs[request] = 0
        self.groups.leave(int(self.ids[request]))
        return self._dismiss(request)

    def units(self, request: int) -> Units:
        self.require(request)
        groups = self.groups.used(int(self.ids[request]))[self.fixed :]
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
        who, _ = self.growth(requests, rounds)
        self.mapping.behind += sum(self._take(request) for request in who.tolist())
        self.stored[requests] += rounds

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        left = np.arange(rounds - 1, -1, -1)[:, None]
        held = self._in_use(self.stored[requests] - left) * self.block
        fewer: IntArray = (self.reserved[requests] - held).sum(axis=1)
        return fewer

    def extent_count(self, requests: IntArray) -> int:
        return int(self._runs[requests].sum())

    def _in_use(self, tokens: Any) -> Any:
        """Groups of a request of so many tokens: an int, or int64 (n,)."""
        return self.fixed + -(-tokens // self.block)

    def _lacking(self, requests: IntArray, rounds: int) -> IntArray:
        """Groups that each of `requests` lacks to store `rounds` tokens more."""
        stored = self.stored[requests] + rounds
        lacking: IntArray = self._in_use(stored) - self.reserved[requests] // self.block
        return np.maximum(lacking, 0)

    def growth(self, requests: IntArray, rounds: int) -> tuple[IntArray, IntArray]:
        """(request, round) of each group that `requests` need in `rounds` rounds, in order."""
        lacking = self._lacking(requests, rounds)
        place = np.repeat(np.arange(len(requests)), lacking)
        nth = np.arange(len(place)) - np.repeat(np.cumsum(lacking) - lacking, lacking)
        who = requests[place]
        behind = self.reserved[who] - self.fixed * self.block
        first = behind + nth * self.block  # token that the group is needed for
        when = first - self.stored[who]
        order = np.lexsort((nth, place, when))
        return who[order], when[order]

    def _take(self, request: int) -> bool:
        """A group more for a request, of which there is one; whether it had to be mapped."""
        at, new, follows = self.groups.take(int(self.ids[request]))
        if at >= self.fixed:
            self._runs[request] += at == self.fixed or not follows
        self.reserved[request] += self.block
        self.reserved_total += self.block
        return new
