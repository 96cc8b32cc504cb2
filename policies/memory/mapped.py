"""Simulation at the frames that an allocator maps itself, or that dropped parameters left."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.extents import Frames, Stream, cut
from hwmodel.specs.device import Device
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Maps
from policies.allocators.kv_frames import CardFrames
from policies.memory.fidelity import Simulate


def mapped(
    simulate: Simulate, device: Device, allocator: Allocator, card: CardFrames | None = None
) -> Simulate:
    """`simulate`, which knows the allocator's frames where it maps any, or those of a card whose
    region is at virtual addresses. Raises DescriptionError where the device translates frames of
    another size."""
    if isinstance(allocator, Maps):
        size, who = allocator.frame_bytes, f"policy {allocator.options.name}"
    elif card is not None:
        size, who = card.size, "cluster.dropping"
    else:
        return simulate
    translation = None if device.accelerator is None else device.accelerator.translation
    if translation is not None and translation.frame != size:
        raise DescriptionError(
            f"device_set.translation.frame: {translation.frame} B, and {who} maps frames of "
            f"{size} B; expected the same"
        )
    known = None if card is None else card.mapped()

    def at_its_frames(device: Device, descriptors: Any, **window: Any) -> Any:
        frames: Frames | None = known
        if card is not None:
            descriptors = at_frames(descriptors, card)
        elif isinstance(allocator, Maps):
            frames = allocator.frames()
        return simulate(device, descriptors, **window, frames=frames)

    return at_its_frames


def at_frames(descriptors: Any, card: CardFrames) -> Any:
    """Descriptors of a region at virtual addresses from the card's base on, cut at frames, where
    these are; others stay."""
    d = descriptors
    stream = Stream(d.engine, d.start, d.size, d.write, np.zeros_like(d.start))
    stream = cut(stream, card.size, card.base)
    at, within = np.divmod(stream.start - card.base, card.size)
    inside = (at >= 0) & (at < card.held.size)
    start = np.where(inside, card.held.ravel()[np.where(inside, at, 0)] + within, stream.start)
    return d._replace(engine=stream.engine, start=start, size=stream.size, write=stream.write)
