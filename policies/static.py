"""Static allocation: one contiguous run for the worst case, for as long as the request runs.

What serving systems did before paging (FasterTransformer, Orca's `max`; Kwon et al. 2023, section
3).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from policies.allocator import ContiguousAllocator, Demand, Limits, PolicyOptions
from policies.arena import Arena, Fit
from policies.kv_layout import KvLayout
from policies.requests import IntArray


class StaticOptions(PolicyOptions):
    """Options of `static`."""

    name: Literal["static"] = "static"
    reserve: Literal["prompt_plus_max_tokens", "max_model_len"] = "prompt_plus_max_tokens"
    """What the worst case is."""
    fit: Fit = "first"
    """Which hole a reservation takes (assumed)."""


class StaticAllocator(ContiguousAllocator):
    """Worst-case reservations in one arena."""

    Options = StaticOptions
    options: StaticOptions

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: StaticOptions
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self._arena = Arena(0, layout.slots, options.fit)

    @property
    def free_slots(self) -> int:
        return self._arena.free

    @property
    def largest_hole(self) -> int:
        return self._arena.largest_hole

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        if self.options.reserve == "max_model_len":
            return np.full(len(prompt), self.limits.max_model_len, np.int64)
        return np.minimum(prompt + self.limits.max_tokens, self.limits.max_model_len)

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        size = self.limits.max_model_len
        if self.options.reserve == "prompt_plus_max_tokens":
            size = min(size, demand.prompt + self.limits.max_tokens)
        start = self._arena.take(size)
        if start is None:
            return False
        self.start[request] = start
        self._admit(request, size, tokens)
        return True

    def release(self, request: int) -> int:
        self._require(request)
        size = int(self.reserved[request])
        self._arena.give_back(int(self.start[request]), size)
        self.start[request] = -1
        return self._dismiss(request)
