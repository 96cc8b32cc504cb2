"""Flash as a memory of a card: what a step reads of it comes in whole pages.

A page's bytes that no extent of the step wants are read in vain, so that blocks smaller than a
page, or runs that begin within one, take longer than their bytes. Each page is read once a layer
and step. Planes that read at the same time, and the interface, bound the rate; writes have a rate
of their own. All of it is a closed form over the step's own extents: nothing here hangs on which
plane a page lies in (assumed: pages are spread evenly over them).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory import traffic
from policies.memory.fidelity import Memory
from policies.memory.step_times import Efficiency, StepTimes
from policies.memory.step_work import total
from policies.memory.traffic import Extents
from policies.placements.placement import CardSpace, Placement

EVERY = 64
"""Steps after which the pages of a phase are counted again (assumed)."""


class FlashMemory(Memory):
    """What reaches the engines of a flash. placement: what of a stream lies here, in `memory` of
    the card; None: all of it. base: where KV begins in the layout."""

    def __init__(
        self, device: Device, model: TransformerSpec, even: float, base: int,
        placement: Placement | None = None, memory: str = "", space: CardSpace | None = None,
    ) -> None:  # fmt: skip
        assert device.given is not None and device.given.flash is not None
        self._flash = device.given.flash
        self._reading = traffic.reading(device, model)
        self._base = base
        self._placement, self._memory, self._space = placement, memory, space
        self._capacity = device.capacity_bytes
        peak = device.given.bandwidth
        self._read_share = even * min(1.0, self._flash.array_rate / peak)
        """Of the peak, where all of every page is wanted."""
        self._write_share = min(1.0, self._flash.write_bandwidth / peak)
        self._copies = 2 / (1 / self._read_share + 1 / self._write_share)
        read = self._read_share
        super().__init__(Efficiency(read, read, read, self._copies))
        self._due: Counter[str] = Counter()
        self._pages: Counter[str] = Counter()
        self._wanted: Counter[str] = Counter()
        self._written = self._seconds = 0.0
        self._aged = 0

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        self._aged = step.aged
        allocator = engine.allocator
        # what ages is written here alone, what is copied here is read and written
        found = {"migration": self._write_share if step.aged else self._copies}
        if len(step.decode) and self._steps >= self._due["attention"]:
            extents = traffic.attention(allocator, step.decode, self._layer, self._reading)
            found["attention"] = self._share("attention", extents)
        if step.chunks and self._steps >= self._due["prefill"]:
            extents = traffic.prefill(allocator, step.chunks, self._layer, self._reading)
            found["prefill"] = self._share("prefill", extents)
        self.efficiency = self.efficiency._replace(**found)
        return self.efficiency

    @property
    def rounds_to_probe(self) -> int:  # type: ignore[override]
        return max(self._due["attention"] - self._steps, 1)

    @property
    def _layer(self) -> int:
        """A layer whose KV lies here stands for the others."""
        if self._placement is None or self._space is None:
            return 0
        layers = self._placement.layers(self._memory, self._space)
        return layers.start if len(layers) else 0

    def _share(self, phase: str, extents: Extents) -> float:
        """Share of the peak at which these extents are moved; the efficiency as it is where none of
        them lies here."""
        self._due[phase] = self._steps + EVERY
        start, size, write = extents.start - self._base, extents.size, extents.write
        if self._placement is not None and self._space is not None:
            part = self._placement.part(
                "kv", self._memory, start, size, self._layer, self._space
            )  # fmt: skip
            start, size, write = part.start, part.size, write[part.source]
        moved, written = int(size.sum()), int(size[write].sum())
        if not moved:
            return float(getattr(self.efficiency, phase))
        pages = self._touched(start[~write], size[~write])
        self._pages[phase] += pages
        self._wanted[phase] += moved - written
        at_peak = pages * self._flash.page / self._read_share + written / self._write_share
        return moved / at_peak

    def _touched(self, start: Any, size: Any) -> int:
        """Different pages that extents have bytes in."""
        if not len(start):
            return 0
        order = np.argsort(start, kind="stable")
        first = start[order] // self._flash.page
        reach = np.maximum.accumulate((start + size - 1)[order] // self._flash.page)
        before = np.concatenate(([-1], reach[:-1]))
        return int((reach - np.maximum(first - 1, before)).clip(0).sum())

    def passed(self, rounds: int, times: StepTimes | None = None) -> None:
        self._steps += rounds
        if times is not None:
            share = 1.0
            if self._placement is not None and self._space is not None:
                share = self._placement.read("kv", self._space).get(self._memory, 0.0)
            for phase in times.work.phases.values():
                self._written += share * float(total(phase.bytes.get("kv_written", 0), rounds))
            if self._space is not None:  # counted as they were made, though written only now
                self._written -= rounds * self._aged * self._space.slot_bytes
            self._seconds += float(times.total_s.sum())

    def mark(self) -> None:
        self._pages.clear()
        self._wanted.clear()
        self._written = self._seconds = 0.0

    def report(self, moved_bytes: int) -> dict[str, Any]:
        """As of any memory; `page_use`: share of the bytes of the pages that were wanted;
        `writes_a_day`: times its capacity, and `years`, until it is worn out at that pace, while
        steps run."""
        uses = {
            phase: self._wanted[phase] / (pages * self._flash.page)
            for phase, pages in self._pages.items() if pages
        }  # fmt: skip
        days = self._seconds / 86400
        a_day = self._written / self._capacity / days if days else 0.0
        return {
            **super().report(moved_bytes),
            "page_use": uses,
            "writes_a_day": a_day,
            "years": self._flash.endurance / a_day / 365.25 if a_day else None,
        }
