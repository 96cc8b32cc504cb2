"""Matrix products as measured beside the kernel law of a device.

    python -m tools.products_beside [FILE] [DEVICE]

FILE is a table of products (docs/step-time.md), as `capture/gpu_kernels.py` writes one; by default
that of an H100 SXM, whose products set no number of the law. Prints by format and rows the median
of law over measured less 1, and of its size.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

from hwmodel.specs.device import load_device
from tools.servers_beside import efficiency

FILE = Path("docs/results/h100-sxm/products.csv")
DECODE = 256
"""Rows up to which a product is a decode step's."""
BANDS = (1, 32, DECODE + 1)
"""First rows of each band."""


def law_us(device_name: str, row: dict[str, str]) -> float:
    """Microseconds of a product by the law: its own time, and the longer of bytes and FLOPs."""
    device = load_device(device_name)
    assert device.accelerator is not None
    law, compute = device.accelerator.kernels, device.accelerator.compute
    rows, columns, inner = (int(row[name]) for name in ("rows", "columns", "inner"))
    narrow = row["format"] == "fp8"
    peak = compute.peak(row["format"]) * (law.narrow if narrow else 1.0)
    share = compute.decode_efficiency if rows <= DECODE else compute.prefill_efficiency
    padded = -(-rows // law.tile) * law.tile
    read_s = columns * inner * (1 if narrow else 2) / (device.peak_gbps * 1e9)
    read_s /= law.weights * efficiency(device_name)
    return law.product / 1e3 + 1e6 * max(read_s, 2 * padded * columns * inner / (peak * share))


def main(file: Path, device: str) -> None:
    errors: dict[tuple[str, int], list[float]] = defaultdict(list)
    with open(file, newline="") as text:
        for row in csv.DictReader(line for line in text if not line.startswith("#")):
            band = max(first for first in BANDS if first <= int(row["rows"]))
            errors[row["format"], band].append(law_us(device, row) / float(row["us"]) - 1)
    for form in sorted({form for form, _ in errors}):
        for first in BANDS:
            found = errors[form, first]
            print(
                f"{form}, {first:,} rows and more: {len(found)} products, {median(found):+.1%},"
                f" {median(map(abs, found)):.1%} in size"
            )


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Path(given[0]) if given else FILE, given[1] if given[1:] else "h100-sxm")
