"""Energy of simulated channels, integrated from their command counts and bank states.

E = n_ACT e_ACT + bytes_read e_RD + bytes_written e_WR + banks_refreshed e_REF
    + P_active t_active + P_precharged t_precharged,
where t_active is the time in which a rank has a bank open, from its activation to the precharge or
to the column command that precharges by itself, and t_precharged is the rest. The form is that of
the IDD model (Micron TN-40-07, DRAMPower); it is exact in its counts and times, and as good as its
constants: no public IDD exists for LPDDR5, so every figure goes with the confidence of what it was
made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwmodel.kernel.power import ASLEEP
from hwmodel.kernel.timing import lower
from hwmodel.specs.commands import COMMANDS, READ_COMMANDS, WRITE_COMMANDS
from hwmodel.specs.device import Device
from hwmodel.specs.memory_spec import MemorySpec

INPUTS = {
    "activation": "activate",
    "read": "read_per_byte",
    "write": "write_per_byte",
    "refresh": "refresh_per_bank",
    "background_precharged": "background.precharged",
    "background_active": "background.active",
    "power_down_precharged": "background.power_down_precharged",
    "power_down_active": "background.power_down_active",
    "self_refresh": "background.self_refresh",
    "deep_sleep": "background.deep_sleep",
}
"""Part of the energy -> the constant of the description that it is made of."""
UNSTATED = "unstated"
"""Confidence of a number that states none, such as one that was set; sorts after every letter."""
SPREAD = {"A": 1.1, "B": 1.25, "C": 1.5, "D": 2.0, UNSTATED: 2.0}
"""Factor, either way, within which a constant of such a confidence is taken to lie: assumed. (What
was published of LPDDR5, 5 to 7 pJ/bit for the device and 9 with its path, is 1.3 to 2.3 times what
`lpddr5-6400-x16` gives for a sequential read.)"""


def energy_parts(
    memory: MemorySpec,
    commands: Mapping[str, float],
    elapsed_ns: float,
    active_ns: float,
    channels: int = 1,
    asleep: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Energy by part, nJ, of `channels` channels that issued `commands` in all over `elapsed_ns`.

    `active_ns`: time with a bank open, summed over the ranks of every pseudo-channel. The
    background powers are those of a rank over all pseudo-channels, each of which has an even share.
    `asleep`: time in states of less power, which have parts of their own then
    (`hwmodel.kernel.power.asleep_ns`).
    """
    e, o = memory.energy, memory.organisation
    activations = commands.get("ACT", 0) + commands.get("ACT2", 0)
    reads = sum(commands.get(name, 0) for name in READ_COMMANDS)
    writes = sum(commands.get(name, 0) for name in WRITE_COMMANDS)
    ranks = o.pseudochannels * o.ranks
    of_ranks = commands.get("REFAB", 0) + commands.get("RFMAB", 0)
    refreshed = of_ranks * (o.banks // ranks)
    of_sets = commands.get("REFPB", 0) + commands.get("RFM", 0)
    refreshed += of_sets * len(memory.refresh_sets()[0])
    closed_ns = elapsed_ns * ranks * channels - active_ns
    picojoules = {
        "activation": activations * e.activate,
        "read": reads * o.burst_bytes * e.read_per_byte,
        "write": writes * o.burst_bytes * e.write_per_byte,
        "refresh": refreshed * e.refresh_per_bank,
        "background_precharged": closed_ns / o.pseudochannels * e.background.precharged,
        "background_active": active_ns / o.pseudochannels * e.background.active,
    }
    if asleep and any(asleep.values()):
        _sleep(memory, picojoules, asleep)
    return {name: value / 1000 for name, value in picojoules.items()}


def _sleep(memory: MemorySpec, parts: dict[str, float], asleep: Mapping[str, float]) -> None:
    """Take time asleep out of the standby `parts`, pJ, and needless refreshes, and state its
    own."""
    e, pseudochannels = memory.energy, memory.organisation.pseudochannels
    per_refresh = len(memory.refresh_sets()[0])
    if memory.controller.refresh == "all_bank":
        per_refresh = memory.organisation.banks // (pseudochannels * memory.organisation.ranks)
    parts["refresh"] -= asleep["refreshes"] * per_refresh * e.refresh_per_bank
    for name in ASLEEP:
        share = asleep[name] / pseudochannels
        state, rows = name.rsplit("_", 1)
        parts[f"background_{rows}"] -= share * getattr(e.background, rows)
        if state == "power_down":
            state = name
        power = getattr(e.background, state)
        parts[state] = parts.get(state, 0.0) + share * (power or 0.0)


def idle_states(memory: MemorySpec) -> dict[str, float]:
    """Shares of a long idle time that a channel's ranks spend in each state, rows closed: closed
    form, from the spacing of refreshes. Self-refresh has the whole."""
    c = memory.controller
    if c.self_refresh_after is not None:
        return {f"{'self_refresh' if c.deep_sleep_after is None else 'deep_sleep'}_precharged": 1.0}
    if c.power_down_after is None:
        return {}
    constants = lower(memory)[0]
    if not memory.refresh_ticks():
        return {"power_down_precharged": 1.0}
    spacing = memory.refresh_ticks() / memory.refreshes_per_round
    lasts = constants["lasts"][COMMANDS.index("REFPB" if c.refresh == "per_bank" else "REFAB")]
    awake = int(lasts + constants["power_down_after"] + constants["power_down_exit"])
    return {"power_down_precharged": max(0.0, 1 - awake / spacing)}


def inputs(device: Device, parts: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """The constants that `parts` are made of: the confidence of each and its share of the whole.

    Constants whose part is zero are left out.
    """
    total = sum(parts.values())
    return {
        INPUTS[name]: {
            "confidence": device.confidence_of(f"energy.{INPUTS[name]}") or UNSTATED,
            "share": value / total,
        }
        for name, value in parts.items()
        if value > 0
    }


def energy_range(device: Device, parts: Mapping[str, float]) -> tuple[float, float]:
    """The least and the most that the sum of `parts` may be, in their unit: each constant at the
    end of its `SPREAD`, all at the same end."""
    spread = {
        name: SPREAD[device.confidence_of(f"energy.{INPUTS[name]}") or UNSTATED] for name in parts
    }
    low = sum(value / spread[name] for name, value in parts.items())
    return low, sum(value * spread[name] for name, value in parts.items())


def confidence(device: Device, parts: Mapping[str, float]) -> str:
    """The worst confidence among the constants of `parts`: A two open sources, B one, C derived,
    D assumed."""
    letters = (item["confidence"] for item in inputs(device, parts).values())
    return max(letters, default=UNSTATED)


def energy_figures(device: Device, parts: Mapping[str, float]) -> dict[str, Any]:
    """Energy by the names of the CLI contract: the total, its parts (nJ) and their confidence."""
    return {
        "energy_nj": sum(parts.values()),
        "energy": dict(parts),
        "energy_confidence": confidence(device, parts),
        "energy_inputs": inputs(device, parts),
    }
