"""What the banks did in simulated windows: hits, misses, conflicts, activations, time open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hwmodel.specs.commands import COLUMN_COMMANDS
from hwmodel.specs.device import Device

NAMES = (
    "row_hits", "row_misses", "row_conflicts", "activations_per_kib", "refreshes_per_ms",
    "open_share",
)  # fmt: skip


def bank_activity(device: Device, results: Sequence[Any]) -> dict[str, float]:
    """Of simulations (`hwmodel.kernel.memory.SystemResult`): shares of the accesses that hit an
    open row, found the bank closed, or another row open; activations a KiB moved; refreshes a
    millisecond and channel; the share of time that a rank had a bank open. Zeros where there is
    none."""
    hits, misses, conflicts = (
        sum(int(getattr(result, name)) for result in results)
        for name in ("row_hits", "row_misses", "row_conflicts")
    )
    accesses = hits + misses + conflicts
    simulated_ns = sum(result.simulated_ns for result in results)
    if not accesses or not simulated_ns:
        return dict.fromkeys(NAMES, 0.0)
    commands: Counter[str] = Counter()
    for result in results:
        commands.update(result.commands)
    o = device.memory.organisation
    bursts = sum(commands[name] for name in COLUMN_COMMANDS)
    channel_ns = simulated_ns * device.channels
    active_ns = sum(result.active_ns for result in results)
    moved_kib = max(bursts, 1) * o.burst_bytes / 1024
    counts = (
        hits / accesses,
        misses / accesses,
        conflicts / accesses,
        (commands["ACT"] + commands["ACT2"]) / moved_kib,
        (commands["REFAB"] + commands["REFPB"]) / (channel_ns * 1e-6),
        active_ns / (channel_ns * o.pseudochannels * o.ranks),
    )
    return dict(zip(NAMES, counts, strict=True))
