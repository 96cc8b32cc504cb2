"""The closed form of `hwmodel.measure.estimate` against simulations of settings drawn at random:
median, nine-in-ten and worst relative error, of all and by the pseudo-channels of a channel.

    python tests/hwmodel/measure/estimate_draw.py train     # the settings that the form was made on
    python tests/hwmodel/measure/estimate_draw.py second    # others, looked at once
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from hwmodel.measure.estimate import estimate
from hwmodel.measure.racm import read_extents
from hwmodel.specs.device import Device, load_device

SEEDS = {"train": 20251122, "holdout": 20261123, "second": 20271124}
"""Of the draws; each committed before its hold-out was simulated (research/atlas.md)."""
SETTINGS = {"train": 1200, "holdout": 300, "second": 300}
MEMORIES = (
    "ddr5-4800-x32", "dramsys-lpddr4-4266-x16", "gddr6-14", "hbm2-2.0", "hbm2e-3.2", "hbm3-5.2",
    "hbm3-6.4", "lpddr4-4266-x16", "lpddr5-3200-x16-16b", "lpddr5-3200-x16-16b-wck2",
    "lpddr5-6400-x16", "lpddr5-6400-x16-8b", "lpddr5-6400-x16-bl32", "lpddr5x-8533-x16",
    "ramulator-hbm2-2.0", "ramulator-hbm3-6.4", "ramulator-lpddr5-6400-x16",
)  # fmt: skip


class Setting(NamedTuple):
    """A device, its extents, and where they lie."""

    overrides: tuple[str, ...]
    extent: int
    align: int


def draw(rng: np.random.Generator) -> Setting:
    """One setting: every value alike likely, extents alike likely in their logarithm."""

    def one(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    memory = one(*MEMORIES)
    overrides = [
        f"memory={memory}",
        f"channels={one(4, 8, 16, 24, 32)}",
        "capacity=2GiB",
        f"interleave={one(256, 512, 1024, 2048, 4096, 8192)}B",
        f"controller.read_queue={one(16, 24, 32, 48, 64, 96, 128)}",
        f"controller.page_policy={one('open', 'open', 'closed', 'timeout', 'adaptive')}",
        f"channel_hash={one('none', 'rotate')}",
        f"dma.engines={one(8, 16, 24, 32, 48, 64)}",
        f"dma.window={one(4, 8, 16, 32, 64)}KiB",
        f"dma.request={one(256, 512, 1024)}B",
        f"dma.port_bandwidth={one(32, 83)}GB/s",
        f"dma.descriptor_cost={one(0, 0, 0, 100)}ns",
    ]
    if rng.random() < 0.25:
        overrides.append("bank_hash=[]")
    own = load_device(memory).memory.controller.refresh
    overrides.append(f"controller.refresh={one(own, own, 'all_bank', 'none')}")
    if rng.random() < 0.25:
        overrides.append(f"address_map={one(*maps(memory))}")
    power = 64 << int(rng.integers(11))
    odd = int(2 ** rng.uniform(6, 16)) // 16 * 16
    extent = one(power, odd)
    return Setting(tuple(overrides), extent, one(1, 64, 128, 256, 1 << (extent - 1).bit_length()))


def maps(memory: str) -> list[str]:
    """Two address maps that the memory may have instead of its own: rows in one bank, and pieces
    of four bursts in banks in turn."""
    fields = dict.fromkeys(("pseudochannel", "bankgroup", "bank", "stack", "rank"), 0)
    columns = 0
    for name, bits in load_device(memory).memory.resolved_address_map():
        if name == "column":
            columns += bits
        elif name in fields:
            fields[name] += bits
    banks = [f"{name}:{bits}" for name, bits in fields.items() if bits]
    return [
        f"[{', '.join([f'column:{low}', *banks, f'column:{columns - low}', 'row'])}]"
        if low < columns else f"[{', '.join([f'column:{low}', *banks, 'row'])}]"
        for low in (2, columns)
    ]  # fmt: skip


def simulated(setting: Setting, seed: int) -> tuple[Device, float]:
    """The device, and its efficiency."""
    device = load_device("mlu370-x4", list(setting.overrides))
    flying = (
        device.dma.engines * device.dma.window
    )  # to be moved several times, or it is no steady state
    measured_ns = max(8_000.0, max(4e6, 8 * flying) / device.peak_gbps)
    rng = np.random.default_rng([seed, setting.extent])
    found = read_extents(device, setting.extent, rng, measured_ns, align=setting.align)
    return device, found.gbps / device.peak_gbps


class Error(NamedTuple):
    """Of the closed form in one setting, relative; what was simulated, as a share of the peak."""

    off: float
    setting: Setting
    pseudochannels: int
    simulated: float


def errors(part: str) -> list[Error]:
    """Those of every setting drawn."""
    rng = np.random.default_rng(SEEDS[part])
    settings = [draw(rng) for _ in range(SETTINGS[part])]
    with ThreadPoolExecutor(2) as pool:  # the kernels hold no lock
        found = list(pool.map(lambda each: simulated(each, SEEDS[part]), settings))
    return [
        Error(estimate(device, each.extent, each.align).efficiency / share - 1, each,
              device.memory.organisation.pseudochannels, share)
        for each, (device, share) in zip(settings, found, strict=True)
    ]  # fmt: skip


def summary(found: list[Error]) -> tuple[int, float, float, float, int]:
    """(settings, median, nine in ten, worst, how many beyond 20 %)."""
    off = np.abs([each.off for each in found])
    nine = float(np.quantile(off, 0.9))
    return len(off), float(np.median(off)), nine, float(off.max()), int((off > 0.2).sum())


if __name__ == "__main__":
    every = errors(sys.argv[1])
    print("settings, median, nine in ten, worst, beyond 20 %")
    print("all", *summary(every))
    for many in (1, 2):
        print(many, "a channel", *summary([e for e in every if e.pseudochannels == many]))
    for each in sorted(every, key=lambda e: -abs(e.off))[:10]:
        print(f"{each.off:+.3f}", *each.setting)
