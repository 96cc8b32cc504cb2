"""Matrix products as measured beside the kernel law of a device.

    python -m tools.products_beside [TABLES] [DEVICE] [SYSTEM]

TABLES are of products (docs/memory-time.md): a file, as `capture/gpu_kernels.py` writes one, or
those of a program in the package aiconfigurator-core (`vllm-0.24`), of the card that it calls
SYSTEM. By default the file of an H100 SXM, whose products set no number of the law. Prints, of all
products and of routed experts, by format and rows, the median of law over measured less 1, and of
its size.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from statistics import median
from typing import Any

import numpy as np

from hwmodel.specs.device import Device, load_device
from hwmodel.specs.kernel_table import Grid
from hwmodel.specs.kernel_tables import kernel_tables
from hwmodel.specs.number_format import number_format
from policies.memory.products import converted, expert_padding, narrow
from tools.servers_beside import efficiency

FILE = "docs/results/h100-sxm/products.csv"
DECODE = 256
"""Rows up to which a product is a decode step's."""
BANDS = (1, 32, DECODE + 1, 2048)
"""First rows of each band."""
LEAST = 200e6
"""Bytes of a layer's experts below which they may come from an L2."""
LEAST_PRODUCT = 4e6
"""Numbers of a weight below which a product is its launch."""


@cache
def card(name: str) -> Device:
    return load_device(name)


def law_us(name: str, form: str, rows: int, numbers: int, size: float, flops: float) -> float:
    """Microseconds of a product by the law without its launch: the longer of bytes and FLOPs."""
    device = card(name)
    assert device.accelerator is not None
    law, compute = device.accelerator.kernels, device.accelerator.compute
    share = compute.decode_efficiency if rows <= DECODE else compute.prefill_efficiency
    rate = compute.peak(form) * narrow(law, form, compute) * share
    read_s = size / (device.peak_gbps * 1e9)
    read_s /= law.weights * efficiency(name) * converted(law, form, compute)
    return 1e6 * max(read_s, flops * numbers / rate)


def product_us(name: str, form: str, rows: int, columns: int, inner: int) -> float:
    """A product of `rows` tokens."""
    device = card(name)
    assert device.accelerator is not None
    law, numbers = device.accelerator.kernels, columns * inner
    size = number_format(form).matrix_bits(columns, inner) / 8
    padded = -(-rows // law.tile) * law.tile
    return law.product / 1e3 + law_us(name, form, rows, numbers, size, 2 * padded)


def experts_us(name: str, key: tuple[Any, ...], rows: int) -> float:
    """The routed experts of a layer: two products, and four kernels that sort and add up."""
    form, hidden, width, per_token, experts, cards = key
    device = card(name)
    assert device.accelerator is not None
    law, numbers = device.accelerator.kernels, 3 * hidden * (width // cards)
    distinct = experts * (1 - (1 - per_token / experts) ** rows)
    padding = expert_padding(law, rows * per_token / distinct)
    size = distinct * number_format(form).matrix_bits(3 * (width // cards), hidden) / 8
    flops = 2 * rows * per_token * padding / law.experts_efficiency
    launches_us = (2 * law.product + 4 * law.kernel) / 1e3
    return launches_us + law_us(name, form, rows, numbers, size, flops)


def points(grid: Grid) -> Iterator[tuple[list[int], float]]:
    """(values along the axes, microseconds) of what was measured."""
    for place in np.argwhere(np.isfinite(grid.log_us)):
        values = [round(float(np.exp(axis[n]))) for axis, n in zip(grid.axes, place, strict=True)]
        yield values, float(np.exp(grid.log_us[tuple(place)]))


def main(tables: str = FILE, device: str = "h100-sxm", system: str | None = None) -> None:
    measured = kernel_tables(tables, system)
    errors: dict[tuple[str, str, int], list[float]] = defaultdict(list)

    def note(kind: str, form: str, rows: int, said_us: float, us: float) -> None:
        band = max(first for first in BANDS if first <= rows)
        errors[kind, form, band].append(said_us / us - 1)

    for (form,), grid in measured.grids("product").items():
        for (rows, columns, inner), us in points(grid):
            if columns * inner >= LEAST_PRODUCT:
                note("products", form, rows, product_us(device, form, rows, columns, inner), us)
    for key, grid in measured.grids("experts").items():
        form, hidden, width, _, experts, cards = key
        size = experts * number_format(form).matrix_bits(3 * (width // cards), hidden) / 8
        for (rows,), us in points(grid) if size >= LEAST else ():
            note("experts", form, rows, experts_us(device, key, rows), us)
    for (kind, form, first), found in sorted(errors.items()):
        print(
            f"{kind} in {form}, {first:,} rows and more: {len(found):,}, {median(found):+.1%},"
            f" {median(map(abs, found)):.1%} in size"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
