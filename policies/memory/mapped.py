"""Simulation at the frames that an allocator maps itself, or that dropped parameters left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.extents import EngineStream, Frames, cut
from hwmodel.kernel.memory import Descriptors
from hwmodel.specs.device import Device
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Maps
from policies.allocators.kv_frames import CardFrames
from policies.engines.scheduled_step import Step
from policies.memory.fidelity import Simulate
from policies.memory.step_streams import StepStreams


def mapped(
    simulate: Simulate, device: Device, allocator: Allocator, card: CardFrames | None = None
) -> Simulate:
    """`simulate`, which knows the allocator's frames where it maps any, or those of a card whose
    region is at virtual addresses. Raises DescriptionError where the device translates frames of
    another size."""
    maps: CardFrames | Maps | None = card or allocator.able(Maps)
    if maps is None:
        return simulate
    who = "cluster.dropping" if card else f"policy {allocator.options.name}"
    require_frames(device, maps.frame_bytes, who)

    def at_its_frames(device: Device, descriptors: Any, **window: Any) -> Any:
        descriptors = at_frames(descriptors, card) if card else descriptors
        return simulate(device, descriptors, **window, frames=maps.frames())

    return at_its_frames


class CardStreams:
    """What steps of a card move, where it lies: at the frames that its allocator maps, or at those
    (`card`) of a region at virtual addresses."""

    def __init__(self, streams: StepStreams, card: CardFrames | None = None) -> None:
        self._streams, self._card = streams, card

    @property
    def layers(self) -> int:
        """Of the card."""
        return self._streams.layers

    def of(
        self, step: Step, allocator: Allocator, layers: Iterable[int], phases: Iterable[str],
        draw: int,
    ) -> Iterator[tuple[Descriptors, Frames | None]]:  # fmt: skip
        """As `StepStreams.of`, each with the frames it is mapped by."""
        maps = self._card or allocator.able(Maps)
        frames = None if maps is None else maps.frames()
        for stream in self._streams.of(step, allocator, layers, phases, draw):
            yield stream if self._card is None else at_frames(stream, self._card), frames


def require_frames(device: Device, size: int, who: str) -> None:
    """Raises DescriptionError where the device translates frames of another size."""
    translation = None if device.accelerator is None else device.accelerator.translation
    if translation is not None and translation.frame != size:
        raise DescriptionError(
            f"device_set.translation.frame: {translation.frame} B, and {who} maps frames of "
            f"{size} B; expected the same"
        )


def at_frames(d: Descriptors, card: CardFrames) -> Descriptors:
    """Descriptors cut at frames, those of the card's virtual addresses where their frames are."""
    stream = EngineStream(
        d.engine, d.start, d.size, d.write.astype(np.int64), np.zeros_like(d.start)
    )
    engine, start, size, write, _ = cut(stream, card.frame_bytes, card.base)
    at, within = np.divmod(start - card.base, card.frame_bytes)
    inside = (at >= 0) & (at < card.held.size)
    placed = card.held.ravel()[np.where(inside, at, 0)] + within
    return Descriptors(engine, np.where(inside, placed, start), size, write > 0)
