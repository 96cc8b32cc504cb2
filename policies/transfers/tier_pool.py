"""The blocks of one tier: whose content each holds, and which are in use by transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from policies.transfers.eviction import EVICTION, BlockKey


class TierPool:
    """`blocks` of them. Fresh ids are handed out in order, then those given up, last first
    (vLLM: `CPUOffloadingManager`)."""

    def __init__(self, blocks: int, eviction: str) -> None:
        self.blocks = blocks
        self.evicted = 0
        self._kind = eviction
        self.clear()

    def clear(self) -> None:
        """All content is lost."""
        self._eviction = EVICTION[self._kind](self.blocks)
        self._ids: dict[BlockKey, int] = {}
        self._coming: set[BlockKey] = set()
        self._used: Counter[BlockKey] = Counter()
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, key: BlockKey) -> bool:
        """Whether it is here, or on its way."""
        return key in self._ids

    def ready(self, key: BlockKey) -> bool:
        """Whether it is here."""
        return key in self._ids and key not in self._coming

    def ids(self, keys: Iterable[BlockKey]) -> list[int]:
        return [self._ids[key] for key in keys]

    def accessed(self, keys: Sequence[BlockKey]) -> None:
        """A request with these blocks was admitted."""
        self._eviction.accessed(keys, self._coming)

    def victims(
        self, keys: Sequence[BlockKey], wanted: Iterable[BlockKey]
    ) -> list[BlockKey] | None:  # fmt: skip
        """Blocks to give up for new ones, none of those `wanted`; None if there is no room."""
        missing = len(keys) - (self.blocks - len(self._ids))
        if missing <= 0:
            return []
        kept = set(wanted)
        return self._eviction.victims(missing, lambda key: not (key in kept or key in self._used))

    def put(self, keys: Sequence[BlockKey], wanted: Iterable[BlockKey]) -> bool:
        """Make room for blocks that will come; False (nothing changes) if there is none. Those
        `wanted` stay."""
        victims = self.victims(keys, wanted)
        if victims is None:
            return False
        self._eviction.evicted(victims)
        for key in victims:
            self._free.append(self._ids.pop(key))
        self.evicted += len(victims)
        for key in keys:
            self._ids[key] = self._free.pop() if self._free else len(self._ids)
            self._eviction.stored(key)
        self._coming.update(keys)
        self.use(keys)
        return True

    def use(self, keys: Iterable[BlockKey]) -> None:
        """A transfer from or to these blocks is under way."""
        self._used.update(keys)

    def came(self, keys: Iterable[BlockKey]) -> None:
        """They are here now."""
        self._coming.difference_update(keys)
        self.leave(keys)

    def leave(self, keys: Iterable[BlockKey]) -> None:
        """The transfer is over."""
        for key in keys:
            self._used[key] -= 1
            if not self._used[key]:
                del self._used[key]

    def lost(self, keys: Iterable[BlockKey]) -> None:
        """They will not come."""
        self.came(keys)
        for key in keys:
            self._eviction.lost(key)
            self._free.append(self._ids.pop(key))
