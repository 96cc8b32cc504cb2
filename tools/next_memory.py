"""Figures of docs/next-memory.md, into docs/figures/next-memory.json.

    python -m tools.next_memory

Reads of one channel by extent, at random and in order, of LPDDR and HBM by generation; each also
over its plausible variants. Some minutes.
"""

from __future__ import annotations

from typing import Any

from hwmodel.measure.bandwidth import measure_patterns
from hwmodel.specs.device import Device, load_device, load_variants
from tools.figures import keep

MEMORIES = (
    "lpddr4-4266-x16", "lpddr5-6400-x16", "lpddr5x-8533-x16", "lpddr5x-9600-x16",
    "lpddr6-10667-x12", "gddr6-14", "gddr7-28", "hbm2-2.0", "hbm2e-3.2", "hbm3-6.4",
    "hbm3e-9.2", "hbm3e-9.2-12high", "hbm4-8.0",
)  # fmt: skip
EXTENTS = (64, 256, 576, 1024, 1088, 2048, 4096, 16384)
"""Bytes of a channel; 576 and 1,088 are a block of 512 B or 1 KiB with 64 B of scales."""
PAYS = 0.9
"""Of what a walk in order reaches: from there on longer extents gain little."""


def curve(device: Device) -> dict[str, float]:
    """Shares of the peak in order and by extent, and pJ/bit at 4 KiB."""
    found = measure_patterns(device, ["sequential"])
    shares = {"in order": found[0]["utilization"]}
    for extent in EXTENTS:
        read = measure_patterns(device, ["sequential"], [extent])[1]
        shares[named(extent)] = read["utilization"]
        if extent == 4096:
            energy = read["energy_nj"] * 1000 / (8 * read["bytes"])
    return {**shares, "pJ/bit": energy}


def named(extent: int) -> str:
    return f"{extent >> 10} KiB" if extent % 1024 == 0 else f"{extent:,} B"


def figures() -> dict[str, Any]:
    values: dict[str, Any] = {"reads": {}, "pays": {}, "variants": {}}
    for name in MEMORIES:
        device = load_device(name)
        found = curve(device)
        shown = {key: round(share, 4) for key, share in found.items()}
        values["reads"][name] = {"peak GB/s": round(device.peak_gbps, 1), **shown}
        values["pays"][name] = {
            "from": next(
                (named(e) for e in EXTENTS if found[named(e)] >= PAYS * found["in order"]), "none"
            )
        }
        for variant, other in load_variants(name).devices.items():
            moved = curve(other)
            values["variants"][f"{name}, {variant}"] = {
                key: round(moved[key] / found[key], 4) for key in ("in order", "576 B", "4 KiB")
            }
    return values


if __name__ == "__main__":
    keep("next-memory", "python -m tools.next_memory", figures())
