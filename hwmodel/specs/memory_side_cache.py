"""The description of a cache between an accelerator's requesters and its memory channels.

Modelled is one thing that it does: dirty data waits in it, so that a channel gets writes in long
runs and turns its bus round seldom. Hits are not: KV caches and weights are larger, and read once a
step (`on_chip` remarks on small models).
"""

from __future__ import annotations

from typing import Literal

from hwmodel.description.description import Strict
from hwmodel.description.units import PositiveBytes
from hwmodel.specs.controller import MAX_QUEUE
from hwmodel.specs.memory_spec import MemorySpec


class MemorySideCache(Strict):
    """An L2 or a system cache that all writes of the requesters pass."""

    size: PositiveBytes
    """Changes no result: what is `collected` is far less."""
    policy: Literal["write_back", "write_through"]
    """write_through: no write waits in it, so that none are collected."""
    collected: PositiveBytes
    """Writes of one channel that wait together at most."""

    def write_queue(self, memory: MemorySpec) -> int:
        """Entries (bursts) of each write queue of a channel that hold what is collected. With
        `queues: shared` there is no write queue, and nothing is collected. Raises ValueError where
        a queue cannot have so many."""
        organisation = memory.organisation
        per_bank = memory.controller.queue_scope == "bank"
        queues = organisation.banks if per_bank else organisation.pseudochannels
        entries = self.collected // organisation.burst_bytes // queues
        if not 1 <= entries <= MAX_QUEUE:
            raise ValueError(
                f"{self.collected} B in {queues} write queues of {memory.name} are {entries}"
                f" bursts each; expected 1 to {MAX_QUEUE}"
            )
        return entries
