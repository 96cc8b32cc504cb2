"""How does an allocator of my own do beside paging? Registers one that reserves a contiguous run
for the prompt and a fixed room for the answer, twice that once it is outgrown. Prints output
tokens/s of both, and how often each preempted a request.

    python examples/own_allocator.py [PATH=VALUE ...]
"""

import sys
from typing import Any, Literal

import numpy as np

import bankwise
from policies.allocators.allocator import Demand, Limits, PolicyOptions
from policies.allocators.arena import Arena
from policies.allocators.reservation import ContiguousAllocator


class Room(ContiguousAllocator):
    class Options(PolicyOptions):
        name: Literal["room"] = "room"
        tokens: int = 256

    def __init__(self, layout: Any, requests: int, limits: Limits, options: Any) -> None:
        super().__init__(layout, requests, limits, options, Arena(0, layout.slots, "first"))

    def size(self, request: int, demand: Demand) -> int:
        return int(self.needs(demand.prompt, demand.generated))

    def needs(self, prompt: Any, output: Any) -> Any:
        room = np.maximum(self.options.tokens, 2 * output)
        return prompt + np.minimum(room, self.limits.max_tokens)


if __name__ == "__main__":
    bankwise.plugin(__file__)
    for name, policy in {"paged": "paged", "room": "{name: room, tokens: 64}"}.items():
        found = bankwise.simulate("smoke", set=[f"policy={policy}", *sys.argv[1:]])["metrics"]
        print(f"{name}: {found['output_tokens_per_s']:.0f} tok/s, {found['preemptions']} preempted")
