"""How long the matrix products of a step take: their FLOPs, padded to tiles, and the reads of their
weights.

Products of routed experts are kernels of their own, after those of all tokens: each kind is bound
by its own FLOPs or bytes, reads weights of its own format, and reaches its own share of the peak
(`hwmodel.specs.kernel_law`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from hwmodel.specs.accelerator import Compute
from hwmodel.specs.device import Device
from hwmodel.specs.kernel_law import KernelLaw
from hwmodel.specs.number_format import COMPUTE_BITS, number_format
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.step_work import Phase, Rate, StepWork


class Bounds(NamedTuple):
    """Seconds of products that follow one another."""

    decode_s: float
    """Of FLOPs, without those of chunks; of all where a step has no attention of chunks."""
    flops_s: float
    """Of all FLOPs."""
    read_s: float


class Products:
    """Those of a model on a device that computes."""

    def __init__(self, device: Device, model: TransformerSpec) -> None:
        assert device.accelerator is not None
        compute, self._law = device.accelerator.compute, device.accelerator.kernels
        law = self._law
        peak = compute.peak(model.weights) * narrow(law, model.weights, compute)
        self.decode_rate = peak * compute.decode_efficiency
        """FLOPs a second of tokens that decode."""
        self.prefill_rate = peak * (compute.prefill_efficiency * law.chunk_products)
        """And of those of chunks."""
        form = number_format(model.weights)
        dense = model.weights if model.experts is None else form.part("q").name
        bandwidth = device.peak_gbps * 1e9
        self._dense_rate, self._expert_rate = (
            bandwidth * law.weights * converted(law, name, compute)
            for name in (dense, model.weights)
        )
        self._vector_times = compute.decode_efficiency / law.vector_efficiency

    def seconds(self, work: StepWork, linear: Phase, share: float) -> list[Bounds]:
        """Of the products of all tokens and, where there are any, of routed experts; weights are
        read at a `share` of the peak."""
        flops, experts, chunks = linear.flops, work.expert_flops, "prefill" in work.phases
        if experts:
            flops = {rate: flops[rate] - experts[rate] for rate in flops}
        times, passes = self._tiles(work.rows)
        read_s = passes * (linear.waits - work.expert_bytes) / (self._dense_rate * share)
        found = [self._bounds(flops, times, read_s, chunks)]
        if experts:
            times, passes = self._expert_tiles(work.rows, work.expert_rows)
            if 1 < work.rows < self._law.lone_expert_rows:
                times, passes = self._vector_times, work.expert_rows / self._law.lone_experts
            read_s = passes * work.expert_bytes / (self._expert_rate * share)
            times /= self._law.experts_efficiency
            found.append(self._bounds(experts, times, read_s, chunks))
        return found

    def _bounds(
        self, flops: Mapping[Rate, Any], times: float, read_s: float, chunks: bool
    ) -> Bounds:
        """Of so many times these FLOPs."""
        decode_s = times * flops["decode"] / self.decode_rate
        if "prefill" not in flops:
            return Bounds(decode_s, decode_s, read_s)
        all_s = decode_s + times * flops["prefill"] / self.prefill_rate
        return Bounds(decode_s if chunks else all_s, all_s, read_s)

    def _tiles(self, rows: int) -> tuple[float, float]:
        """Times the FLOPs of so many rows that products compute, and passes over the weights."""
        law = self._law
        if not rows:
            return 1.0, 1
        if rows <= law.vector_rows:
            return self._vector_times, -(-rows // law.vector_columns)
        return -(-rows // law.tile) * law.tile / rows, 1

    def _expert_tiles(self, rows: int, expert_rows: float) -> tuple[float, float]:
        """The same of routed experts, which have so many rows each."""
        law = self._law
        if rows <= law.vector_rows:
            return self._tiles(rows)
        if expert_rows <= law.vector_rows:
            return self._vector_times, 1
        return expert_padding(law, expert_rows), 1


def expert_padding(law: KernelLaw, rows: float) -> float:
    """Times the FLOPs of so many rows that an expert computes.

    Its tile is as high as its rows ask for, 16 rows to `tile` (vLLM's `fused_moe` chooses so); on
    average half of one is empty, as loads differ."""
    tile = min(max(2 ** math.ceil(math.log2(2 * rows)), 16), law.tile)
    return max(tile / rows, 1 + tile / (2 * rows)) if tile > 1 else 1.0


def multiplied_bits(weights: str, compute: Compute) -> int:
    """Bits of the numbers that products of weights in this format multiply."""
    kind = number_format(weights).compute
    return COMPUTE_BITS[kind if getattr(compute, kind) is not None else "fp16"]


def converted(law: KernelLaw, weights: str, compute: Compute) -> float:
    """Times the rate at which weights are read, where they are converted to be multiplied."""
    bits = number_format(weights).bits
    if bits > 8 or bits >= multiplied_bits(weights, compute):
        return 1.0
    return law.converted_8 if bits > 4 else law.converted_4


def narrow(law: KernelLaw, weights: str, compute: Compute) -> float:
    """Times the FLOPs of products."""
    return law.narrow if multiplied_bits(weights, compute) <= 8 else 1.0
