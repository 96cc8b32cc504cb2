"""Energy of a simulated interval from its command counts: activation, transfer, refresh,
background.

E = n_ACT e_ACT + bytes_read e_RD + bytes_written e_WR + banks refreshed e_REF + P_background t.
The constants and their confidence are in the memory's description (no public IDD exists for
LPDDR5).
"""

from __future__ import annotations

from collections.abc import Mapping

from hwmodel.memory_spec import MemorySpec


def energy_nj(
    memory: MemorySpec, commands: Mapping[str, int], elapsed_ns: float, channels: int = 1
) -> float:
    """Energy in nJ of `channels` channels that issued `commands` in all over `elapsed_ns`."""
    e, o = memory.energy, memory.organisation
    activations = commands.get("ACT", 0) + commands.get("ACT2", 0)
    reads = (commands.get("RD", 0) + commands.get("RDA", 0)) * o.burst_bytes
    writes = (commands.get("WR", 0) + commands.get("WRA", 0)) * o.burst_bytes
    sets = memory.refresh_sets()
    per_rank = o.banks // (o.pseudochannels * o.ranks)
    refreshed = commands.get("REFAB", 0) * per_rank + commands.get("REFPB", 0) * len(sets[0])
    dynamic_pj = (
        activations * e.activate
        + reads * e.read_per_byte
        + writes * e.write_per_byte
        + refreshed * e.refresh_per_bank
    )
    return dynamic_pj / 1000 + e.background * elapsed_ns * channels / 1000
