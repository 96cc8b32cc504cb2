"""Random reads by size of the piece: intervals over replications, and the verdict in words.

Is a device bound by random access at the extents of its KV cache? It is not where alpha there is
at least the threshold, under the described condition and under all others, and with each plausible
variant of the device; undecided where an interval straddles the threshold or another condition or
variant answers otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hwmodel.measure.racm import (
    REPLICATIONS,
    SEED,
    Condition,
    Curve,
    Level,
    SizePoint,
    curves,
    described_curves,
    descriptor_gbps,
    extent_sizes,
)
from hwmodel.measure.student import LEVEL
from hwmodel.measure.through import Through, silent
from hwmodel.specs.device import Device, load_device, load_variants
from sweeps.analyse.random_access import RandomAccess, RandomAccessAnswer
from sweeps.analyse.statistics import Interval, interval
from sweeps.ask.memory_patterns import extent_bytes
from sweeps.run.version import version
from sweeps.sections.formats import between, difference_text, listed, size_text

EXTENT = "16KiB"
"""K of 16 tokens in one layer of DeepSeek-R1-Distill-Qwen-7B: a block of the paged layout."""
THRESHOLD = 0.7
"""Least alpha that is not called random-access bound (assumed)."""
_NEAR = 0.95
"""Share of the engines' own limit from which on they are called the limit (assumed)."""


@dataclass(frozen=True)
class RandomCurves:
    """The curves of a device and what was asked of them."""

    device: Device
    extent: int
    threshold: float
    curves: list[Curve]
    plausible: dict[str, list[Curve]] = field(default_factory=dict)
    """Plausible variant -> its described condition at each level, at `extent` alone."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Variants that do not go with the overrides or the extent, and why."""
    quick: bool = False
    """Whether nothing but `extent` was simulated, as described."""

    def levels(self) -> list[Level]:
        """The device's levels, the device before its channel."""
        return list(dict.fromkeys(curve.condition.level for curve in self.curves))

    def of(self, level: Level) -> list[Curve]:
        """The curves of a level, the described condition first."""
        return [curve for curve in self.curves if curve.condition.level == level]

    def verdict(self, level: Level) -> RandomAccess:
        """Whether random extents bind at this level."""
        described, *others = self.of(level)
        alpha = alpha_of(described.at(self.extent))
        answer = self.answer(alpha)
        plausible = {
            name: alpha_of(curve.at(self.extent))
            for name, found in self.plausible.items()
            for curve in found
            if curve.condition.level == level
        }
        turning = [
            name
            for name, found in plausible.items()
            if answer != "undecided" and self.answer(found) != answer
        ]
        flipping = [
            (curve.condition, found)
            for curve in others
            if answer != "undecided"
            and self.answer(found := alpha_of(curve.at(self.extent))) != answer
        ]
        points = described.points
        reached = (p.extent_bytes for p in points if alpha_of(p).mean >= self.threshold)
        name = self.device.name
        return RandomAccess(
            name if level == "device" else f"one channel of {name}",
            self.extent, self.threshold, described.condition, alpha,
            "undecided" if flipping or turning else answer, flipping, next(reached, None),
            points[-1].extent_bytes, self._descriptors(described), plausible, turning, self.quick,
        )  # fmt: skip

    def record(self) -> dict[str, Any]:
        """The result as JSON has it."""
        return {
            "device": self.device.name, "version": version(), "digest": self.device.digest,
            "peak_gbps": self.device.peak_gbps, "extent_bytes": self.extent,
            "threshold": self.threshold, "quick": self.quick,
            "seeds": [[SEED, replication] for replication in range(REPLICATIONS)],
            "confidence": LEVEL,
            "verdicts": [_verdict_record(self, level) for level in self.levels()],
            "left_out": self.left_out,
            "curves": [_curve_record(curve, self) for curve in self.curves],
        }  # fmt: skip

    def _descriptors(self, described: Curve) -> tuple[int, float] | None:
        """The largest extent at which the engines' descriptors are the limit, ns per descriptor."""
        if described.condition.level == "channel":
            return None
        bound = [p.extent_bytes for p in described.points if _near_descriptors(self.device, p)]
        if not bound:
            return None
        assert self.device.accelerator is not None
        return max(bound), self.device.accelerator.dma.extent_cost

    def answer(self, alpha: Interval) -> RandomAccessAnswer:
        """What one condition alone says."""
        if alpha.low >= self.threshold:
            return "not random-access bound"
        return "random-access bound" if alpha.high < self.threshold else "undecided"


def random_curves(
    name: str, overrides: list[str], extent: str, threshold: float, quick: bool = False,
    through: Through = silent,
) -> RandomCurves:  # fmt: skip
    """Simulate the curves of a device; `quick`: the one extent as described, the same figure as in
    the curves. Raises DescriptionError for an extent that makes no sense."""
    device = load_device(name, overrides)
    size = extent_bytes(device, extent)
    if quick:
        described = described_curves(device, [size])[::-1]  # the device before its channel
        return RandomCurves(device, size, threshold, described, quick=True)
    sizes = extent_sizes(device.memory, size)
    every = curves(name, overrides, extents=sizes, through=through)
    result = RandomCurves(device, size, threshold, every)
    variants = load_variants(name, overrides)
    result.left_out.update(variants.left_out)
    for variant, other in variants.devices.items():
        if set(device.plausible[variant].set) == {"derate"}:
            result.left_out[variant] = "it divides out of alpha"
            continue
        try:
            result.plausible[variant] = described_curves(other, [size])
        except ValueError as error:
            result.left_out[variant] = str(error)
    return result


def alpha_of(point: SizePoint) -> Interval:
    """Mean alpha of a point with its interval over the replications."""
    return interval(point.alpha)


def sentences(every: RandomCurves, level: Level) -> list[str]:
    """The verdict of a level in words."""
    return random_access(every.verdict(level))


def _near_descriptors(device: Device, point: SizePoint) -> bool:
    limit = min(descriptor_gbps(device, point.extent_bytes), device.peak_gbps)
    mean = interval(point.gbps).mean
    return limit < device.peak_gbps and mean >= _NEAR * limit


def _verdict_record(every: RandomCurves, level: Level) -> dict[str, Any]:
    found = every.verdict(level)
    return {
        "level": level,
        "answer": found.answer,
        **_alpha_record(found.alpha),
        "reached_at_bytes": found.reached_at,
        "flipped_by": [
            {**_condition_record(condition), **_alpha_record(alpha)}
            for condition, alpha in found.flipping
        ],
        "plausible": [
            {"variant": name, "why": every.device.plausible[name].why, **_alpha_record(alpha)}
            for name, alpha in found.plausible.items()
        ],
        "text": " ".join(sentences(every, level)),
    }


def _condition_record(condition: Condition) -> dict[str, Any]:
    keys = ("level", "read_share", "read_queue", "write_queue", "window_bytes")
    return {key: getattr(condition, key) for key in keys}


def _alpha_record(alpha: Interval) -> dict[str, float]:
    return {"alpha": alpha.mean, "low": alpha.low, "high": alpha.high}


def _curve_record(curve: Curve, every: RandomCurves) -> dict[str, Any]:
    points = [
        {
            "extent_bytes": point.extent_bytes,
            "gbps": interval(point.gbps).mean,
            **_alpha_record(alpha_of(point)),
            "row_hit_rate": point.row_hit_rate,
        }
        for point in curve.points
    ]
    return {
        **_condition_record(curve.condition),
        "described": curve == every.of(curve.condition.level)[0],
        "sequential_gbps": interval(curve.sequential_gbps).mean,
        "points": points,
    }


def random_access(access: RandomAccess) -> list[str]:
    """The answer with what turns it, where alpha reaches the threshold, what else limits."""

    def alpha(each: Interval, named: bool = False) -> str:
        return between(each, "{:.2f}".format, named=named)

    turning = [f"{alpha(each)} with {difference_text(condition, access.condition)}"
               for condition, each in access.flipping]  # fmt: skip
    turning += [f"{alpha(access.plausible[name])} with {name}" for name in access.turning]
    lines = [
        f"{access.place}: random extents of {size_text(access.extent)} reach"
        f" {alpha(access.alpha, True)} of sequential bandwidth: {access.answer} at a threshold of"
        f" {access.threshold:g}." + (f" It is {listed(turning)}." if turning else "")
    ]
    if access.quick:
        lines.append("Other extents, conditions and variants were not simulated.")
    elif access.reached_at is None:
        lines.append(f"No extent up to {size_text(access.longest)} reaches {access.threshold:g}.")
    else:
        reached = size_text(access.reached_at)
        lines.append(f"The smallest extent that reaches {access.threshold:g} is {reached}.")
    if access.descriptors is not None:
        size, cost = access.descriptors
        limit = f"DMA engines limit extents up to {size_text(size)}"
        lines.append(f"{limit}: {cost:g} ns per descriptor.")
    return lines
