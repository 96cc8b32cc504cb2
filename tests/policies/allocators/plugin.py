"""A plug-in allocator as a user would write his first one: plain Python, a token at a time.

Paged, with the lowest-level structure there is: a list of free blocks, and a list of blocks for
each request. It shares nothing and remembers nothing.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Field

from policies.allocators.allocator import Allocator, Demand, Limits, PolicyOptions
from policies.allocators.capabilities import OnDemand
from policies.allocators.kv_layout import KvLayout, Units
from policies.requests.requests import IntArray


class PluginOptions(PolicyOptions):
    block: Annotated[int, Field(ge=1)] = 16


class PluginAllocator(Allocator, OnDemand):
    Options = PluginOptions

    def __init__(self, layout: KvLayout, requests: int, limits: Limits, options: Any) -> None:
        super().__init__(layout, requests, limits, options)
        self.block = options.block
        self.blocks = layout.slots // self.block
        self.free = list(range(self.blocks))[::-1]
        self.held: dict[int, list[int]] = {}

    @property
    def free_slots(self) -> int:
        return len(self.free) * self.block

    @property
    def largest_hole(self) -> int:
        return self.free_slots

    @property
    def reach(self) -> int:
        return self.blocks * self.block

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        blocks: IntArray = -(-(prompt + output - 1) // self.block)
        return blocks * self.block

    def fits(self, tokens: int, request: int = -1, demand: Demand | None = None) -> bool:
        return -(-tokens // self.block) <= len(self.free)

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        if not self.fits(tokens):
            return False
        self.held[request] = []
        self._admit(request, 0, 0)
        return self.grow(request, tokens)

    def grow(self, request: int, tokens: int) -> bool:
        self.require(request)
        wanted = self.wanted(request, tokens)
        if wanted > len(self.free):
            return False
        for _ in range(wanted):
            self.held[request].append(self.free.pop())
            self.reserved[request] += self.block
            self.reserved_total += self.block
        self.stored[request] += tokens
        return True

    def wanted(self, request: int, tokens: int) -> int:
        """Blocks that so many more tokens need."""
        return max(-(-(int(self.stored[request]) + tokens) // self.block), 0) - len(
            self.held[request]
        )

    def headroom(self, requests: IntArray, limit: int) -> int:
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            each = (self.wanted(r, middle) for r in requests.tolist())
            if sum(max(wanted, 0) for wanted in each) <= len(self.free):
                low = middle
            else:
                high = middle - 1
        return low

    def advance(self, requests: IntArray, rounds: int) -> None:
        for _ in range(rounds):
            for request in requests.tolist():
                self.grow(request, 1)

    def grown(self, requests: IntArray, rounds: int) -> IntArray:
        fewer = np.zeros(rounds, np.int64)
        for request in requests.tolist():
            now = len(self.held[request])
            for at in range(rounds):
                stored = int(self.stored[request]) - (rounds - 1 - at)
                fewer[at] += (now - -(-stored // self.block)) * self.block
        return fewer

    def release(self, request: int) -> int:
        self.require(request)
        self.free += self.held.pop(request)[::-1]
        return self._dismiss(request)

    def units(self, request: int) -> Units:
        self.require(request)
        start = np.array(self.held[request], np.int64) * self.block
        first = np.arange(len(start)) * self.block
        tokens = np.clip(self.stored[request] - first, 0, self.block)
        return Units(start, tokens, np.full(len(start), self.block, np.int64))
