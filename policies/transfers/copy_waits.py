"""Steps of a card beside copies that read or write its memory."""

from __future__ import annotations

from policies.engines.scheduled_step import Step
from policies.engines.step_delays import StepDelays
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency, StepTimes
from policies.requests.requests import FloatArray
from policies.transfers.fabric import Links


class CopyWaits(StepDelays):
    """Of one replica. `slower`: shares by which such steps took longer."""

    def __init__(self, steps: StepModel, links: Links) -> None:
        self._steps, self._links = steps, links
        self.slower: list[float] = []

    def rounds(self, limit: int) -> int:
        """How many steps, of at most `limit`, to look at together: copies end beside them."""
        return min(limit, 16) if self._links.copying() else limit

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray | None:  # fmt: skip
        if not (taken := self._links.copying()):
            return None
        waits_s = times.contended(taken, self._steps.bandwidth * efficiency.attention)
        self.slower.append(float(waits_s[0] / times.total_s[0]))
        return waits_s
