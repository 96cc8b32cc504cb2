"""Orca as the PagedAttention paper rebuilt it: contiguous reservations on a buddy system.

Kwon et al. 2023, section 6.1, has three variants, by what is reserved at admission: `max`, the
model's longest sequence; `pow2`, the prompt and the output rounded up to a power of two (an output
of 25 tokens reserves 32); `oracle`, the prompt and the output. The latter two know the output
before it exists, so they are ceilings of what a predictor could do. The buddy system rounds every
one of them up once more.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from policies.allocators.allocator import Demand, PolicyOptions
from policies.allocators.buddy import Buddy, power_of_two
from policies.allocators.declaration import CHOICES, References
from policies.allocators.losses import RESERVING
from policies.allocators.places import SlotSpace
from policies.allocators.reservation import ContiguousAllocator
from policies.allocators.run_holder import RunHolder
from policies.allocators.sizes import OneSpace
from policies.requests.requests import IntArray


class OrcaOptions(PolicyOptions):
    """Options of `orca`."""

    name: Literal["orca"] = "orca"
    variant: Literal["max", "pow2", "oracle"] = "max"
    """What is reserved (see the module)."""
    prefixes: Literal["recompute", "copy"] = "recompute"
    """As in `ArenaOptions`; the paper says nothing of sharing."""

    @property
    def copies_prefixes(self) -> bool:
        return self.prefixes == "copy"


class BuddySizes(OneSpace):
    """Blocks of one buddy system."""

    space: Buddy

    def __init__(self, runs: RunHolder, own: SlotSpace | None = None) -> None:
        super().__init__(runs, own or Buddy(runs.layout.slots))

    @property
    def reach(self) -> int:
        return self.space.largest_block


class OrcaAllocator(ContiguousAllocator):
    """A block of the buddy system for each request."""

    Options = OrcaOptions
    reading = (
        "variant max: the model's longest sequence on a buddy system, as Kwon et al. 2023 "
        "(6.1) rebuilt it; pow2 and oracle know the output and are ceilings"
    )
    losses = RESERVING
    searched = {"variant": CHOICES, "prefixes": CHOICES}
    references = References(("static", "paged"), ceilings=("oracle", "ideal"))
    Sizes = BuddySizes
    options: OrcaOptions

    def needs(self, prompt: IntArray, output: IntArray) -> IntArray:
        each = zip(prompt.tolist(), output.tolist(), strict=True)
        return np.array([self._block(*one) for one in each], np.int64)

    def size(self, request: int, demand: Demand) -> int:
        return self._block(demand.prompt, demand.output)

    def _block(self, prompt: int, output: int) -> int:
        """Slots of the block for a request."""
        longest = self.limits.max_model_len - prompt
        if self.options.variant == "pow2":
            longest = min(longest, power_of_two(output))
        elif self.options.variant == "oracle":
            longest = min(longest, output)
        return power_of_two(prompt + longest + self.slack)
