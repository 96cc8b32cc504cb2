"""Groups of frames, one for each tensor, that are mapped to the places of request ids and stay
there until others need them (`policies.allocators.vattention`)."""

from __future__ import annotations

import heapq

import numpy as np


class FrameGroups:
    """Of each id the groups that are mapped to it, in token order, of which the first ones are in
    use. `virtual`, int64 (groups,): where each group that is mapped lies, its id times `span` and
    its number there. `taken`, `mapped`: groups that ids began to use, and those of them that had to
    be mapped for it."""

    def __init__(self, groups: int, span: int, low: int) -> None:
        """low: groups without tokens are unmapped as soon as the pool holds fewer; 0: when one is
        needed."""
        self._pool = list(range(groups - 1, -1, -1))
        self._groups: list[list[int]] = []
        self._needed: list[int] = []
        self._spare: list[int] = []
        """Ids that may have more groups than they need, negative: a heap, the highest first."""
        self._free_ids: set[int] = set()
        self._low = low
        self.span = span
        self.virtual = np.zeros(groups, np.int64)
        self.mapped = self.taken = 0

    @property
    def ids(self) -> int:
        """How many there have been."""
        return len(self._groups)

    def used(self, held: int) -> list[int]:
        """Groups that an id uses."""
        return self._groups[held][: self._needed[held]]

    def fitting_id(self, wanted: int) -> int:
        """A free id: of those with so many groups the one with the fewest, else the one with the
        most; a new one where none is free."""
        if not self._free_ids:
            self._groups.append([])
            self._needed.append(0)
            return len(self._groups) - 1
        have = [(len(self._groups[each]), each) for each in self._free_ids]
        chosen = min((groups < wanted, abs(groups - wanted), each) for groups, each in have)[2]
        self._free_ids.remove(chosen)
        return chosen

    def take(self, held: int) -> tuple[int, bool, bool]:
        """A group more for an id, of which there is one: its number there, whether it had to be
        mapped, and whether it lies behind the one before."""
        groups, at = self._groups[held], self._needed[held]
        new = len(groups) == at
        if new:
            if not self._pool:
                self._reclaim()
            group = self._pool.pop()
            self.virtual[group] = held * self.span + at
            groups.append(group)
        self.taken += 1
        self.mapped += new
        self._needed[held] += 1
        follows = at > 0 and groups[at - 1] + 1 == groups[at]
        self._keep_low()
        return at, new, follows

    def leave(self, held: int) -> None:
        """An id is free; its groups stay mapped."""
        self._needed[held] = 0
        self._free_ids.add(held)
        heapq.heappush(self._spare, -held)
        self._keep_low()

    def mapping(self, ids: list[int]) -> list[bool]:
        """Whether each further group of these ids will have to be mapped, as `take` finds it when
        its turn comes: until then others may have taken what its id had mapped."""
        have, needed = [len(groups) for groups in self._groups], self._needed.copy()
        pool, spare, mapped = len(self._pool), self._spare.copy(), []
        for held in ids:
            new = have[held] == needed[held]
            needed[held] += 1
            have[held] += new
            pool -= new
            while (pool < 0 or pool < self._low) and spare:
                if have[-spare[0]] > needed[-spare[0]]:
                    have[-spare[0]] -= 1
                    pool += 1
                else:
                    heapq.heappop(spare)
            mapped.append(new)
        return mapped

    def _keep_low(self) -> None:
        while len(self._pool) < self._low and self._reclaim():
            pass

    def _reclaim(self) -> bool:
        """Unmap the last group that the highest id does not need; whether any had one."""
        while self._spare:
            held = -self._spare[0]
            if len(self._groups[held]) > self._needed[held]:
                self._pool.append(self._groups[held].pop())
                return True
            heapq.heappop(self._spare)
        return False
