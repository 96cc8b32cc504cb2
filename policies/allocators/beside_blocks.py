"""Blocks that a request holds beside those of its tokens: of states, whose number is fixed, and of
a drafter's layers, whose KV is unlike the model's (`policies.allocators.hybrid`)."""

from __future__ import annotations

from collections import deque

import numpy as np

from policies.allocators.allocator import Limits
from policies.allocators.free_lists.free_list import FreeList
from policies.allocators.kv_layout import ByteRuns, KvLayout
from policies.allocators.state_places import in_block
from policies.requests.requests import IntArray


class BesideBlocks:
    """`states`, of each resident: blocks that hold states, group by group. `drafter`: those that
    hold a drafter's KV, int64 (groups, places). `fixed`: blocks of states of a request."""

    def __init__(self, free: FreeList, limits: Limits, block: int, uses: IntArray) -> None:
        """uses: int64 (blocks,), how often each was handed out (`BlockCache`)."""
        self._list, self._uses = free, uses
        self.saves = limits.saves_states
        """Whether the last of a group's blocks has the state at the last block's end."""
        self.fixed = -(-limits.states // block) * limits.kept_states
        self._kept = limits.kept_states
        self.groups, self._block = limits.drafter
        self.states: dict[int, IntArray] = {}
        self.drafter: dict[int, IntArray] = {}
        self._pool, self._state_bytes = limits.state_pool, limits.state_bytes
        self._free_slots = deque(range(self._pool.slots if self._pool else 0))
        self._slot: dict[int, int] = {}
        """Slots of residents in the pool of states, where they are kept apart."""

    @property
    def state_groups(self) -> int:
        """Groups of layers with a state."""
        return self.fixed // self._kept

    def most(self, tokens: IntArray) -> IntArray:
        """Blocks of requests of so many tokens, int64 (n,)."""
        most: IntArray = self.fixed + self.groups * -(-tokens // self._block)
        return most

    def wanted(self, request: int, tokens: int) -> int:
        """Further blocks of a drafter's groups for so many tokens of a request; -1: of one that is
        not here."""
        if not self.groups:
            return 0
        held = self.drafter[request].shape[1] if request in self.drafter else 0
        return self.groups * max(-(-tokens // self._block) - held, 0)

    def enter(self, request: int, saved: IntArray | None = None) -> int:
        """A request is admitted: how many blocks it has taken. saved: those that hold the states
        which it found, int64 (groups,)."""
        if self.fixed:
            there = np.zeros(0, np.int64) if saved is None else saved[self._list.is_free(saved)]
            self._list.take(there)
            # one that another request holds is read, and given a block of its own at the next end
            fresh = self._pop(self.fixed - len(there))
            if len(there):
                rows = fresh[: (self._kept - 1) * len(there)].reshape(len(there), -1)
                rest = fresh[rows.size :].reshape(-1, self._kept)
                fresh = np.concatenate((np.column_stack((rows, there)), rest)).ravel()
            self.states[request] = fresh
        self.enter_drafter(request)
        if self._pool is not None:
            # one that comes while another, which has ended, still holds its slot gets the padding
            free = self._free_slots
            self._slot[request] = free.popleft() if free else self._pool.slots
        return self.fixed

    def enter_drafter(self, request: int) -> None:
        """A request is here, whose states are elsewhere."""
        if self.groups:
            self.drafter[request] = np.zeros((self.groups, 0), np.int64)

    def state_runs(
        self, layout: KvLayout, block: int, request: int, copy: int, nth: int, size: int
    ) -> ByteRuns:
        """See `KeepsStates.state_runs`; block: tokens of one of the model's."""
        if self._pool is not None:
            return self._pool.runs(self._slot[request], copy, nth * self._state_bytes, size)
        blocks = self.states[request].reshape(-1, self._kept)
        place, group = divmod(nth, len(blocks))
        return in_block(layout, int(blocks[group, copy]), block, place, size)

    def extend(self, request: int, blocks: int) -> int:
        """So many more of a drafter's groups, as many of each, one group after another."""
        if blocks:
            new = self._pop(blocks).reshape(self.groups, -1)
            self.drafter[request] = np.concatenate((self.drafter[request], new), axis=1)
        return blocks

    def leave_states(self, request: int) -> int:
        """Each group on its own, tail first; how many. vLLM frees them before the KV."""
        if self._pool is not None:
            slot = self._slot.pop(request, self._pool.slots)
            if slot < self._pool.slots:
                self._free_slots.append(slot)
        if request not in self.states:
            return 0
        if self.fixed:
            for group in np.split(self.states.pop(request), self.fixed // self._kept):
                # what is found again is handed out after what is not
                running = group[: -1 if self.saves else None]
                self._list.push(np.append(running[::-1], group[len(running) :]), len(running))
        return self.fixed

    def save(self, request: int) -> IntArray:
        """A request is at the end of a block: the blocks that hold its states there from now on,
        int64 (groups,). Those of the end before are free, and may be found until they are used."""
        groups = self.states[request].reshape(-1, self._kept)
        for group in groups:
            self._list.push(group[-1:])
            group[-1:] = self._pop(1)
        return groups[:, -1].copy()

    def _pop(self, count: int) -> IntArray:
        blocks = self._list.pop(count)
        self._uses[blocks] += 1
        return blocks

    def leave_drafter(self, request: int) -> int:
        """As `leave_states`; after the KV."""
        if (groups := self.drafter.pop(request, None)) is None:
            return 0
        for group in groups:
            self._list.push(group[::-1], len(group))
        return groups.size

    def renamed(self, request: int, names: IntArray) -> list[tuple[int, int]]:
        """Blocks get other names, int64 (blocks,); (old, new) of those that change."""
        changed: list[tuple[int, int]] = []
        for held in (self.states, self.drafter):
            if request in held:
                old, new = held[request].ravel(), names[held[request]]
                moved = new.ravel() != old
                changed += zip(old[moved].tolist(), new.ravel()[moved].tolist(), strict=True)
                held[request] = new
        return changed
