"""`bankwise bandwidth --plausible`: each pattern as described, and least to most over the plausible
variants of the device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.measure.bandwidth import measure_patterns
from hwmodel.specs.device import load_device, load_variants
from sweeps.experiments.variant import AS_DESCRIBED
from sweeps.render.screen import print_table


def measured(name: str, overrides: list[str], patterns: Iterable[str]) -> dict[str, Any]:
    """GB/s that reach the engines in each pattern, as described and of every variant. Raises
    DescriptionError where the device lists no variant."""
    device, asked = load_device(name, overrides), list(patterns)
    variants = load_variants(name, overrides)
    if not device.plausible:
        raise DescriptionError(
            f"{device.name} lists no plausible variants; docs/devices.md shows how to list them",
            "--plausible",
        )
    every = {AS_DESCRIBED: device, **variants.devices}
    found = {variant: measure_patterns(each, asked) for variant, each in every.items()}
    rows = []
    for items in zip(*found.values(), strict=True):
        gbps = {
            name: item.get("delivered_gbps", item["bandwidth_gbps"])
            for name, item in zip(found, items, strict=True)
        }
        least, most = min(gbps, key=gbps.__getitem__), max(gbps, key=gbps.__getitem__)
        rows.append(
            {
                "pattern": items[0]["pattern"],
                "gbps": gbps,
                "least": {"variant": least, "gbps": gbps[least]},
                "most": {"variant": most, "gbps": gbps[most]},
            }
        )
    return {
        "device": device.name,
        "digest": device.digest,
        "peak_gbps": device.peak_gbps,
        "variants": {
            name: {"set": device.plausible[name].set, "why": device.plausible[name].why}
            for name in variants.devices
        },
        "left_out": variants.left_out,
        "patterns": rows,
    }


def show(found: dict[str, Any]) -> None:
    """A line a pattern."""
    count = len(found["variants"])
    print(f"{found['device']}: GB/s delivered as described, and over {count} plausible variants\n")
    rows = [
        [
            row["pattern"],
            f"{row['gbps'][AS_DESCRIBED]:,.2f}",
            *(cell for end in ("least", "most")
              for cell in (f"{row[end]['gbps']:,.2f}", row[end]["variant"])),
        ]
        for row in found["patterns"]
    ]  # fmt: skip
    print_table(["pattern", AS_DESCRIBED, "least", "with", "most", "with"], rows, "<>><><")
    for name, why in found["left_out"].items():
        print(f"left out: {name}, {why}")
