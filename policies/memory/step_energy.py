"""DRAM energy of a serving run.

The bytes of each phase of a step cost what the simulation of that phase's stream showed for a byte
(activation, read, write); refresh and standby are paid by the clock. While steps run a bank of
every rank is counted as open, and while nothing runs none is (assumed: an open-page controller
leaves its last rows open, refresh closes them for a moment). Where the controller powers down, idle
time is spent as `hwmodel.measure.energy.idle_states` says; gaps within steps are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hwmodel.kernel.power import ASLEEP
from hwmodel.measure.energy import confidence, energy_parts, energy_range, idle_states, inputs
from hwmodel.specs.commands import COLUMN_COMMANDS
from hwmodel.specs.device import Device
from hwmodel.specs.memory_spec import MemorySpec

Transfer = dict[str, float]
"""Energy of a byte by part (activation, read, write), nJ; empty where nothing was simulated."""


def transfer(memory: MemorySpec, results: Iterable[Any]) -> Transfer:
    """The energy of a byte that simulations (`hwmodel.kernel.memory.SystemResult`) moved."""
    commands: Counter[str] = Counter()
    for result in results:
        commands.update(result.commands)
    bursts = sum(commands[name] for name in COLUMN_COMMANDS)
    if not bursts:
        return {}
    parts = energy_parts(memory, commands, 0.0, 0.0)
    moved = bursts * memory.organisation.burst_bytes
    return {name: parts[name] / moved for name in ("activation", "read", "write")}


def serving_energy(
    device: Device, moved_bytes: Mapping[str, int], transfers: Mapping[str, Transfer],
    busy_s: float, idle_s: float, tokens: int,
) -> dict[str, Any] | None:  # fmt: skip
    """Energy for each of `tokens` output tokens, mJ, by part, and how sure it is; None where a
    phase moved bytes whose stream was never simulated, a memory beside the main one is given, or no
    token came out.

    `moved_bytes`: of each phase. `busy_s`, `idle_s`: time in which steps ran, and the rest.
    """
    phases = [name for name, moved in moved_bytes.items() if moved]
    given = any(each.given is not None for each in device.memories.values())
    if not tokens or given or not all(transfers.get(name) for name in phases):
        return None
    parts = _standby(device, busy_s, idle_s)
    for each in device.memories.values():
        for part, nj in _standby(each, busy_s, idle_s).items():
            parts[part] += nj
    for name in phases:
        for part, nj in transfers[name].items():
            parts[part] += nj * moved_bytes[name]
    low, high = energy_range(device, parts)
    return {
        "mj_per_token": sum(parts.values()) * 1e-6 / tokens,
        "low_mj_per_token": low * 1e-6 / tokens,
        "high_mj_per_token": high * 1e-6 / tokens,
        "parts_mj_per_token": {name: nj * 1e-6 / tokens for name, nj in parts.items()},
        "confidence": confidence(device, parts),
        "inputs": inputs(device, parts),
    }


def _standby(device: Device, busy_s: float, idle_s: float) -> dict[str, float]:
    """What a memory takes by the clock, by part, nJ."""
    memory, o = device.memory, device.memory.organisation
    ranks = o.pseudochannels * o.ranks * device.channels
    elapsed_ns, tick_ns = (busy_s + idle_s) * 1e9, memory.tick_clock.ns_of_ticks(1)
    interval_ns = memory.refresh_ticks() * tick_ns
    idle = idle_states(memory)
    refreshed_ns = busy_s * 1e9 if "self_refresh_precharged" in idle else elapsed_ns
    rounds = refreshed_ns / interval_ns if interval_ns else 0.0
    asleep = {name: idle.get(name, 0.0) * idle_s * 1e9 * ranks for name in (*ASLEEP, "refreshes")}
    return energy_parts(
        memory, {"REFAB": rounds * ranks}, elapsed_ns, busy_s * 1e9 * ranks, device.channels,
        asleep,
    )  # fmt: skip
