"""The free lists that a policy can name. To add one, add a file and a line here; the first is the
default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hwmodel.description.description import DescriptionError, nearest
from policies.allocators.free_lists.buddies import Buddies
from policies.allocators.free_lists.fifo import Queue
from policies.allocators.free_lists.free_list import FreeList
from policies.allocators.free_lists.lifo import Stack
from policies.allocators.free_lists.oldest_runs import OldestRuns
from policies.allocators.free_lists.runs import Runs
from policies.allocators.free_lists.sorted import Sorted
from policies.allocators.free_lists.split import SplitQueue
from policies.allocators.free_lists.spread import Spread
from policies.allocators.free_lists.staged import Staged

FREE_LISTS: dict[str, type[FreeList]] = {
    "fifo": Queue,
    "lifo": Stack,
    "split": SplitQueue,
    "sorted": Sorted,
    "staged": Staged,
    "runs": Runs,
    "oldest_runs": OldestRuns,
    "buddy": Buddies,
    "spread": Spread,
}
DEFAULT_FREE_LIST = next(iter(FREE_LISTS))

if TYPE_CHECKING:
    FreeListName = str
else:
    FreeListName = Literal[tuple(FREE_LISTS)]
    """Field type: the name of a free list."""


def free_list(name: str, blocks: int, window: float | None = None) -> FreeList:
    """One of so many blocks, all of which are free; window: of `spread`. Raises DescriptionError
    where no list of this name is registered."""
    if name not in FREE_LISTS:
        raise DescriptionError(
            f"free list {name} is not registered; {nearest(name, [*FREE_LISTS])}"
        )
    return Spread(blocks, window) if window is not None else FREE_LISTS[name](blocks)
