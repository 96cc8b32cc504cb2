"""Does the closed form say what the simulation says, as nearly as it claims?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.measure.estimate import WORST_ERROR, estimate
from hwmodel.measure.racm import described_curves, descriptor_gbps, read_extents
from hwmodel.specs.device import Device, load_device, load_variants

KIB = 1024


def off(device: Device, extent: int, measured_ns: float = 3000) -> float:
    """Relative error of the closed form."""
    found = read_extents(device, extent, np.random.default_rng(5), measured_ns)
    return estimate(device, extent).gbps / found.gbps - 1


@pytest.mark.parametrize(
    ("device", "settings", "extent"),
    [
        ("mlu370-x4", [], 16 * KIB),
        ("mlu370-x4", ["dma.gather={elements: 64, element_cost: 5ns}"], KIB),
        ("mlu370-x4", ["memory=lpddr5-6400-x16-8b"], 4 * KIB),
        ("mlu370-x4", ["memory=hbm3-6.4", "channels=6", "capacity=4GiB"], 512),
        ("jetson-agx-orin", [], 64),
        ("dgx-spark-gb10", [], 256 * KIB),
    ],
)
def test_the_closed_form_is_within_its_stated_error(
    device: str, settings: list[str], extent: int
) -> None:
    assert abs(off(load_device(device, settings), extent)) < WORST_ERROR


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["mlu370-x4", "spyre", "jetson-agx-orin", "strix-halo", "dgx-spark-gb10", "m1-max",
             "a100-80gb"],
)  # fmt: skip
def test_so_it_is_on_every_plausible_variant(name: str) -> None:
    variants = load_variants(name).devices.values()
    assert all(abs(off(each, size, 4000)) < WORST_ERROR
               for each in variants for size in (256, 4 * KIB, 64 * KIB))  # fmt: skip


def test_descriptors_bind_small_extents_and_memory_large_ones() -> None:
    device = load_device("mlu370-x4")
    small, large = estimate(device, 256), estimate(device, 16 * KIB)
    assert small.binding == "descriptors and ports" and large.binding == "data bus"
    assert small.limits_gbps[small.binding] == pytest.approx(descriptor_gbps(device, 256))
    assert small.gbps < min(small.limits_gbps.values())


@pytest.mark.parametrize(
    "setting", ["controller.read_queue=8", "dma.engines=1", "dma.window=512B", "timing.tRRD=20ns"]
)
def test_less_of_any_resource_reads_less(setting: str) -> None:
    full, less = load_device("mlu370-x4"), load_device("mlu370-x4", [setting])
    assert estimate(less, 4 * KIB).gbps < estimate(full, 4 * KIB).gbps


def test_a_channel_alone_has_a_closed_form_too() -> None:
    memory = load_device("lpddr5-6400-x16")
    found = described_curves(memory, [256], replications=1)[0].at(256).gbps[0]
    assert estimate(memory, 256).gbps == pytest.approx(found, rel=WORST_ERROR)
