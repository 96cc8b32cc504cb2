"""CPU time of other systems' free lists: `python tools/free_list_time.py [FIGURES.json]`, in an
environment of vLLM or SGLang; what it finds is put beside what the file has.

A pool of as many blocks as `pools-map` has, of which 5,000 are in use by ten requests; each frees
its 500 and another takes as many. The least of seven rounds of CPU time.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

POOL, HELD, EACH, TURNS, ROUNDS = 6_875, 10, 500, 200, 7
"""Blocks of 16 of 110,000 tokens; requests; blocks of one; frees of a round; rounds."""


def vllm() -> tuple[str, dict[str, float]]:
    """Its linked list: us to free and to take again a block."""
    import vllm  # type: ignore[import-not-found]
    from vllm.v1.core.kv_cache_utils import (  # type: ignore[import-not-found]
        FreeKVCacheBlockQueue,
        KVCacheBlock,
    )

    queue = FreeKVCacheBlockQueue([KVCacheBlock(number) for number in range(POOL)])
    held = [queue.popleft_n(EACH) for _ in range(HELD)]

    def turns() -> None:
        for turn in range(TURNS):
            queue.append_n(held[turn % HELD][::-1])
            held[turn % HELD] = queue.popleft_n(EACH)

    return f"vLLM {vllm.__version__}", {"us a block, LRU": _least_us(turns) / TURNS / EACH}


def sglang() -> tuple[str, dict[str, float]]:
    """Its merge of freed pages, on the CPU and one thread: ms for all that are free."""
    import sglang  # type: ignore[import-not-found]
    import torch
    from sglang.srt.mem_cache.allocator import (  # type: ignore[import-not-found]
        TokenToKVPoolAllocator,
    )

    torch.set_num_threads(1)

    def merge(pages: int) -> Callable[[], None]:
        pool = TokenToKVPoolAllocator(pages, torch.float16, "cpu", None, True)
        halves = (torch.randperm(pages) + 1).tensor_split(2)

        def once() -> None:
            pool.free_pages, pool.release_pages = halves[0], halves[1]
            pool.merge_and_sort_free()

        return once

    times = {f"ms a merge of {n:,} pages": _least_us(merge(n)) / 1e3 for n in (POOL, 16 * POOL)}
    return f"SGLang {sglang.__version__}", times


def _least_us(work: Callable[[], None]) -> float:
    spent = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        spent.append(time.process_time() - begun)
    return min(spent) * 1e6


def main() -> None:
    found = {}
    for system in (vllm, sglang):
        try:
            name, times = system()
        except ImportError:
            continue
        found[name] = {what: round(value, 3) for what, value in times.items()}
    if not found:
        sys.exit("free_list_time: neither vllm nor sglang can be imported here")
    print(json.dumps(found, indent=2))
    if len(sys.argv) > 1:
        file = Path(sys.argv[1])
        figures = json.loads(file.read_text())
        figures["values"] |= found
        file.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
