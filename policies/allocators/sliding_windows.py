"""What block tables of a model with sliding windows give up, and when (vLLM v1's hybrid KV cache
manager): a block table for each group of layers (`policies.allocators.kv_groups`), all over one
pool.

As in vLLM's `allocate_slots`, a request first gives up the blocks of each windowed group that lie
before the window of the next token, last ones first and group by group, even where it then gets no
block; their places in the table hold the null block from then on. Then each group in turn gets
blocks for the new tokens, those of a whole prompt chunk too. Versions differ (`window_rules`):

| rule | 0.11 | 0.19 | 0.23 | 0.33 |
|---|---|---|---|---|
| blocks of a windowed group at admission | - | whole input | capped | capped |
| blocks that it frees go, under `fifo` | behind | behind | to the front | behind |
| the window moves on when tokens are | scheduled | scheduled | scheduled | processed |

The cap is what a group can hold at a time, ceil((W - 1 + tokens of a step) / block) + 1
(`SlidingWindowSpec.max_admission_blocks_per_request`); under asynchronous scheduling 0.33 counts
the tokens of two steps. 0.11 admits by chunk. 0.33 has `split`, where all go to the front.
Compared with the real scheduler: tests/reference/vllm_window_schedules.json.gz.

With prefix caching each group has a tree of full blocks (`policies.allocators.paged`), and a hit is
the longest prefix that all groups still have (vLLM's `HybridKVCacheCoordinator`, whose search of
one group after another until nothing changes ends there): every block of it in groups without a
window, and in each other the last ceil((W - 1) / block) of them, or all where the prefix is
shorter. Blocks that a window gives up stay cached until they are handed out again. Compared with
the real scheduler: tests/reference/vllm_cached_window_schedules.json.gz.

Under v0, which had no groups, the same (assumed); the trees of 0.11 and 0.19 are those of 0.23
(assumed).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from policies.allocators.allocator import Limits
from policies.allocators.kv_layout import KvLayout

WindowRules = Literal["0.11", "0.19", "0.23", "0.33"]
NOTHING_KEPT = 1 << 40
"""Places that a group has given up of a request of which its window keeps nothing."""


def kept_of(layout: KvLayout) -> tuple[int | None, ...]:
    """Tokens that each group of layers keeps (None: all): one group where none has a window."""
    return (None,) if layout.groups is None else layout.groups.kept


class SlidingWindows:
    """Of each group of layers: its window, and how many places of each request it has given up.

    `near`: the groups that have a window. `gone`, int64 (groups, requests): places given up.
    `last`, int64 (requests,): tokens that the step before stored.
    """

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, block: int, rules: WindowRules
    ) -> None:
        self._kept = kept_of(layout)
        self.near = [group for group, kept in enumerate(self._kept) if kept is not None]
        self._block = block
        self._ahead = limits.ahead * (rules == "0.33")
        under_way = None if rules == "0.19" else (1 + self._ahead) * limits.step
        self._caps = [
            None if kept is None or under_way is None else -(-(kept - 1 + under_way) // block) + 1
            for kept in self._kept
        ]
        self.gone = np.zeros((len(self._kept), requests if self.near else 0), np.int64)
        self.last = np.zeros(requests if self.near else 0, np.int64)

    @property
    def sees_drafts(self) -> bool:
        """Whether windows move on with rejected drafts that are not known to be such."""
        return not self._ahead

    def left(self, group: int, stored: Any, last: Any) -> Any:
        """Places of a group before the window of the token after `stored` ones, of which the step
        before stored the `last` ones: an int, or int64 (n,). 0 without a window."""
        if (window := self._kept[group]) is None:
            return 0 * stored
        return np.maximum(stored - self._ahead * last - window + 1, 0) // self._block

    def enter(self, request: int, tokens: int) -> None:
        """A request is admitted that finds so many tokens."""
        for group in self.near:
            self.gone[group, request] = self.left(group, tokens, 0)
            self.last[request] = 0

    def leave_all(self, request: int) -> None:
        """Of a request no window keeps anything here: it runs elsewhere."""
        for group in self.near:
            self.gone[group, request] = NOTHING_KEPT
            self.last[request] = 0

    def of(self, request: int) -> list[int]:
        """The groups that keep something of a request."""
        groups = range(len(self._kept))
        return [group for group in groups if self.gone_of(request, group) < NOTHING_KEPT]

    def gone_of(self, request: int, group: int) -> int:
        """Places of a request that a group has given up."""
        return int(self.gone[group, request]) if self.near else 0

    def most(self, group: int, places: Any) -> Any:
        """Blocks that so many places of a request hold at a time in a group, at most; as admission
        counts them."""
        cap = self._caps[group]
        return places if cap is None else np.minimum(places, cap)

    def longest(self, alive: NDArray[np.bool_], less: int) -> int:
        """Blocks of the longest prefix that serves all groups, less so many at its end.

        alive: bool (groups, places), whether the block of each place is there."""
        whole = np.array([kept is None for kept in self._kept])
        full = alive[whole].all(axis=0)
        most = len(full) if full.all() else int(full.argmin())
        place, serves = np.arange(most), np.ones(most, np.bool_)
        for group in self.near:
            seen = alive[group, :most]
            window = self._kept[group]
            assert window is not None
            dead = np.maximum.accumulate(np.where(seen, -1, place))
            need = -(-(window - 1) // self._block) + less
            serves &= seen & ((place - dead >= need) | (dead < 0))
        return max(int(place[serves].max(initial=-1)) + 1 - less, 0)
