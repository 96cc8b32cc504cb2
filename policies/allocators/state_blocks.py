"""Blocks that a request holds beside those of its tokens: of states, whose number is fixed, and of
a drafter's layers, whose KV is unlike the model's (`policies.allocators.hybrid`)."""

from __future__ import annotations

from collections import deque

import numpy as np

from policies.allocators.allocator import Limits
from policies.allocators.block_pool import BlockPool
from policies.allocators.capabilities import KeepsStates
from policies.allocators.kv_layout import ByteRuns, KvLayout
from policies.allocators.state_places import in_block
from policies.requests.requests import IntArray


class StateBlocks(KeepsStates):
    """`held`, of each resident: blocks that hold states, group by group, in each `Limits
    .kept_states`. `fixed`: how many a request has."""

    def __init__(self, pool: BlockPool, limits: Limits, layout: KvLayout, block: int) -> None:
        """block: tokens of one of the model's."""
        self._pool, self.limits, self._layout, self._block = pool, limits, layout, block
        self.saves = limits.saves_states
        """Whether the last of a group's blocks has the state at the last block's end."""
        self.fixed = -(-limits.states // block) * limits.kept_states
        self._kept = limits.kept_states
        self.held: dict[int, IntArray] = {}
        self._apart, self._state_bytes = limits.state_pool, limits.state_bytes
        self._free_slots = deque(range(self._apart.slots if self._apart else 0))
        self._slot: dict[int, int] = {}
        """Slots of residents in the pool of states, where they are kept apart."""

    @property
    def groups(self) -> int:
        """Groups of layers with a state."""
        return self.fixed // self._kept

    def enter(self, request: int, saved: IntArray | None = None) -> None:
        """A request is admitted. saved: blocks that hold the states which it found, int64
        (groups,)."""
        if self.fixed:
            there = np.zeros(0, np.int64) if saved is None else saved[self._pool.is_free(saved)]
            self._pool.share(there)
            # one that another request holds is read, and given a block of its own at the next end
            fresh = self._pool.take(self.fixed - len(there))
            if len(there):
                rows = fresh[: (self._kept - 1) * len(there)].reshape(len(there), -1)
                rest = fresh[rows.size :].reshape(-1, self._kept)
                fresh = np.concatenate((np.column_stack((rows, there)), rest)).ravel()
            self.held[request] = fresh
        if self._apart is not None:
            # one that comes while another, which has ended, still holds its slot gets the padding
            free = self._free_slots
            self._slot[request] = free.popleft() if free else self._apart.slots

    @property
    def state_block(self) -> int:
        return self._block if self.saves and self.groups else 0

    def state_runs(self, request: int, copy: int, nth: int, size: int) -> ByteRuns:
        if self._apart is not None:
            return self._apart.runs(self._slot[request], copy, nth * self._state_bytes, size)
        blocks = self.held[request].reshape(-1, self._kept)
        place, group = divmod(nth, len(blocks))
        return in_block(self._layout, int(blocks[group, copy]), self._block, place, size)

    def leave(self, request: int) -> None:
        """Each group on its own, tail first. vLLM frees them before the KV."""
        if self._apart is not None:
            slot = self._slot.pop(request, self._apart.slots)
            if slot < self._apart.slots:
                self._free_slots.append(slot)
        if request not in self.held or not self.fixed:
            return
        for group in np.split(self.held.pop(request), self.groups):
            # what is found again is handed out after what is not
            running = group[: -1 if self.saves else None]
            found = group[len(running) :]
            self._pool.give(np.concatenate((found, running)), len(found))

    def save(self, request: int) -> IntArray:
        """A request is at the end of a block: the blocks that hold its states there from now on,
        int64 (groups,). Those of the end before are free, and may be found until they are used."""
        groups = self.held[request].reshape(-1, self._kept)
        for group in groups:
            self._pool.give(group[-1:], 1)
            group[-1:] = self._pool.take(1)
        return groups[:, -1].copy()


class DrafterBlocks:
    """`held`, of each resident: blocks that hold a drafter's KV, int64 (groups, places)."""

    def __init__(self, pool: BlockPool, limits: Limits) -> None:
        self._pool = pool
        self.groups, self._block = limits.drafter
        self.held: dict[int, IntArray] = {}

    def most(self, tokens: IntArray) -> IntArray:
        """Blocks of requests of so many tokens, int64 (n,)."""
        return self.groups * -(-tokens // self._block)

    def lacking(self, request: int, tokens: int) -> int:
        """Further blocks for so many tokens of a request; -1: of one that is not here."""
        if not self.groups:
            return 0
        held = self.held[request].shape[1] if request in self.held else 0
        return self.groups * max(-(-tokens // self._block) - held, 0)

    def enter(self, request: int) -> None:
        """A request is here."""
        if self.groups:
            self.held[request] = np.zeros((self.groups, 0), np.int64)

    def extend(self, request: int, blocks: int) -> None:
        """So many more, as many of each group, one group after another."""
        if blocks:
            new = self._pool.take(blocks).reshape(self.groups, -1)
            self.held[request] = np.concatenate((self.held[request], new), axis=1)

    def leave(self, request: int) -> None:
        """Each group on its own, tail first; after the KV."""
        for group in self.held.pop(request, ()):
            self._pool.give(group, 0)


def renamed(held: dict[int, IntArray], request: int, names: IntArray) -> list[tuple[int, int]]:
    """Blocks of a request get other names, int64 (blocks,); (old, new) of those that change."""
    if request not in held:
        return []
    old, new = held[request].ravel(), names[held[request]]
    moved = new.ravel() != old
    held[request] = new
    return list(zip(old[moved].tolist(), new.ravel()[moved].tolist(), strict=True))
