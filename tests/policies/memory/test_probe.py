"""Is the time of a layer that a window stands for what hand arithmetic says?"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.memory import Descriptors
from hwmodel.specs.device import load_device
from policies.memory.fidelity import FidelitySpec
from policies.memory.probe import Beside, Probe, Probed, lost_ns
from tests.policies.small import device

MIB = 1 << 20
GBPS = 64.0
DMA = device(1 << 20).accelerator.dma  # type: ignore[union-attr]
EVEN, UNEVEN = [2 * MIB] * DMA.engines, [3 * MIB] + [MIB] * (DMA.engines - 1)


class Steady:
    """A memory of `GBPS` in windows, and of a quarter of the peak in what is run to its end."""

    def __init__(self) -> None:
        self.asked: list[tuple[Descriptors, float, float]] = []

    def __call__(
        self, device: Any, stream: Descriptors, *, warmup_ns: float, measure_ns: float,
        passed_ns: float = 0.0,
    ) -> Any:  # fmt: skip
        self.asked.append((stream, warmup_ns, measure_ns))
        total = int(stream.size.sum())
        elapsed_ns = 4 * total / device.peak_gbps
        return SimpleNamespace(
            gbps=GBPS, bytes_measured=1000, total_bytes=total, elapsed_ns=elapsed_ns, unmet=""
        )


def probed(
    loads: list[int], along: bool = False, derate: float = 1.0, window: str = "16KiB", **spec: Any
) -> tuple[Probe, Probed, Steady]:
    """A probe of a layer of which engine i reads loads[i] bytes at one place; along: with a whole
    layer."""
    memory, size = Steady(), np.array(loads)
    spec = {"probe_bytes": "64KiB", **spec}
    card = device(1 << 20, f"derate={derate}", f"dma.window={window}")
    probe = Probe(card, FidelitySpec(**spec), memory)
    layer = Descriptors(
        np.arange(len(size)), np.cumsum(size) - size, size, np.zeros(len(size), bool)
    )
    found = probe.measure(lambda _: layer, 1, "slice", np.random.default_rng(0), along)
    return probe, found, memory


def by_hand(loads: list[int], derate: float = 1.0, window: int = 16 << 10) -> float:
    """ns of a layer whose first engine has more than the others, which have equally much: all share
    the rate, then the first is alone at what one engine can have outstanding, or issue."""
    latency_ns = DMA.request_latency + DMA.response_latency
    alone = min(DMA.port_bandwidth * 1e-9, window / latency_ns, GBPS)
    shared = min(GBPS, alone * len(loads))
    lead_ns = DMA.request_latency + DMA.descriptor_cost
    tail_ns = (loads[0] - loads[1]) / alone
    return (loads[1] * len(loads) / shared + tail_ns + lead_ns) / derate


@pytest.mark.parametrize("derate", [1.0, 0.5])
@pytest.mark.parametrize("loads", [EVEN, UNEVEN])
def test_does_a_layer_take_its_bytes_its_lead_and_its_last_engines_time(
    loads: list[int], derate: float
) -> None:
    probe, found, _ = probed(loads, derate=derate)
    assert found.elapsed_ns == pytest.approx(by_hand(loads, derate), rel=1e-9)
    assert found.at_peak_ns == pytest.approx(sum(loads) / probe.device.peak_gbps)
    assert not found.exact and found.beside is None
    assert probe.simulated_bytes == 1000 and 0 < probe.wall_s < 60


@pytest.mark.parametrize("kept", [1, 2])
def test_does_a_layer_beside_a_window_tell_what_its_estimate_leaves_out(kept: int) -> None:
    probe, found, memory = probed(UNEVEN, along=True, calibrate=f"{sum(UNEVEN) // kept}B")
    loads = [load // kept for load in UNEVEN]
    ns = sum(loads) / probe.device.peak_gbps
    stream, *span = memory.asked[-1]
    assert (stream.size.tolist(), span) == (loads, [0.0, math.inf])
    assert found.beside == pytest.approx((ns, 4 * ns - by_hand(loads)))
    assert probe.simulated_bytes == 1000 + sum(loads)
    # only where all of the layer was simulated does its time count
    assert found.exact == (kept == 1)
    assert found.elapsed_ns == pytest.approx(4 * ns if kept == 1 else by_hand(UNEVEN))


def test_are_layers_that_move_nothing_passed_over_and_the_others_weighed() -> None:
    probe, _, _ = probed(EVEN)

    def layer(size: list[int]) -> Descriptors:
        sizes = np.array(size, np.int64)
        return Descriptors(
            np.arange(len(sizes)), np.cumsum(sizes) - sizes, sizes, np.zeros(len(sizes), bool)
        )

    none, even, uneven = layer([]), layer(EVEN), layer(UNEVEN)
    alone, _ = probe.whole([even])
    assert probe.whole([none, even])[0] == alone
    assert probe.whole([none])[1] is None
    share, _ = probe.whole([even, none, uneven], [3, 9, 1])
    at_peak = [sum(each) / probe.device.peak_gbps for each in (EVEN, UNEVEN)]
    time_ns = 3 * at_peak[0] / alone + at_peak[1] / probe.whole([uneven])[0]
    assert share == pytest.approx((3 * at_peak[0] + at_peak[1]) / time_ns)


def test_is_what_a_layer_loses_scaled_with_the_root_of_its_length() -> None:
    assert lost_ns([], 100.0) == (0.0, 0.0)
    assert lost_ns([Beside(400.0, 40.0)], 100.0) == (20.0, 0.0)
    # drifts 2 and 4: mean 3, deviation sqrt 2, standard error 1, t 12.7062
    mean_ns, half_ns = lost_ns([Beside(400.0, 40.0), Beside(100.0, 40.0)], 900.0)
    assert (mean_ns, half_ns) == (pytest.approx(90.0), pytest.approx(30 * 12.706205))


def test_a_memory_alone_cannot_serve() -> None:
    lone = load_device("lpddr5-6400-x16")
    with pytest.raises(DescriptionError, match="needs an accelerator"):
        Probe(lone, FidelitySpec(), Steady())
