"""What makes steps of a replica wait beside transfers of connectors: frames that are mapped, swaps,
copies between cards, attention that is computed elsewhere."""

from __future__ import annotations

import numpy as np

from policies.allocators.capabilities import Maps
from policies.engines.engine import Engine
from policies.engines.host_memory import HostTraffic
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


class Swaps(Component):
    """Copies of swapped KV: they share the host's memory with those of other cards (without
    `share_host` it carries all that links do), and those that hide behind a step take bandwidth
    from it."""

    def __init__(self, steps: StepModel, token_bytes: int) -> None:
        self._steps, self._token_bytes = steps, token_bytes
        self._host: HostTraffic | None = None
        self._now_s = 0.0

    def share_host(self, host: HostTraffic) -> None:
        self._host = host

    def clock(self, now_s: float) -> None:
        self._now_s = now_s

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray | None:  # fmt: skip
        if not step.swapped or (self._host is None and not step.beside):
            return None
        waits_s, longer = np.zeros(len(times.total_s)), times
        if self._host is not None:
            waits_s[0] = self._host_s(step, times, self._host)
            longer = times.delayed(waits_s)
        if step.beside:
            taken = step.beside * self._token_bytes / float(longer.total_s[0])
            waits_s += longer.contended(taken, self._steps.bandwidth * efficiency.attention)
        return waits_s

    def _host_s(self, step: Step, times: StepTimes, host: HostTraffic) -> float:
        """Seconds that a step which swaps waits for the host's memory beyond what its link takes.
        What hides may take as long as the step."""
        alone_s, size = self._steps.swap_s(step.swapped), self._steps.swap_bytes(step.swapped)
        taken_s = host.seconds(self._now_s, size, size / alone_s)
        spare_s = float(times.total_s[0]) - alone_s if step.hidden else 0.0
        return max(taken_s - alone_s - max(spare_s, 0.0), 0.0)


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
