"""Static allocation: one contiguous run for the worst case, for as long as the request runs.

What serving systems did before paging (FasterTransformer, Orca; Kwon et al. 2023, section 3). On a
buddy system instead of an arena it is `orca` with `variant: max`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from policies.allocators.allocator import Demand, PolicyOptions
from policies.allocators.compaction import ArenaOptions, RunOptions
from policies.allocators.declaration import CHOICES, References
from policies.allocators.losses import RESERVING, RUNS
from policies.allocators.reservation import ContiguousAllocator
from policies.requests.requests import IntArray


class StaticOptions(RunOptions, ArenaOptions, PolicyOptions):
    """Options of `static`."""

    name: Literal["static"] = "static"
    reserve: Literal["prompt_plus_max_tokens", "max_model_len"] = "prompt_plus_max_tokens"
    """What the worst case is."""


class StaticAllocator(ContiguousAllocator):
    """Worst-case reservations in one arena."""

    Options = StaticOptions
    reading = (
        "one run for the longest answer that the operator allows, as before paging (Kwon et "
        "al. 2023, section 3); reserve: max_model_len is FasterTransformer's"
    )
    losses = RESERVING
    searched = {**RUNS, "reserve": CHOICES}
    references = References(("paged",), ceilings=("oracle", "ideal"))
    options: StaticOptions

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        longest = np.full(len(prompt), self.limits.max_model_len, np.int64)
        if self.options.reserve == "prompt_plus_max_tokens":
            longest = np.minimum(longest, prompt + self.limits.max_tokens)
        needed: IntArray = self.slots_for(longest)
        return needed

    def size(self, request: int, demand: Demand) -> int:
        longest = self.limits.max_model_len
        if self.options.reserve == "prompt_plus_max_tokens":
            longest = min(longest, demand.prompt + self.limits.max_tokens)
        return int(self.slots_for(longest))
