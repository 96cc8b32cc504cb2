"""Which block a tier gives up when it is full: the policies, a line each in `EVICTION`.

A policy orders the keys of a tier's blocks; `idle` says which of them may go (no transfer is under
way from or to them, and the request that stores does not itself want them). A key is (owner of a
text, number of the block in it), see `policies.allocators.radix_tree.Key`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain, islice
from typing import Any

BlockKey = tuple[Any, int]
"""(owner of the text that a block ends with, its number in blocks of the tier)."""
Idle = Callable[[BlockKey], bool]


class Eviction(ABC):
    """`blocks`: those of the tier."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks

    @abstractmethod
    def stored(self, key: BlockKey) -> None:
        """A block came."""

    @abstractmethod
    def accessed(self, keys: Iterable[BlockKey], coming: Container[BlockKey]) -> None:
        """A request came whose text these blocks hold, in order; some may not be here, and some are
        still coming."""

    @abstractmethod
    def lost(self, key: BlockKey) -> None:
        """A block went, but not as a victim."""

    @abstractmethod
    def victims(self, count: int, idle: Idle) -> list[BlockKey] | None:
        """The next `count` blocks to give up; None if so many are not idle. Changes nothing."""

    def evicted(self, keys: Iterable[BlockKey]) -> None:
        """These victims went."""
        for key in keys:
            self.lost(key)


class Lru(Eviction):
    """Asked for longest ago; of a request the last block first (vLLM: `LRUCachePolicy`)."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self._line: OrderedDict[BlockKey, None] = OrderedDict()

    def stored(self, key: BlockKey) -> None:
        self._line[key] = None

    def accessed(self, keys: Iterable[BlockKey], coming: Container[BlockKey]) -> None:
        for key in reversed(list(keys)):
            if key in self._line:
                self._line.move_to_end(key)

    def lost(self, key: BlockKey) -> None:
        del self._line[key]

    def victims(self, count: int, idle: Idle) -> list[BlockKey] | None:
        idle_ones = (key for key in self._in_turn() if idle(key))
        chosen = list(islice(idle_ones, count))
        return chosen if len(chosen) == count else None

    def _in_turn(self) -> Iterator[BlockKey]:
        return iter(self._line)


class Priority(Lru):
    """By whose text it is, then `Lru`: of requests that never come again first, then sessions,
    then prompts and prefixes that requests have in common (assumed order)."""

    RANKS = {"own": 0, "session": 1, "prompt": 2, "prefix": 2}

    def _in_turn(self) -> Iterator[BlockKey]:
        ranks = range(max(self.RANKS.values()) + 1)
        return chain.from_iterable(
            (key for key in self._line if self.RANKS[key[0][0]] == rank) for rank in ranks
        )


class Pinned(Lru):
    """`Lru`, but prefixes that requests have in common stay for good."""

    def _in_turn(self) -> Iterator[BlockKey]:
        return (key for key in self._line if key[0][0] != "prefix")


class Arc(Eviction):
    """Adaptive replacement (Megiddo and Modha 2003), as vLLM has it (`ARCCachePolicy`): blocks
    asked for once and more often are kept apart, and keys lately evicted of either say which part
    should have been larger. A block that is asked for before it has arrived counts as new."""

    def __init__(self, blocks: int) -> None:
        super().__init__(blocks)
        self._once: OrderedDict[BlockKey, None] = OrderedDict()
        self._often: OrderedDict[BlockKey, None] = OrderedDict()
        self._gone: tuple[OrderedDict[BlockKey, None], ...] = (OrderedDict(), OrderedDict())
        self._wanted = 0.0
        """Blocks that those asked for once should have."""

    def stored(self, key: BlockKey) -> None:
        self._once[key] = None
        for ghosts in self._gone:
            ghosts.pop(key, None)

    def accessed(self, keys: Iterable[BlockKey], coming: Container[BlockKey]) -> None:
        for key in reversed(list(keys)):
            if key in self._once and key in coming:
                self._once.move_to_end(key)
            elif key in self._once:
                del self._once[key]
                self._often[key] = None
            elif key in self._often:
                self._often.move_to_end(key)
            else:
                self._learn(key)

    def _learn(self, key: BlockKey) -> None:
        for at, sign in ((0, 1), (1, -1)):
            mine, other = self._gone[at], self._gone[1 - at]
            if key in mine:
                step = max(1.0, len(other) / len(mine))
                self._wanted = min(max(self._wanted + sign * step, 0.0), float(self.blocks))
                mine.move_to_end(key)

    def lost(self, key: BlockKey) -> None:
        if self._once.pop(key, 0) == 0:
            del self._often[key]

    def victims(self, count: int, idle: Idle) -> list[BlockKey] | None:
        once = (key for key in self._once if idle(key))
        often = (key for key in self._often if idle(key))
        chosen: list[BlockKey] = []
        left = len(self._once)
        while len(chosen) < count:
            key = next(once, None) if left >= int(self._wanted) else None
            left -= key is not None
            if key is None and (key := next(often, None)) is None:
                return None
            chosen.append(key)
        return chosen

    def evicted(self, keys: Iterable[BlockKey]) -> None:
        for key in keys:
            ghosts = self._gone[key not in self._once]
            self.lost(key)
            ghosts[key] = None
            if len(ghosts) > self.blocks:
                ghosts.popitem(last=False)


EVICTION: dict[str, type[Eviction]] = {
    "lru": Lru, "arc": Arc, "priority": Priority, "pinned": Pinned,
}  # fmt: skip
