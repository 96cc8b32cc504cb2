"""A device with several memories as questions of capacity and bandwidth see it: interleaved in
proportion to their bandwidths, they are one memory whose rate is their sum, and whose capacity is
what has room until the first of them is full."""

from __future__ import annotations

from dataclasses import replace

from hwmodel.specs.accelerator import GIVEN, GivenMemory
from hwmodel.specs.device import Device
from policies.placements.card_memories import CardMemories
from policies.placements.placements import InterleavedOptions
from policies.serving.rates import closed_form_share


def as_one(device: Device) -> Device:
    """The device itself where it has one memory; else with a given one in their place."""
    if not device.memories:
        return device
    assert device.accelerator is not None
    card = CardMemories(device, InterleavedOptions())
    peaks = {name: each.peak_gbps * 1e9 for name, each in card.devices.items()}
    whole = sum(card.let_through(name, peak) for name, peak in peaks.items())
    seconds, room = [], []
    for name, each in card.devices.items():
        share = card.let_through(name, peaks[name]) / whole
        seconds.append(share / card.let_through(name, peaks[name] * closed_form_share(each)))
        room.append(each.capacity_bytes / share)
    slowest = sum(seconds) if card.overlap == "none" else max(seconds)
    if card.port is not None:
        slowest = max(slowest, 1 / card.port)
    given = GivenMemory.model_construct(bandwidth=whole, efficiency=1 / slowest / whole)
    update = {"memory": GIVEN, "given": given, "capacity": int(min(room))}
    accelerator = device.accelerator.model_copy(update=update)
    return replace(device, described=None, accelerator=accelerator, described_as=device)
