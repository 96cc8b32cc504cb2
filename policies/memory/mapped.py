"""Simulation at the frames that an allocator maps itself."""

from __future__ import annotations

from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Maps
from policies.memory.fidelity import Simulate


def mapped(simulate: Simulate, device: Device, allocator: Allocator) -> Simulate:
    """`simulate`, which knows the allocator's frames where it maps any. Raises DescriptionError
    where the device translates frames of another size."""
    if not isinstance(allocator, Maps):
        return simulate
    maps = allocator
    translation = None if device.accelerator is None else device.accelerator.translation
    if translation is not None and translation.frame != maps.frame_bytes:
        raise DescriptionError(
            f"device_set.translation.frame: {translation.frame} B, and policy "
            f"{allocator.options.name} maps frames of {maps.frame_bytes} B; expected the same"
        )

    def at_its_frames(device: Device, descriptors: Any, **window: Any) -> Any:
        return simulate(device, descriptors, **window, frames=maps.frames())

    return at_its_frames
