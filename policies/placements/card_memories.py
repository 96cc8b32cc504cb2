"""The memories of a card, and what lies in which of them."""

from __future__ import annotations

import math
from typing import Literal

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from policies.placements.placement import MAIN, CardSpace, MemorySupply, PlacementOptions, What
from policies.placements.placements import PLACEMENTS

ALIGN_BYTES = 2 << 20
"""KV starts at a multiple of this in each memory (assumed: a 2 MiB page of device memory)."""


class CardMemories:
    """Those of a device under a placement. Raises DescriptionError where it names one that is not
    there, or the device has only one."""

    def __init__(self, device: Device, options: PlacementOptions) -> None:
        if not device.memories:
            raise DescriptionError(
                f"memories: {device.name} has one memory; expected a device with several, or none"
                " of this key"
            )
        assert device.accelerator is not None
        self.devices = {MAIN: device, **device.memories}
        """Each as if it were the main one."""
        further = device.accelerator.memories
        self._limits = {name: each.crossing.bandwidth for name, each in further.items()}
        self.overlap: Literal["step", "phase", "none"] = device.accelerator.memories_overlap
        self.port = device.accelerator.memories_port
        supplies = {
            name: MemorySupply(each.capacity_bytes, self.let_through(name, each.peak_gbps * 1e9))
            for name, each in self.devices.items()
        }
        self.placement = PLACEMENTS[options.name](options, supplies)

    def let_through(self, memory: str, rate: float) -> float:
        """What comes over its crossing, and into the engines, of so many bytes a second."""
        limits = [each for each in (self._limits.get(memory), self.port) if each is not None]
        return min(rate, *limits) if limits else rate

    def base(self, what: What, memory: str, space: CardSpace) -> int:
        """Where in a memory its weights begin, or its KV."""
        if what == "weights":
            return 0
        own = self.placement.held("weights", space).get(memory, 0.0) * space.weight_bytes
        return -(-int(own) // ALIGN_BYTES) * ALIGN_BYTES

    def room(
        self, space: CardSpace, kept_bytes: int, sequences: int, share: float
    ) -> tuple[int, str]:  # fmt: skip
        """(token slots that fit, the memory that has no room for more). `space` without its slots.
        kept_bytes: of the main memory, for others; sequences: at once, at most; share: of each
        memory's capacity that is used."""
        held = self.placement.held("kv", space)
        kept = self.placement.kept(space.slot_bytes, sequences)
        found = []
        for name, device in self.devices.items():
            left = int(device.capacity_bytes * share) - self.base("kv", name, space)
            left -= kept.get(name, 0) + (kept_bytes if name == MAIN else 0)
            each = held.get(name, 0.0) * space.slot_bytes
            found.append((int(left / each) if each else (1 << 62 if left >= 0 else 0), name))
        slots, memory = min(found)
        slots = max(slots, 0)
        return slots - slots % self._slots_of_a_page(space), memory

    def _slots_of_a_page(self, space: CardSpace) -> int:
        """A multiple of so many slots has whole pages of every flash in each of the planes that the
        KV consists of, so that all planes begin where a page does (assumed: a server that knows its
        flash lays K and V out so)."""
        if space.run_bytes is None:
            return 1
        flashes = (each.given.flash for each in self.devices.values() if each.given is not None)
        pages = (flash.page for flash in flashes if flash is not None)
        return math.lcm(*(page // math.gcd(page, space.run_bytes) for page in pages))
