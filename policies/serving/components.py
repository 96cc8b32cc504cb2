"""What makes steps of a replica wait beside transfers of connectors: frames that are mapped, copies
between cards, attention that is computed elsewhere."""

from __future__ import annotations

from policies.allocators.capabilities import Maps
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.component import Component
from policies.memory.step import Efficiency, StepModel, StepTimes
from policies.requests.requests import FloatArray
from policies.transfers.hosting import Hosting
from policies.transfers.lender import Lender


class MappedFrames(Component):
    """Steps wait until an allocator has mapped the frames that they need."""

    def __init__(self, allocator: Maps) -> None:
        self._allocator = allocator

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray:  # fmt: skip
        return self._allocator.stalls(step.decode, times.total_s)

    def passed(self, end_s: float, times: StepTimes) -> None:
        self._allocator.charged()


class HostedCopies(Component):
    """Copies of requests that move between cards while they run."""

    def __init__(self, hosting: Hosting, steps: StepModel) -> None:
        self._hosting, self._steps = hosting, steps
        self._now_s = 0.0

    @property
    def most_rounds(self) -> int:
        return 16 if self._hosting.copying else super().most_rounds  # they end beside the steps

    @property
    def due_s(self) -> float:
        return self._hosting.due_s

    def clock(self, now_s: float) -> None:
        self._now_s = now_s
        self._hosting.land(now_s)

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray | None:  # fmt: skip
        taken = self._hosting.copied_bytes_s(self._now_s)
        if not taken:
            return None
        waits_s = times.contended(taken, self._steps.bandwidth * efficiency.attention)
        self._hosting.slower.append(float(waits_s[0] / times.total_s[0]))
        return waits_s


class Lent(Component):
    """Attention that other cards compute for this one, and this one for others."""

    def __init__(self, lender: Lender, steps: StepModel) -> None:
        self._lender, self._steps = lender, steps

    @property
    def most_rounds(self) -> int:
        return 16  # the driver decides something every few steps

    @property
    def due_s(self) -> float:
        return self._lender.due_s

    def clock(self, now_s: float) -> None:
        self._lender.land(now_s)

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray:  # fmt: skip
        return self._lender.stalls(times, step.chunks, self._steps, efficiency)

    def passed(self, end_s: float, times: StepTimes) -> None:
        self._lender.passed(times)


def hosted(engine: Engine, steps: StepModel) -> Component:
    """Lets requests of an engine move to and from others while they run (`Hosting`). Raises
    DescriptionError where its policy does not."""
    return HostedCopies(Hosting(engine), steps)


def lent(engine: Engine, steps: StepModel) -> Component:
    """Lets an engine keep KV on other cards, and theirs (`Lender`). Raises DescriptionError where
    its policy does not."""
    return Lent(Lender(engine), steps)
