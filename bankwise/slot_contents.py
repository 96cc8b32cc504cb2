"""Which token of whom lies in each slot of an allocator, as requests store them and copies move
them: what its tables say is held against that."""

from __future__ import annotations

import numpy as np

from bankwise.contract_broken import ContractBroken
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Contiguous, CopiesKv
from policies.requests.requests import IntArray


class SlotContents:
    """Of an allocator whose requests have nothing in common."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._owner = np.full(allocator.slots, -1)
        self._token = np.full(allocator.slots, -1)
        self._stored: dict[int, int] = {}
        runs, copying = allocator.able(Contiguous), allocator.able(CopiesKv)
        self._told = [] if runs is None else [runs.moves]
        self._told += [] if copying is None else [copying.copies]
        self._for_nothing = getattr(allocator.options, "compaction", "none") == "free"

    def after(self, what: str, held: list[int]) -> None:
        """It has done this, and these hold memory. Raises ContractBroken where a token that was
        stored lies in another slot, and no copy has brought it there."""
        copies = [copy for told in self._told for copy in told()]
        owner, token = self._owner.copy(), self._token.copy()
        for copy in copies:
            source, target = (slice(at, at + copy.tokens) for at in (copy.source, copy.target))
            self._owner[target], self._token[target] = owner[source], token[source]
        for request in held if not self._for_nothing else ():
            before = self._stored.get(request, 0)
            slots = self._slots(request)[:before]
            lies = (self._owner[slots] == request) & (self._token[slots] == np.arange(before))
            if not lies.all():
                at = int(lies.argmin())
                raise ContractBroken(
                    f"{what} has token {at} of request {request} in slot {slots[at]}, to which "
                    "neither CopiesKv.copies nor Contiguous.moves has copied it: steps would not "
                    "wait for that"
                )
        for request in held:
            slots = self._slots(request)
            self._owner[slots], self._token[slots] = request, np.arange(len(slots))
        self._stored = {request: len(self._slots(request)) for request in held}

    def _slots(self, request: int) -> IntArray:
        """Of its tokens, in order."""
        units = self._allocator.units(request)
        pairs = zip(units.start.tolist(), units.tokens.tolist(), strict=True)
        return np.concatenate([np.arange(start, start + tokens) for start, tokens in pairs])
