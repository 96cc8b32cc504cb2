"""Drive vLLM V1 with its pool of blocks in other orders: those that `serving.policy.free_list` has.

    PYTHON drive_vllm_free_lists.py SCHEDULES.json.gz [DRAWS]

runs the cases below with PYTHON's vLLM, DRAWS of each (1), and writes them beside those of other
versions there. Scheduler, manager and pool are vLLM's own; its queue of free blocks alone is
replaced by one that is written here, apart from ours. Made with 0.23.0 and 0.33.0.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import vllm
from drive_vllm_cached_windows import made
from drive_vllm_speculation import drive
from vllm.v1.core import block_pool

KINDS: dict[str, dict[str, Any]] = {
    "shared": {"groups": [None], "shares": True},
    "tight": {"groups": [None], "shares": True, "factor": 0.6, "longest": 300},
    "turns": {"groups": [None], "sessions": 10, "factor": 3.0},
    "async": {"groups": [None], "shares": True, "async": True, "factor": 0.8},
}
ORDERS = ("sorted", "staged", "runs", "oldest_runs")


class FreeBlocks:
    """What vLLM asks of its queue, in an order of our own. `line`: free blocks, freed first first;
    `ready`: those that are at hand before the rest is sorted."""

    order = "fifo"

    def __init__(self, blocks: list[Any]) -> None:
        self.line = {block.block_id: block for block in blocks}
        self.ready = [*self.line]

    @property
    def num_free_blocks(self) -> int:
        return len(self.line)

    def append_n(self, blocks: list[Any]) -> None:
        self.line.update((block.block_id, block) for block in blocks)

    def append(self, block: Any) -> None:
        self.append_n([block])

    def prepend_n(self, blocks: list[Any]) -> None:
        self.append_n(blocks)  # the orders here do not tell blocks without a hash apart

    def remove(self, block: Any) -> None:
        del self.line[block.block_id]
        if block.block_id in self.ready:
            self.ready.remove(block.block_id)

    def popleft(self) -> Any:
        return self.popleft_n(1)[0]

    def popleft_n(self, count: int) -> list[Any]:
        chosen = getattr(self, f"_{self.order}")(count) if count else []
        return [self.line.pop(one) for one in chosen]

    def _sorted(self, count: int) -> list[int]:
        return sorted(self.line)[:count]

    def _staged(self, count: int) -> list[int]:
        if count > len(self.ready):
            self.ready = sorted(self.line)
        taken, self.ready = self.ready[:count], self.ready[count:]
        return taken

    def _groups(self, free: set[int]) -> list[list[int]]:
        found: list[list[int]] = []
        for one in sorted(free):
            if found and found[-1][-1] == one - 1:
                found[-1].append(one)
            else:
                found.append([one])
        return found

    def _runs(self, count: int) -> list[int]:
        taken: list[int] = []
        while len(taken) < count:
            groups, wanted = self._groups({*self.line} - {*taken}), count - len(taken)
            enough = [group for group in groups if len(group) >= wanted]
            best = min(enough, key=len) if enough else max(groups, key=len)
            taken += best[:wanted]
        return taken

    def _oldest_runs(self, count: int) -> list[int]:
        taken: list[int] = []
        left = dict.fromkeys(self.line)
        while len(taken) < count:
            first, wanted = next(iter(left)), count - len(taken)
            (group,) = (each for each in self._groups({*left}) if first in each)
            at = group.index(first)
            start = max(0, at + 1 - wanted)
            run = group[start : start + wanted]
            for one in run:
                del left[one]
            taken += run
        return taken


def main() -> None:
    path, draws = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kept = json.loads(gzip.decompress(path.read_bytes()))["cases"] if path.exists() else []
    kept = [case for case in kept if case["vllm"] != vllm.__version__]
    block_pool.FreeKVCacheBlockQueue = FreeBlocks
    for order in ORDERS:
        FreeBlocks.order = order
        for name, kind in KINDS.items():
            for nth in range(draws):
                case = made(f"{order}-{name}", kind, nth)
                assert case is not None
                case["bankwise"] = {**case.get("bankwise", {}), "free_list": order}
                drive(case)
                kept.append(case)
                found = sum(step[3] for step in case["steps"])
                lost = sum(len(step[2]) for step in case["steps"])
                print(f"{case['name']:28} {lost:4} preemptions {found:6} found", flush=True)
    kept.sort(key=lambda case: [int(part) for part in case["vllm"].split(".")])
    text = json.dumps({"cases": kept}, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
