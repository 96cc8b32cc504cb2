"""A ceiling: an allocator that knows every output length and reserves exactly what will be stored,
in one run. What is left of waste is that a run is held before it is filled, and the holes between
runs.
"""

from __future__ import annotations

from policies.allocators.allocator import Demand
from policies.allocators.ceiling_options import OracleOptions, stored_at_the_end
from policies.allocators.declaration import References
from policies.allocators.losses import RUNS, WAITING
from policies.allocators.reservation import ContiguousAllocator
from policies.requests.requests import IntArray


class OracleAllocator(ContiguousAllocator):
    """Exact reservations in one arena."""

    Options = OracleOptions
    reading = "a ceiling: exactly what will be stored, in one run"
    losses = WAITING
    searched = RUNS
    references = References(ceilings=("ideal",))
    options: OracleOptions

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        needed: IntArray = self.slots_for(stored_at_the_end(prompt, output, self.limits.ahead))
        return needed

    def size(self, request: int, demand: Demand) -> int:
        stored = stored_at_the_end(demand.prompt, demand.output, self.limits.ahead)
        return int(self.slots_for(stored))
