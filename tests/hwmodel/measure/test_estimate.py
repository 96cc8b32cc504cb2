"""Does the closed form say what the simulation says, as nearly as it claims?"""

from __future__ import annotations

import numpy as np
import pytest

from hwmodel.measure.estimate import ERRORS, estimate, fall_apart, unknown, untested
from hwmodel.measure.racm import described_curves, descriptor_gbps, read_extents
from hwmodel.specs.device import Device, load_device, load_variants
from tests.hwmodel.measure.estimate_draw import errors, summary

KIB = 1024


WORST = ERRORS[1][2]


def off(device: Device, extent: int, measured_ns: float = 3000, align: int = 1) -> float:
    """Relative error of the closed form."""
    found = read_extents(device, extent, np.random.default_rng(5), measured_ns, align=align)
    return estimate(device, extent, align).gbps / found.gbps - 1


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
    assert abs(off(load_device(device, settings), extent)) < WORST


HBM = ["memory=hbm3-6.4", "channels=6", "capacity=4GiB", "dma.descriptor_cost=0ns"]


@pytest.mark.parametrize(
    ("settings", "extent", "align"),
    [
        (HBM, 1152, 1),
        (HBM, 1152, 64),
        (HBM, 512, 1024),  # half of the pseudo-channels
        (["channel_hash=none", "channels=16", "capacity=16GiB", "dma.window=4KiB"], 1088, 2048),
        (["controller.read_queue=16", "interleave=4KiB"], 16 * KIB, 1),
    ],
)
def test_it_knows_alignment_and_short_queues(settings: list[str], extent: int, align: int) -> None:
    assert abs(off(load_device("mlu370-x4", settings), extent, align=align)) < WORST


def test_how_an_extent_falls_apart() -> None:
    device = load_device("mlu370-x4")  # bursts of 32 B, accesses of 64 B, blocks of 512 B
    packed, aligned = fall_apart(device, 1152, 1), fall_apart(device, 1152, 64)
    assert packed == aligned and aligned.moved == pytest.approx(1152)
    assert fall_apart(device, 688, 1).moved > fall_apart(device, 688, 64).moved == 704
    assert fall_apart(device, 1024, 1).bursts == 16  # two whole blocks
    none = load_device("mlu370-x4", ["channel_hash=none", "channels=16", "capacity=16GiB"])
    # slots of 2 KiB begin at every fourth channel: of four blocks the fourth is never read
    assert fall_apart(none, 1536, 2048).channels == pytest.approx(0.75)
    assert fall_apart(none, 1536, 64).channels == 1


def test_what_it_does_not_know_is_named_and_what_was_not_tested() -> None:
    assert unknown(load_device("mlu370-x4")) is None
    assert unknown(load_device("mlu370-x4", ["inbox=8"])) == "inbox"
    assert untested(load_device("mlu370-x4"), 16 * KIB) == []
    found = untested(load_device("mlu370-x4", ["controller.read_queue=8"]), 32)
    assert found == ["read_queue 8 (16 to 128)", "extent 32 (64 to 65,536)"]


@pytest.mark.long
def test_its_errors_are_those_of_the_settings_held_out() -> None:
    every = errors("second")
    for many, (median, nine, worst) in ERRORS.items():
        _, *found, _ = summary([each for each in every if each.pseudochannels == many])
        assert np.array(found) == pytest.approx((median, nine, worst), abs=0.006)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["mlu370-x4", "spyre", "jetson-agx-orin", "strix-halo", "dgx-spark-gb10", "m1-max",
             "a100-80gb"],
)  # fmt: skip
def test_so_it_is_on_every_plausible_variant(name: str) -> None:
    variants = load_variants(name).devices.values()
    assert all(abs(off(each, size, 4000)) < WORST
               for each in variants for size in (256, 4 * KIB, 64 * KIB))  # fmt: skip


def test_descriptors_bind_small_extents_and_memory_large_ones() -> None:
    device = load_device("mlu370-x4")
    small, large = estimate(device, 256), estimate(device, 16 * KIB)
    assert small.binding == "descriptors and ports" and large.binding == "data bus"
    assert small.limits_gbps[small.binding] == pytest.approx(descriptor_gbps(device, 256))
    assert small.gbps <= min(small.limits_gbps.values())


@pytest.mark.parametrize(
    "setting", ["controller.read_queue=8", "dma.engines=1", "dma.window=512B", "timing.tRRD=20ns"]
)
def test_less_of_any_resource_reads_less(setting: str) -> None:
    full, less = load_device("mlu370-x4"), load_device("mlu370-x4", [setting])
    assert estimate(less, 4 * KIB).gbps < estimate(full, 4 * KIB).gbps


def test_a_channel_alone_has_a_closed_form_too() -> None:
    memory = load_device("lpddr5-6400-x16")
    found = described_curves(memory, [256], replications=1)[0].at(256).gbps[0]
    assert estimate(memory, 256).gbps == pytest.approx(found, rel=WORST)
