"""v0's swap space: KV of requests that had to give up their memory waits in the host's memory, and
steps wait for its copies.

A synchronous tier. The scheduler asks it whether it takes the KV of a request that it preempts, and
later whether that has room on the device again; all else, the order of those that come back too, is
the scheduler's. A request's states, and of layers with a window what they still attend to, go with
it. Copies go over the link of each card to the host at the same time, those of stages too.

Where the options name a link, a copy takes what that says of its descriptors (the host's blocks
lie in order, assumed), and never less than its bytes over the card's own.

Each step's copies are one transfer over the link of the card to its host, which tiers use as well:
the step waits for as long as that looks when it begins (assumed). They share the host's memory with
those of other cards, where the options name one. With `least` what hides behind a step takes its
bytes from the bandwidth of the card's DRAM meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.link import LinkSpec, load_link
from policies.allocators.capabilities import OnDemand, Swaps
from policies.engines.connector import ConnectedEngine
from policies.engines.host_memory import Swapping
from policies.engines.preempted_kv import PreemptedKv
from policies.engines.scheduled_step import Step, SwapCopies
from policies.engines.step_delays import StepDelays
from policies.memory.step_times import Efficiency, StepTimes
from policies.requests.requests import FloatArray
from policies.transfers.kv_connector import KvConnector, Site
from policies.transfers.kv_link import IN, OUT, Transfer
from policies.transfers.located import layers_of, places_of
from policies.transfers.pausing import least_waste
from policies.transfers.ports import between
from policies.transfers.transfer import TransferEnd, states

Weighs = Callable[[int, int, int], tuple[int, bool]]
"""Of tokens beside so many running requests with so many tokens: how many can be copied behind a
step, and whether a copy that steps wait for wastes less than computing them again."""


class SwappedKv(PreemptedKv):
    """KV that is in a swap space, and what a step copies of it. `weighs`: where the options say
    `least`."""

    engine: ConnectedEngine

    def __init__(self, options: Swapping, site: Site) -> None:
        """Raises DescriptionError for a policy that cannot swap, and for a link that is not
        known."""
        if (able := site.allocator.able(Swaps)) is None:
            raise DescriptionError(
                f"engine.preemption: {options.choice}, and policy {site.allocator.options.name} "
                "cannot swap"
            )
        self._allocator, self._growing = able, site.allocator.able(OnDemand)
        self._space_bytes, self._site = options.space_bytes, site
        self.free_bytes: float = options.space_bytes
        """Free room, on each card's share of the host's memory."""
        self._there: dict[int, int] = {}
        """Tokens of each request that is here."""
        self._moved: list[int] = []
        """Tokens of each request that the step being scheduled copies, here or back."""
        self.back = False
        """Which of these it copies."""
        self._link = None if options.link is None else load_link(options.link)
        self._groups = layers_of(site.allocator.layout, site.model.kv_layers)
        self._states = states(site.model)
        self.link_s: list[float] = []
        """What each of those copies takes, where there is a link."""
        self._hidden = 0
        """Tokens that can be copied behind it."""
        self.weighs: Weighs | None = None
        if options.choice == "least":
            self.weighs = least_waste(site.device, site.model, site.steps, site.efficiency)

    def begins(self) -> None:
        """A step is about to be scheduled."""
        self._moved.clear()
        self.link_s.clear()
        if self.weighs is not None:
            running = self.engine.running
            held = int(self.engine.allocator.stored[running].sum())
            self._hidden = self.weighs(1, len(running), held)[0]

    def reset(self) -> None:
        """All that is here is lost."""
        self.free_bytes, self._there = self._space_bytes, {}
        self._moved, self.link_s = [], []

    def swap_out(self, request: int) -> bool:
        tokens = int(self.engine.allocator.stored[request])
        if not self._wastes_less(tokens) or self.bytes_of([tokens]) > self.free_bytes:
            return False
        self._there[request] = tokens
        self.free_bytes -= self.bytes_of([tokens])
        if self._link is not None:
            self.link_s.append(self._copy_s(self._link.back, request, tokens))
        self._moved.append(tokens)
        self.back = False
        self._allocator.swap_out(request)
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
        wanted = tokens + 1
        demand, growing = self.engine.demand(request), self._growing
        if growing is not None and not growing.fits(wanted, request, demand):
            return False
        if not self._allocator.swap_in(request):
            return False
        del self._there[request]
        self.free_bytes += self.bytes_of([tokens])
        self._moved.append(tokens)
        self.back = True
        if self._link is not None:
            self.link_s.append(self._copy_s(self._link, request, tokens))
        return True

    def undo_swap_in(self, request: int) -> None:
        self._there[request] = self._moved.pop()
        del self.link_s[-1:]
        self.free_bytes -= self.bytes_of([self._there[request]])
        self._allocator.swap_out(request)

    def swaps(self) -> SwapCopies | None:
        if not self._moved:
            return None
        return SwapCopies(tuple(self._moved), min(sum(self._moved), self._hidden))

    def _copy_s(self, link: LinkSpec, request: int, tokens: int) -> float:
        """Seconds that what a request has on a card takes over a link."""
        near = places_of(self.engine.allocator, self._groups, request)
        far = [
            (layers, TransferEnd(end.dims, end.block, np.arange(len(end.table))))
            for layers, end in near
        ]  # fmt: skip
        index = self.engine.allocator.layout.layer_index_bytes
        return (
            between(link, self._site.model, 0, tokens, near, far, False, self._states, index)
            .cost.total_ns / 1e9
        )  # fmt: skip

    def bytes_of(self, tokens: tuple[int, ...] | list[int]) -> float:
        """Of requests of so many tokens, on each card of the heaviest stage."""
        return self._site.steps.work.transferred(tokens)


class SwapDelays(StepDelays):
    """Steps wait for what they copy to a swap space, and back."""

    def __init__(self, space: SwapSpace) -> None:
        self._space, self._kv = space, space.swap
        self._options, self._site = space.options, space.site
        self._copy: Transfer | None = None
        """All that the step under way copies."""
        links = self._site.links
        self._memory = links.fabric.memory(links.place.node, self._options.dram)

    def reset(self) -> None:
        """Nothing is copied any more."""
        self._copy = None
        self._site.links.host().clear(SwapSpace.name)

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray | None:  # fmt: skip
        moved, contends = step.swaps, self._options.contends
        if self._copy is not None and not self._copy.over:  # of a step that was never done
            self._site.links.host().drop(self._copy)
        self._copy = None
        if moved is None:
            return None
        size = self._kv.bytes_of(moved.moved)
        bytes_s = self._site.steps.host_s(size)
        alone_s = max(bytes_s, sum(self._kv.link_s))
        self._copy = copy = self._copied(size, alone_s)
        if self._memory is not None:
            whole = size * self._site.cards
            copy.alone_s = self._memory.seconds(copy, self._space.now_s, whole)
        taken_s, late_s = copy.alone_s, self._put(copy)
        shared = self._memory is not None or late_s > 0
        if not shared and alone_s == bytes_s and not (contends and moved.hidden):
            return None
        waits_s, longer = np.zeros(len(times.total_s)), times
        waits_s[0] = alone_s - bytes_s
        if shared:
            spare_s = float(times.total_s[0]) - bytes_s if moved.hidden else 0.0
            waits_s[0] = max(taken_s + late_s - bytes_s - max(spare_s, 0.0), 0.0)
            longer = times.delayed(waits_s)
        if contends and moved.hidden:
            hidden = moved.hidden / step.swapped
            taken = size * hidden / float(longer.total_s[0])
            waits_s += longer.contended(taken, self._site.steps.bandwidth * efficiency.attention)
        return waits_s

    def _copied(self, size: float, seconds: float) -> Transfer:
        """What a step copies, as one transfer of so many seconds."""
        places = self._site.links.places
        hosts = tuple(each.host for each in places)
        ends = (hosts, places) if self._kv.back else (places, hosts)
        return Transfer(
            source=ends[0], target=ends[1], ends=(IN if self._kv.back else OUT,), bytes=round(size),
            alone_s=seconds, way=SwapSpace.name,
        )  # fmt: skip

    def _put(self, copy: Transfer) -> float:
        """Put it on the card's link to its host: how much longer it takes for what else moves
        there, as far as is known."""
        link = self._site.links.host()
        while link.now_s < self._space.now_s:  # nobody else goes on with it
            link.until(self._space.now_s)
        link.put(copy)
        late_s = link.end_s(copy) - self._space.now_s - copy.alone_s
        return late_s if late_s > 1e-9 * copy.alone_s else 0.0

    def done(self, times: StepTimes) -> None:
        self._copy = None


class SwapSpace(KvConnector):
    """The swap space of one replica; see the module."""

    name = "swap"
    holds_states = True
    options: Swapping
    swap: SwappedKv
    delays: SwapDelays

    def __init__(self, options: Swapping, site: Site) -> None:
        """Raises DescriptionError for a device without a link to its host, and as `SwappedKv`."""
        super().__init__(options, site)
        accelerator = site.device.accelerator
        if accelerator is not None and accelerator.host is None:
            raise DescriptionError(
                f"{site.device.name} has no host.bandwidth, which swapping needs; give it, or set "
                "engine.preemption: recompute"
            )
        self.swap = SwappedKv(options, site)
        self.delays = SwapDelays(self)

    def connect(self, engine: ConnectedEngine) -> None:
        super().connect(engine)
        self.swap.engine = engine

    def begins(self) -> None:
        self.swap.begins()

    def reset(self) -> None:
        self.swap.reset()
        self.delays.reset()
