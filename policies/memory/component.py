"""What a replica has beside its engine and its memory: whatever takes time of its own, or makes
steps wait."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from policies.allocators.allocator import Allocator
from policies.engines.host_memory import HostTraffic
from policies.engines.scheduled_step import Step
from policies.memory.contention import Moving
from policies.memory.step_times import Efficiency, StepTimes
from policies.requests.requests import FloatArray


class Component:
    """Base of all components; as it is, nothing happens."""

    outlives: ClassVar[bool] = False
    """Whether it keeps what it has when its card fails, which then comes again with it."""

    @property
    def most_rounds(self) -> int:
        """Steps that are advanced together at most, from now on."""
        return 1 << 62

    @property
    def due_s(self) -> float:
        """When something happens next; inf: never, as far as it is known."""
        return math.inf

    def clock(self, now_s: float) -> None:
        """It is `now_s`, and a step may begin; it never goes back. No step ran since `passed`."""

    def moving(self, allocator: Allocator) -> list[Moving]:
        """What moves to and from the card's memory now, where that is simulated."""
        return []

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray | None:
        """Seconds that each of the steps, which begin now, takes longer; float64 (rounds,), or
        None: none does. Of these as many are done as `passed` has times of, or none.

        Args:
            step: the first of equal steps.
            times: theirs, with what components before this one stall.
            efficiency: of the memory.
            cost: of a byte of `moving` over one of the step's (`StepTimes.contended`).
        """
        return None

    def passed(self, end_s: float, times: StepTimes) -> None:
        """The first `len(times.total_s)` of the steps that `stalls` was last asked for are done,
        the last at `end_s`."""

    def share_host(self, host: HostTraffic) -> None:
        """The host's memory carries the copies of all its cards together."""

    def host_fails(self, at_s: float) -> None:
        """The host's memory loses all content then, which is not before now."""

    def retire(self) -> None:
        """Its replica serves no more; others have its cards, and their hosts."""

    def mark(self) -> None:
        """The warm-up is over: what was counted before does not count."""

    def figures(self) -> dict[str, Any]:
        """For the metrics, by name."""
        return {}
