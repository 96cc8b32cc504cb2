"""What steps wait for beside their own work: a part that a connector may have (`delays`), asked by
the replica as vLLM's worker asks its side of a connector. Times are those of
`policies.memory.step_times`.

| hook | called | what it may do |
|---|---|---|
| `moving` | once a stretch of steps, before it begins | say what reads and writes the memory |
| `stalls` | the same, behind `moving` of all | make steps wait; put what they wait for |
| `done` | once a stretch, as it is over, before `Connector.passed` | count |
"""

from __future__ import annotations

from typing import Any

from policies.allocators.allocator import Allocator
from policies.engines.scheduled_step import Step
from policies.requests.requests import FloatArray


class StepDelays:
    """Base; as it is, no step waits.

    Example: each step waits for a message to a server elsewhere.

        >>> import numpy as np
        >>> class Message(StepDelays):
        ...     def stalls(self, step, times, efficiency, cost):
        ...         return np.full(len(times.total_s), 20e-6)
        >>> Message().moving(None)
        []
    """

    def moving(self, allocator: Allocator) -> list[Any]:
        """What moves to and from the card's memory now, where that is simulated
        (`policies.memory.contention.Moving`)."""
        return []

    def stalls(self, step: Step, times: Any, efficiency: Any, cost: float) -> FloatArray | None:
        """Seconds that each of the steps, which begin now, takes longer; float64 (rounds,), or
        None: none does. Of these as many are done as `done` has times of, or none.

        Args:
            step: the first of equal steps.
            times: theirs, with what connectors before this one stall (`StepTimes`).
            efficiency: of the memory (`Efficiency`).
            cost: of a byte of `moving` over one of the step's (`StepTimes.contended`).
        """
        return None

    def done(self, times: Any) -> None:
        """The first `len(times.total_s)` of the steps that `stalls` was last asked for are done."""
