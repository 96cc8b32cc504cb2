"""v0's swap space: KV of requests that had to give up their memory waits in the host's memory, and
steps wait for its copies.

A synchronous tier. The scheduler asks it whether it takes the KV of a request that it preempts, and
later whether that has room on the device again; all else, the order of those that come back too, is
the scheduler's. A request's states, and of layers with a window what they still attend to, go with
it. Copies go over the link of each card to the host at the same time, those of stages too.

They share the host's memory with those of other cards (without `share_host` it carries all that
links do). With `least` what hides behind a step takes its bytes from the bandwidth of the card's
DRAM meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.capabilities import OnDemand, Swaps
from policies.engines.additions import Transfers
from policies.engines.host_memory import HostTraffic, Swapping
from policies.engines.scheduled_step import Step
from policies.memory.step import Efficiency, StepTimes
from policies.requests.requests import FloatArray
from policies.transfers.kv_connector import KvConnector, Site
from policies.transfers.pausing import least_waste

Weighs = Callable[[int, int, int], tuple[int, bool]]
"""Of tokens beside so many running requests with so many tokens: how many can be copied behind a
step, and whether a copy that steps wait for wastes less than computing them again."""


class SwapSpace(KvConnector):
    """The swap space of one replica; see the module. `weighs`: where the options say `least`."""

    name = "swap"
    holds_states = True
    keeps_preempted = True
    options: Swapping

    def __init__(self, options: Swapping, site: Site) -> None:
        """Raises DescriptionError for a policy that cannot swap, and for a device without a link to
        its host."""
        super().__init__(options, site)
        accelerator, policy = site.device.accelerator, site.allocator.options.name
        if accelerator is not None and accelerator.host is None:
            raise DescriptionError(
                f"{site.device.name} has no host.bandwidth, which swapping needs; give it, or set "
                "engine.preemption: recompute"
            )
        if (able := site.allocator.able(Swaps)) is None:
            raise DescriptionError(
                f"engine.preemption: {options.choice}, and policy {policy} cannot swap"
            )
        self._allocator, self._growing = able, site.allocator.able(OnDemand)
        self.free_bytes: float = options.space_bytes
        """Free room, on each card's share of the host's memory."""
        self._there: dict[int, int] = {}
        """Tokens of each request that is here."""
        self._moved: list[int] = []
        """Tokens of each request that the step being scheduled copies, here or back."""
        self._hidden = 0
        """Tokens that can be copied behind it."""
        self._host: HostTraffic | None = None
        self.weighs: Weighs | None = None
        if options.choice == "least":
            self.weighs = least_waste(site.device, site.model, site.steps, site.efficiency)

    # as a connector of an engine

    def begins(self) -> None:
        self._moved.clear()
        if self.weighs is not None:
            running = self.engine.running
            held = int(self.engine.allocator.stored[running].sum())
            self._hidden = self.weighs(1, len(running), held)[0]

    def swap_out(self, request: int) -> bool:
        tokens = int(self.engine.allocator.stored[request])
        alone = self.options.choice == "auto" and self.engine.samples[request] == 1
        if alone or not self._wastes_less(tokens) or self._bytes([tokens]) > self.free_bytes:
            return False
        self._there[request] = tokens
        self.free_bytes -= self._bytes([tokens])
        self._moved.append(self._allocator.swap_out(request))
        return True

    def _wastes_less(self, tokens: int) -> bool:
        """Whether copying so many tokens wastes less than computing them again, as far as it is
        asked."""
        if self.weighs is None or sum(self._moved) + tokens <= self._hidden:
            return True
        running = self.engine.running
        held = int(self.engine.allocator.stored[running].sum()) - tokens
        return self.weighs(tokens, len(running) - 1, held)[1]

    def swap_in(self, request: int) -> bool:
        tokens, moved = self._there[request], sum(self._moved)
        if self.weighs is not None and moved and moved + tokens > self._hidden:
            return False  # one comes back a step, or as many as hide
        wanted = tokens + int(self.engine.samples[request])
        demand, growing = self.engine.demand(request), self._growing
        if growing is not None and not growing.fits(wanted, request, demand):
            return False
        if not self._allocator.swap_in(request):
            return False
        del self._there[request]
        self.free_bytes += self._bytes([tokens])
        self._moved.append(tokens)
        return True

    def undo_swap_in(self, request: int) -> None:
        self._there[request] = self._moved.pop()
        self.free_bytes -= self._bytes([self._there[request]])
        self._allocator.swap_out(request)

    def transfers(self) -> Transfers | None:
        if not self._moved:
            return None
        return Transfers(tuple(self._moved), min(sum(self._moved), self._hidden))

    def reset(self) -> None:
        self.free_bytes, self._there, self._moved = self.options.space_bytes, {}, []

    # as a component of a replica

    def share_host(self, host: HostTraffic) -> None:
        self._host = host

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray | None:  # fmt: skip
        moved, contends = step.transfers, self.options.contends
        if moved is None or (self._host is None and not (contends and moved.hidden)):
            return None
        size = self._bytes(moved.moved)
        waits_s, longer = np.zeros(len(times.total_s)), times
        if self._host is not None:
            waits_s[0] = self._host_s(size, moved, times, self._host)
            longer = times.delayed(waits_s)
        if contends and moved.hidden:
            taken = size * moved.hidden_share / float(longer.total_s[0])
            waits_s += longer.contended(taken, self.site.steps.bandwidth * efficiency.attention)
        return waits_s

    def _host_s(
        self, size: float, moved: Transfers, times: StepTimes, host: HostTraffic
    ) -> float:  # fmt: skip
        """Seconds that a step which swaps waits for the host's memory beyond what its links take.
        What hides may take as long as the step."""
        alone_s = self.site.steps.host_s(size)
        whole = size * self.site.cards
        taken_s = host.seconds(self.now_s, whole, whole / alone_s)
        spare_s = float(times.total_s[0]) - alone_s if moved.hidden else 0.0
        return max(taken_s - alone_s - max(spare_s, 0.0), 0.0)

    def _bytes(self, tokens: tuple[int, ...] | list[int]) -> float:
        """Of requests of so many tokens, on each card of the heaviest stage."""
        return self.site.steps.work.transferred(tokens)
