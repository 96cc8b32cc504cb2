"""The free lists that a policy can name. To add one, add a file and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from policies.allocators.free_lists.buddies import Buddies
from policies.allocators.free_lists.fifo import Queue
from policies.allocators.free_lists.free_list import FreeList
from policies.allocators.free_lists.lifo import Stack
from policies.allocators.free_lists.oldest_runs import OldestRuns
from policies.allocators.free_lists.runs import Runs
from policies.allocators.free_lists.sorted import Sorted
from policies.allocators.free_lists.split import SplitQueue
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
}

if TYPE_CHECKING:
    FreeListName = str
else:
    FreeListName = Literal[tuple(FREE_LISTS)]
    """Field type: the name of a free list."""
