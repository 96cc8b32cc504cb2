"""`bankwise bandwidth --estimate`: random extents by a closed form, and how far it may be off."""

from __future__ import annotations

from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.description.units import parse_quantity
from hwmodel.measure.estimate import MEDIAN_ERROR, NINE_IN_TEN, WORST_ERROR, estimate
from hwmodel.specs.device import Device
from sweeps.render.screen import print_table
from sweeps.reports.random_access_phrases import size_text

_SIZES = [64 << i for i in range(16)]
"""64 B to 2 MiB."""


def estimated(device: Device, extent: str | None) -> dict[str, Any]:
    """The estimate of one extent, or of powers of two. Raises DescriptionError for an extent that
    is no size, and for a device whose memory is given."""
    try:
        sizes = _SIZES if extent is None else [int(parse_quantity(extent, "size"))]
        if not 0 < sizes[0] <= device.capacity_bytes:
            raise ValueError(f"expected up to the memory's {device.capacity_bytes} B; got {extent}")
    except ValueError as error:
        raise DescriptionError(str(error), "--extent") from None
    rows = []
    for size in sizes:
        found = estimate(device, size)
        rows.append({
            "extent_bytes": size, "bandwidth_gbps": found.gbps,
            "delivered_gbps": found.gbps * device.derate, "utilization": found.efficiency,
            "binding": found.binding, "limits_gbps": found.limits_gbps,
        })  # fmt: skip
    errors = {"median": MEDIAN_ERROR, "nine_in_ten": NINE_IN_TEN, "worst": WORST_ERROR}
    return {
        "device": device.name, "digest": device.digest, "peak_gbps": device.peak_gbps,
        "relative_error": errors, "extents": rows,
    }  # fmt: skip


def show(found: dict[str, Any]) -> None:
    """A line an extent, then the error."""
    print(f"{found['device']}: reads of extents that lie anywhere, by a closed form\n")
    rows = [
        [
            size_text(row["extent_bytes"]), f"{row['bandwidth_gbps']:,.1f}",
            f"{row['delivered_gbps']:,.1f}", f"{row['utilization']:.1%}", row["binding"],
        ]
        for row in found["extents"]
    ]  # fmt: skip
    print_table(["extent", "GB/s", "delivered", "of peak", "least limit"], rows, "<>>><")
    error = found["relative_error"]
    print(
        f"\nOff by {error['median']:.0%} in the median, {error['nine_in_ten']:.0%} in nine of ten, "
        f"{error['worst']:.0%} at worst, against simulations held out of its fit (docs/atlas.md)."
    )
