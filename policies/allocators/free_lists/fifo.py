"""First freed, first reused."""

from __future__ import annotations

from policies.allocators.free_lists.line import Line


class Queue(Line):
    """First freed, first reused: vLLM v1's FreeKVCacheBlockQueue."""

    def same_in_steps(self, count: int) -> bool:
        return True  # what is freed follows what is free
