"""Measuring a stream of descriptors on a device by simulating a window of it, or all of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.memory import Descriptors, issue_ns
from hwmodel.measure.recurring import Owed, passes, window_ns
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_layout import KvLayout
from policies.memory import dealing, traffic
from policies.memory.fidelity import FidelitySpec, Simulate
from policies.memory.interval import confidence_interval
from policies.memory.routing import Routing
from policies.memory.step_energy import Transfer, transfer
from policies.memory.traffic import Extents, Spread
from policies.requests.requests import FloatArray, IntArray

_DRAWS = 24
"""Places that the control's efficiency of contiguous KV is the mean of (assumed)."""
LEAST = 1e-6
"""A measured efficiency is never taken to be below this, so that times stay finite."""
_TO_THE_END = 1 << 30
"""More bytes than an engine moves in a layer."""


Layer = Callable[[int], Extents | Descriptors]
"""What a phase moves in a layer."""


class Beside(NamedTuple):
    """A whole layer, or the start of a long one, simulated in addition to a window."""

    at_peak_ns: float
    lost_ns: float
    """What it takes beyond what is reckoned from the window."""


class Probed(NamedTuple):
    """What a probe found of one layer of a phase."""

    at_peak_ns: float
    """The layer's bytes at the peak."""
    elapsed_ns: float
    """From the first request to the last data beat, over the device's `derate`."""
    result: Any
    """The simulator's."""
    exact: bool
    """Whether the layer was simulated whole; else its time is reckoned from a window."""
    beside: Beside | None = None
    least_ns: float = 0.0
    """What the layer takes at least: its bytes at the peak, and the busiest engine's at its port,
    over `derate`."""
    descriptors: int = 0
    """That the layer is read and written by."""


class Probe:
    """Measures a stream of descriptors on the device by simulating a window of it."""

    def __init__(self, device: Device, spec: FidelitySpec, simulate: Simulate) -> None:
        if device.accelerator is None:
            raise DescriptionError(f"{device.name} is a memory; serving needs an accelerator")
        self.device = device
        self.memory = device.memory
        self._simulate = simulate
        self._dma = device.accelerator.dma
        self._derate = device.derate
        least_ns = spec.measure or spec.probe_bytes / device.peak_gbps
        self._measure_ns = window_ns(device.memory, least_ns)
        self._chosen = spec.measure is not None
        """Whether a user says how long a window lasts."""
        self._warmup_ns = self._measure_ns if spec.warmup is None else spec.warmup
        lead_ns = self._dma.request_latency + self._dma.descriptor_cost
        self._owed = Owed(device.memory, lead_ns)
        self._turn = 0
        """Streams simulated so far: each meets refreshes at another time of its own."""
        self.engines = self._dma.engines
        self.piece_bytes = self._dma.window
        self.simulated_bytes = 0
        self.wall_s = 0.0
        peak = device.peak_gbps
        self._calibrate_bytes = spec.calibrate * self._measure_ns / least_ns
        self._window_bytes = (self._measure_ns + self._warmup_ns) * peak

    def measure(
        self, layer: Layer, layers: int, spread: Spread, rng: np.random.Generator,
        calibrate: bool = False, shares: FloatArray | None = None,
    ) -> Probed:  # fmt: skip
        """What a phase does that moves `layer(i)` in layer i: an estimate of what `whole` would
        find for the mean layer.

        shares: of the layers in what all move; one is drawn by them. None: they are equal.

        A layer that fits the window is simulated whole. Else the window begins at a random place of
        a random layer and runs on into the next ones; what a layer loses at its begin, until the
        first request is at the memory, and at its end, when engines run out of work, is estimated,
        the latter as if all engines had progressed evenly. calibrate: the layer, or the first
        `FidelitySpec.calibrate` bytes of it, is also simulated whole, which gives what the estimate
        leaves out.
        """
        begun = time.perf_counter()
        drawn = rng.integers(layers) if shares is None else rng.choice(layers, p=shares)
        first, begin = int(drawn), float(rng.random())
        entire = self.deal(layer(first), spread)
        if entire.size.sum() <= self._window_bytes:
            return self._exact(entire)
        loads = self._loads(entire)
        longer = self._longer(entire)
        warmup_ns, measure_ns = longer * self._warmup_ns, longer * self._measure_ns
        span_s = (warmup_ns + measure_ns) * 1e-9
        each = int(self._dma.port_bandwidth * span_s) + self._dma.window
        busy = loads > 0
        parts = [dealing.window(entire, self.engines, begin, _TO_THE_END, self._dma.request)]
        least = int(self._loads(parts[0])[busy].min())
        while least < each and len(parts) < 2 * layers:
            parts.append(self.deal(layer((first + len(parts)) % layers), spread))
            least += int(self._loads(parts[-1])[busy].min())
        stream = dealing.window(dealing.joined(parts), self.engines, 0.0, each, self._dma.request)
        result = self._simulated(stream, warmup_ns, measure_ns, times=1)[0]
        self.simulated_bytes += int(result.bytes_measured)
        self.wall_s += time.perf_counter() - begun
        reckoned_ns = self._reckoned_ns(loads, result.gbps)
        moved = float(loads.sum())
        at_peak_ns = moved / self.device.peak_gbps
        least_ns = max(at_peak_ns, float(loads.max()) / self._dma.port_bandwidth * 1e9)
        found = Probed(
            at_peak_ns, reckoned_ns, result, False, None, least_ns / self._derate, len(entire.size)
        )
        if not calibrate:
            return found
        share = min(self._calibrate_bytes / moved, 1.0)
        entire = self.start(entire)
        whole = self._exact(entire)
        lost_ns = whole.elapsed_ns - self._reckoned_ns(self._loads(entire), result.gbps)
        beside = Beside(whole.at_peak_ns, lost_ns)
        if share < 1:
            return found._replace(beside=beside)
        return whole._replace(beside=beside)

    def _longer(self, entire: Descriptors) -> int:
        """How many times as long the window of a layer lasts: where engines need many times what
        its bytes take at the peak, for descriptors or since few are busy, a window would show but a
        few descriptors of each. It moves about as many bytes as one at the peak."""
        if self._chosen:
            return 1
        at_peak_ns = float(entire.size.sum()) / self.device.peak_gbps
        return max(int(issue_ns(self.device, entire) / at_peak_ns), 1)

    def start(self, entire: Descriptors, least: float = 0.0) -> Descriptors:
        """The first `FidelitySpec.calibrate` bytes of a layer, or `least`, as much of each
        engine's."""
        loads = self._loads(entire)
        share = max(self._calibrate_bytes, least) / float(loads.sum())
        if share >= 1:
            return entire
        most = np.ceil(loads * share).astype(np.int64)[entire.engine]
        return dealing.window(entire, self.engines, 0.0, most, self._dma.request)

    def _loads(self, dealt: Descriptors) -> IntArray:
        """Bytes of each engine."""
        return np.bincount(dealt.engine, dealt.size, self.engines).astype(np.int64)

    def _reckoned_ns(self, loads: IntArray, gbps: float) -> float:
        """Time of a layer whose engines have so much to move, at the rate of a window of it."""
        lead_ns = self._dma.request_latency + self._dma.descriptor_cost
        rate = gbps * self._kept(loads, gbps * 1e9)
        return (float(loads.sum()) / max(rate, LEAST) + lead_ns) / self._derate

    def _exact(self, dealt: Descriptors) -> Probed:
        share, result = self.whole([dealt], times=None)
        at_peak_ns = float(dealt.size.sum()) / self.device.peak_gbps
        return Probed(
            at_peak_ns, at_peak_ns / share, result, exact=True, descriptors=len(dealt.size)
        )

    def whole(
        self, layers: Iterable[Descriptors], stand_for: Iterable[int] | None = None,
        times: int | None = 1,
    ) -> tuple[float, Any]:  # fmt: skip
        """(share of the peak that reaches the engines, the last result) of layers that are each
        simulated from the first request to the last data beat, one after the other; None where they
        move nothing. stand_for: for how many layers each stands; None: for as many as any other.
        times: how often each is simulated, as in `passes`; its time is the mean."""
        begun = time.perf_counter()
        moved, elapsed_ns, result = 0, 0.0, None
        for layer, many in zip(layers, stand_for or repeat(1), strict=False):
            if not len(layer.size):  # it lies in another memory
                continue
            results = self._simulated(layer, 0.0, math.inf, times)
            result = results[-1]
            moved += many * int(result.total_bytes)
            elapsed_ns += many * math.fsum(each.elapsed_ns for each in results) / len(results)
            self.simulated_bytes += sum(int(each.total_bytes) for each in results)
        self.wall_s += time.perf_counter() - begun
        share = moved / max(elapsed_ns, 1e-9) / self.device.peak_gbps * self._derate
        return min(max(share, LEAST), 1.0), result

    def _simulated(
        self, stream: Descriptors, warmup_ns: float, measure_ns: float, times: int | None
    ) -> list[Any]:
        """The simulator's results at other times since the last refresh. Raises DescriptionError
        where something comes so seldom that it would be missed."""
        whole, moving_ns = math.isinf(measure_ns), float(stream.size.sum()) / self.device.peak_gbps
        results: list[Any] = []
        moments = passes(self.memory, min(measure_ns, moving_ns), self._turn, times)
        settles = self._owed.settles(whole, moving_ns)
        before = [moments[i % len(moments)] for i in range(settles)]
        for passed_ns in before + moments:
            result = self._simulate(
                self.device, stream, warmup_ns=warmup_ns, measure_ns=measure_ns,
                passed_ns=passed_ns, **self._owed.at_begin(whole),
            )  # fmt: skip
            self._owed.note(whole, result)
            if result.unmet:
                raise DescriptionError(
                    f"{self.device.name}: {result.unmet}, and a probe does not last so long; "
                    "expected memory.measure to be longer"
                )
            results.append(result)
        self._turn += 1
        return results[settles:]

    def deal(self, extents: Extents | Descriptors, spread: Spread) -> Descriptors:
        """A layer's extents as the device's engines get them, unless they are dealt already."""
        if isinstance(extents, Descriptors):
            return extents
        return dealing.deal(extents, self.engines, spread, self._dma.request)

    def _kept(self, loads: IntArray, rate: float) -> float:
        """What the tail of a layer leaves, when engines have run out of work."""
        latency_s = (self._dma.request_latency + self._dma.response_latency) * 1e-9
        engine_rate = self._dma.port_bandwidth
        if latency_s > 0:
            engine_rate = min(engine_rate, self._dma.window / latency_s)
        return dealing.balance(loads, max(rate, 1.0), engine_rate)


def lost_ns(beside: list[Beside], at_peak_ns: float) -> tuple[float, float]:
    """(mean, half-width of its 95 % interval) of what a layer of `at_peak_ns` takes beyond the
    estimate from its window.

    Engines are served in an effectively random order, so their progress diverges with the root of
    the time (a random walk), and with it the end of the last one.
    """
    if not beside:
        return 0.0, 0.0
    drifts = [each.lost_ns / math.sqrt(each.at_peak_ns) for each in beside]
    mean, half = confidence_interval(drifts)
    return mean * math.sqrt(at_peak_ns), (half or 0.0) * math.sqrt(at_peak_ns)


class Measured(NamedTuple):
    """What a stream was found to do."""

    share: float
    """Of the peak."""
    transfer: Transfer


_known: dict[tuple[Any, ...], Measured] = {}


def weights_efficiency(
    device: Device, model: TransformerSpec, spec: FidelitySpec, simulate: Simulate, tokens: int = 1
) -> float:
    """Share of the peak that the weights' stream reaches; measured once a process and device.
    tokens: those of the step, which pass through experts."""
    return weights_stream(device, model, spec, simulate, tokens=tokens).share


def weights_stream(
    device: Device, model: TransformerSpec, spec: FidelitySpec, simulate: Simulate,
    routing: Routing | None = None, tokens: int = 1,
) -> Measured:  # fmt: skip
    """What the weights' stream does: the first layer simulated whole, or every layer in
    `exhaustive`; measured once a process and device.

    No window stands for it: engines that read in step fall out of it over a whole layer. With
    experts the first layer that has them stands for all, with those drawn for as many tokens as the
    power of two below `tokens`.
    """
    experts, about = model.experts, 1 << tokens.bit_length() - 1
    first = 0 if experts is None else experts.first_dense_layers
    layers = range(model.layers) if spec.fidelity == "exhaustive" else range(first, first + 1)
    if experts is not None and routing is None:
        routing = Routing(experts)
    edges = tuple(model.layer_weight_edges[: layers[-1] + 2])
    routed = () if routing is None else (routing.key, about)
    key = (device.digest, edges, spec.weight_tile, simulate, *routed)
    if key not in _known:
        probe = Probe(device, spec, simulate)
        streams = (
            probe.deal(
                traffic.weights(
                    model,
                    layer,
                    spec.weight_tile,
                    None if routing is None else routing.touched(about, layer, 0),
                ),
                "split",
            )
            for layer in layers
        )
        share, result = probe.whole(streams, times=None)
        _known[key] = Measured(share, transfer(device.memory, [result]))
    return _known[key]


def contiguous_stream(
    device: Device, layout: KvLayout, spec: FidelitySpec, simulate: Simulate, spread: Spread
) -> Measured:
    """What KV does in long contiguous extents, one for each engine.

    The mean of `_DRAWS` batches that lie at random in the KV region, so that no single alignment
    of the engines' extents decides. Measured once a process and device.
    """
    window = (spec.probe_bytes, spec.warmup, spec.measure)
    key = (device.digest, layout, window, spread, simulate)
    if key not in _known:
        probe, rng = Probe(device, spec, simulate), np.random.default_rng(0)
        engines, align = probe.engines, layout.half_bytes
        probed = []
        for _ in range(_DRAWS):
            size = int(layout.bytes * rng.uniform(0.5, 1.0)) // layout.layers // align * align
            start = layout.base + int(rng.integers(layout.bytes - size + 1)) // align * align
            batch = {0: traffic.contiguous(start, size, engines)}  # the only layer
            probed.append(probe.measure(batch.__getitem__, 1, spread, rng))
        mean = math.fsum(each.at_peak_ns / each.elapsed_ns for each in probed) / len(probed)
        _known[key] = Measured(mean, transfer(device.memory, [each.result for each in probed]))
    return _known[key]
