"""A contiguous run of twice the prompt for each request, where it first fits; a request that
outgrows it is preempted."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from policies.allocators.allocator import Demand, Limits, PolicyOptions
from policies.allocators.arena import Arena
from policies.allocators.reservation import ContiguousAllocator


class FirstFitOptions(PolicyOptions):
    name: Literal["first-fit"] = "first-fit"
    times: Annotated[float, Field(gt=1)] = 2.0
    """Slots reserved for each token of the prompt."""


class FirstFit(ContiguousAllocator):
    Options = FirstFitOptions

    def __init__(self, layout: Any, requests: int, limits: Limits, options: Any) -> None:
        super().__init__(layout, requests, limits, options, Arena(0, layout.slots, "first"))

    def size(self, request: int, demand: Demand) -> int:
        return int(self.needs(demand.prompt, demand.generated))

    def needs(self, prompt: Any, output: Any) -> Any:
        room = np.maximum(np.int64(self.options.times * prompt) - prompt, 2 * output)
        return prompt + np.minimum(np.maximum(room, 1), self.limits.max_tokens)
