"""Beams in one run: a row for each, which holds the prompt and all that the beam has made.

What servers did before blocks (Kwon et al. 2023, section 4.4): nothing is shared, and a beam that
goes on from another one has the whole of its row copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.allocators.allocator import Demand, Limits
from policies.allocators.capabilities import Forks, Migration
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.places import Space
from policies.allocators.reservation import ReservingAllocator
from policies.requests.requests import IntArray


class BeamRows(ReservingAllocator, Forks):
    """For policies that reserve whole outputs: `size` has `Demand.prompt_again` slots more."""

    shares = False

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: Any, space: Space
    ) -> None:
        super().__init__(layout, requests, limits, options, space)
        self._forks: list[Migration] = []

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if not super().reserve(request, demand, tokens):
            return False
        if demand.beams:
            self.pin(request)  # rows with room between them are no piece that compaction could move
        return True

    def unpin(self, request: int) -> None:
        demand = self._demands.get(request)
        if demand is None or not demand.beams:
            super().unpin(request)

    def needs_of_beams(self, prompt: IntArray, output: IntArray, beams: IntArray) -> IntArray:
        return self.needs(prompt, output, beams) + (beams - 1) * prompt

    def fork(self, request: int, parents: IntArray) -> None:
        self._require(request)
        start, tokens, room = self._rows_of(request, len(parents))
        for beam in np.flatnonzero(parents != np.arange(len(parents))).tolist():
            source, target = int(start[parents[beam]]), int(start[beam])
            self._forks.append(Migration(request, source, target, tokens, room))

    def copies(self) -> list[Migration]:
        made, self._forks = self._forks, []
        return made

    def _rows_of(self, request: int, beams: int) -> tuple[IntArray, int, int]:
        """(First slot of each row, tokens in it, its slots)."""
        prompt, room = self._demands[request].prompt, int(self.reserved[request]) // beams
        tokens = prompt + (int(self.stored[request]) - prompt) // beams
        return int(self.start[request]) + room * np.arange(beams), tokens, room

    def units(self, request: int) -> Units:
        """The run, or a unit for each beam, from the first output token on."""
        self._require(request)
        demand = self._demands[request]
        if not demand.beams or self.stored[request] <= demand.prompt:
            return super().units(request)
        start, tokens, room = self._rows_of(request, demand.samples)
        return Units(start, np.full(len(start), tokens), np.full(len(start), room))

    def layer_units(self, request: int, group: int) -> Units:
        if self._demands[request].beams:
            return self.units(request)
        return super().layer_units(request, group)
