"""KV of requests that a scheduler with a queue of such preempts (v0), kept until they come back: a
part that a connector may have (`swap`). Steps wait for its copies.

| hook | called | what it may do |
|---|---|---|
| `swap_out` | a request that decodes is preempted | take its KV, and free its memory |
| `swap_in` | each step, of the first in the queue, once there could be room | give its KV back |
| `undo_swap_in` | where its next token has no room then | take it again |
| `swaps` | once a step, as it is scheduled | say what the step copies |
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from policies.engines.scheduled_step import SwapCopies


class PreemptedKv(ABC):
    """Base."""

    @abstractmethod
    def swap_out(self, request: int) -> bool:
        """A request that decodes has to give its memory up: whether its KV is copied elsewhere, and
        the memory free."""

    @abstractmethod
    def swap_in(self, request: int) -> bool:
        """Whether such a request has its memory again, to which its KV is copied in this step."""

    @abstractmethod
    def undo_swap_in(self, request: int) -> None:
        """One that has just got its memory has no room for its next token, and stays elsewhere."""

    @abstractmethod
    def swaps(self) -> SwapCopies | None:
        """What the step being scheduled copies so, and waits for."""
