"""What an engine may have beside its scheduler, its memory and its drafts.

A part is told what the scheduler does with requests, and may keep memory for requests that do not
run, or tokens of those that run in other places. As it is, it does nothing: a part overrides the
hooks that concern it. `policies.transfers.hosting` and `policies.transfers.lender` are two.
"""

from __future__ import annotations

import numpy as np

from policies.allocators.allocator import Demand
from policies.engines.scheduled_step import Step
from policies.requests.requests import IntArray

NONE: IntArray = np.zeros(0, np.int64)


class Part:
    """Base of all parts.

    Example: one that counts steps in which nothing is computed.

        >>> class Idle(Part):
        ...     steps = 0
        ...     def scheduled(self, step):
        ...         self.steps += step.empty
        ...         return step
    """

    def busy(self, own: bool) -> bool:
        """Whether the engine has something to do now.

        Args:
            own: whether it has, as far as its scheduler knows.
        """
        return own

    @property
    def holding(self) -> bool:
        """Whether memory is held that will be given back, though nothing runs."""
        return False

    @property
    def holders(self) -> IntArray:
        """Requests for which it holds memory, and which neither run nor have just ended, int64
        (n,)."""
        return NONE

    @property
    def changing(self) -> bool:
        """Whether what it keeps changes from step to step, so that no two of them are equal."""
        return False

    def begins(self) -> None:
        """A step is about to be scheduled."""

    def lost(self) -> list[int]:
        """The card has lost all that it had: it keeps memory for nobody any more.

        Returns:
            Requests that were here alone and did not run: they begin again.
        """
        return []

    def gives_way(self) -> bool:
        """Nothing could be scheduled: give memory back, if there is any; whether there was."""
        return False

    def scheduled(self, step: Step) -> Step:
        """The step, with what it adds to it."""
        return step

    def preempted(self, request: int) -> None:
        """A request was preempted."""

    def away(self, request: int) -> int:
        """Tokens that a request stores in other places."""
        return 0

    def apart(self, request: int) -> bool:
        """Whether a request has room, or tokens, in other places: nobody else moves it."""
        return False

    def admit(self, request: int, demand: Demand, total: int, cached: int, tokens: int) -> bool:
        """Reserve slots for a request that has no room of its own here, with what it has room for
        in other places; whether there were enough.

        Args:
            total: tokens to prefill.
            cached: those of them that are in memory here.
            tokens: those that its first step stores behind them.
        """
        return False

    def admitted(self, request: int) -> None:
        """A request has all of its memory here."""

    def grow(self, request: int, tokens: int) -> bool | None:
        """Store the next tokens of a prefill, here and in other places; whether there is room. None
        (nothing changes): all of it lies here."""
        return None

    def leave(self, request: int) -> int | None:
        """A request ends or is preempted: the tokens that it gives back in other places. Then what
        it stores here cannot be found again. None: it has nothing there."""
        return None
