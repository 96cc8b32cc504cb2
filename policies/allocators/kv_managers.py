"""What each kind of attention keeps of a request, in blocks: all of it, or a window of it (vLLM v1:
`single_type_kv_cache_manager.py`). A group of layers has a manager; all have a block table each,
over one pool.

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

With prefix caching each group has a tree of full blocks (`policies.allocators.prefix_index`), and a
hit is the longest prefix that all groups still have (vLLM's `HybridKVCacheCoordinator`, whose
search of one group after another until nothing changes ends there): every block of it in groups
without a window, and in each other the last ceil((W - 1) / block) of them, or all where the prefix
is shorter. Blocks that a window gives up stay cached until they are handed out again. Compared with
the real scheduler: tests/reference/vllm_cached_window_schedules.json.gz.

Under v0, which had no groups, the same (assumed); the trees of 0.11 and 0.19 are those of 0.23
(assumed).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from policies.allocators.allocator import Limits
from policies.allocators.kv_layout import KvLayout
from policies.requests.requests import IntArray

WindowRules = Literal["0.11", "0.19", "0.23", "0.33"]
NOTHING_KEPT = 1 << 40
"""Places that a group has given up of a request of which its window keeps nothing."""


class FullAttention:
    """Layers that attend to every token: a block at each place of the table."""

    window: ClassVar[bool] = False
    """Whether places are given up."""
    given_up: IntArray = np.zeros(0, np.int64)
    """Places that each request has given up, int64 (requests,); where none are, none."""

    def left(self, stored: Any, last: Any) -> Any:
        """Places before what the token after `stored` ones attends to, of which the step before
        stored the `last` ones: an int, or int64 (n,)."""
        return 0 * stored

    def gone(self, request: int) -> int:
        """Places of a request that are given up."""
        return 0

    def keeps(self, request: int) -> bool:
        """Whether anything of a request is kept."""
        return True

    def most(self, places: Any) -> Any:
        """Blocks that a request of so many places holds at a time, at most, as admission counts
        them: an int, or int64 (n,)."""
        return places

    def enter(self, request: int, tokens: int) -> None:
        """A request is admitted that finds so many tokens."""

    def leave(self, request: int) -> None:
        """Nothing of a request is kept here: it runs elsewhere."""

    def serves(self, alive: NDArray[np.bool_], less: int) -> NDArray[np.bool_]:
        """Of each place whether a prefix that ends with its block has all that the tokens from
        `less` blocks before the end on attend to, bool (places,); alive: of each whether its block
        is there."""
        return np.logical_and.accumulate(alive)


class SlidingWindow(FullAttention):
    """Layers that attend to the last `tokens` tokens."""

    window = True

    def __init__(
        self, tokens: int, requests: int, limits: Limits, block: int, rules: WindowRules
    ) -> None:
        self._tokens, self._block = tokens, block
        self._ahead = limits.ahead * (rules == "0.33")
        under_way = (1 + self._ahead) * limits.step
        self._cap = None if rules == "0.19" else -(-(tokens - 1 + under_way) // block) + 1
        self.given_up = np.zeros(requests, np.int64)

    def left(self, stored: Any, last: Any) -> Any:
        return np.maximum(stored - self._ahead * last - self._tokens + 1, 0) // self._block

    def gone(self, request: int) -> int:
        return int(self.given_up[request])

    def keeps(self, request: int) -> bool:
        return bool(self.given_up[request] < NOTHING_KEPT)

    def most(self, places: Any) -> Any:
        return places if self._cap is None else np.minimum(places, self._cap)

    def enter(self, request: int, tokens: int) -> None:
        self.given_up[request] = self.left(tokens, 0)

    def leave(self, request: int) -> None:
        self.given_up[request] = NOTHING_KEPT

    def serves(self, alive: NDArray[np.bool_], less: int) -> NDArray[np.bool_]:
        place = np.arange(len(alive))
        dead = np.maximum.accumulate(np.where(alive, -1, place))
        need = -(-(self._tokens - 1) // self._block) + less
        found: NDArray[np.bool_] = alive & ((place - dead >= need) | (dead < 0))
        return found


Manager = FullAttention | SlidingWindow


def kept_of(layout: KvLayout) -> tuple[int | None, ...]:
    """Tokens that each group of layers keeps (None: all): one group where none has a window."""
    return (None,) if layout.groups is None else layout.groups.kept


def managers_of(
    layout: KvLayout, requests: int, limits: Limits, block: int, rules: WindowRules
) -> list[Manager]:
    """One of each group of layers."""
    return [
        FullAttention() if kept is None else SlidingWindow(kept, requests, limits, block, rules)
        for kept in kept_of(layout)
    ]


def longest(managers: Sequence[Manager], alive: NDArray[np.bool_], less: int) -> int:
    """Blocks of the longest prefix that serves all groups, less so many at its end.

    alive: bool (groups, places), whether the block of each place is there."""
    serves = np.ones(alive.shape[1], np.bool_)
    for manager, there in zip(managers, alive, strict=True):
        serves &= manager.serves(there, less)
    return max(int(np.flatnonzero(serves).max(initial=-1)) + 1 - less, 0)
