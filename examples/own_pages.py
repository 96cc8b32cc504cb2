"""What is it worth where pages lie? Registers paging whose pages come shuffled, as after months of
service. Prints output tokens/s beside vLLM's list and contiguous runs.

    python examples/own_pages.py [PATH=VALUE ...]
"""

import sys
from typing import Any, Literal

import numpy as np

import bankwise
from policies.allocators.free_lists.free_list import FreeList
from policies.allocators.paged import PagedAllocator, PagedOptions


class Shuffled(FreeList):
    def __init__(self, blocks: int, seed: int) -> None:
        super().__init__(blocks)
        self.order = np.random.default_rng(seed).permutation(blocks)  # the first `free` are free
        self.at, self.there = np.argsort(self.order), np.ones(blocks, bool)  # where; whether free

    def pop(self, count: int) -> Any:
        taken = self.order[self.free - count : self.free][::-1].copy()
        self.free, self.there[taken] = self.free - count, False
        return taken

    def push(self, blocks: Any, unhashed: int = 0) -> None:
        places = np.arange(self.free, self.free + len(blocks))
        self.order[places], self.at[blocks] = blocks, places
        self.free, self.there[blocks] = self.free + len(blocks), True

    def take(self, blocks: Any) -> None:
        for block in blocks:
            self.free -= 1
            last = self.order[self.free]
            self.order[self.at[block]], self.at[last] = last, self.at[block]
        self.there[blocks] = False

    def is_free(self, blocks: Any) -> Any:
        return self.there[blocks]


class ShuffledPages(PagedAllocator):
    class Options(PagedOptions):
        name: Literal["shuffled"] = "shuffled"  # type: ignore[assignment]
        seed: int = 1

    options: Options

    def _free_list(self) -> FreeList:
        return Shuffled(self.layout.slots // self.block, self.options.seed)


if __name__ == "__main__":
    bankwise.plugin(__file__)
    for name in ("static", "paged", "shuffled"):
        found = bankwise.simulate("smoke", set=[f"policy={name}", *sys.argv[1:]])["metrics"]
        print(f"{name}: {found['output_tokens_per_s']:.0f} tok/s")
