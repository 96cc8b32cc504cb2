"""RACM curves as results: intervals over replications, and the verdict in words.

Is a device bound by random access at the extents of its KV cache? It is not where alpha there is
at least the threshold, under the described condition and under all others; undecided where an
interval straddles the threshold or another condition answers otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hwmodel.description.description import DescriptionError
from hwmodel.description.units import parse_quantity
from hwmodel.measure.racm import (
    REPLICATIONS,
    SEED,
    Condition,
    Curve,
    Level,
    Point,
    check_extent,
    curves,
    descriptor_gbps,
    extent_sizes,
)
from hwmodel.specs.device import Device, load_device
from sweeps.render.screen import print_table
from sweeps.results.statistics import LEVEL, Interval, interval
from sweeps.results.version import version

EXTENT = "16KiB"
"""K of 16 tokens in one layer of DeepSeek-R1-Distill-Qwen-7B: a block of the paged layout."""
THRESHOLD = 0.7
"""Least alpha that is not called random-access bound (assumed)."""
Answer = Literal["not random-access bound", "random-access bound", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """The answer for one level, and what it rests on."""

    answer: Answer
    curve: Curve
    """Of the described condition."""
    alpha: Interval
    flipping: list[tuple[Condition, Interval]]
    """Conditions that do not give the answer of the described one, where that has one."""
    reached_at: int | None
    """The smallest simulated extent whose mean alpha is at least the threshold."""


@dataclass(frozen=True)
class Racm:
    """The curves of a device and what was asked of them."""

    device: Device
    extent: int
    threshold: float
    curves: list[Curve]

    def levels(self) -> list[Level]:
        """The device's levels, the device before its channel."""
        return list(dict.fromkeys(curve.condition.level for curve in self.curves))

    def of(self, level: Level) -> list[Curve]:
        """The curves of a level, the described condition first."""
        return [curve for curve in self.curves if curve.condition.level == level]

    def verdict(self, level: Level) -> Verdict:
        """Whether random extents bind at this level."""
        described, *others = self.of(level)
        alpha = alpha_of(described.at(self.extent))
        answer = self.answer(alpha)
        flipping = [
            (curve.condition, found)
            for curve in others
            if answer != "undecided"
            and self.answer(found := alpha_of(curve.at(self.extent))) != answer
        ]
        reached = (p.extent_bytes for p in described.points if self._reaches(p))
        return Verdict(
            "undecided" if flipping else answer, described, alpha, flipping, next(reached, None)
        )

    def answer(self, alpha: Interval) -> Answer:
        """What one condition alone says."""
        if alpha.low >= self.threshold:
            return "not random-access bound"
        return "random-access bound" if alpha.high < self.threshold else "undecided"

    def _reaches(self, point: Point) -> bool:
        return alpha_of(point).mean >= self.threshold


def racm(name: str, overrides: list[str], extent: str, threshold: float) -> Racm:
    """Simulate the curves of a device. Raises DescriptionError for an extent or a threshold that
    makes no sense."""
    device = load_device(name, overrides)
    try:
        size = parse_quantity(extent, "size")
        check_extent(device.memory, size)
    except ValueError as error:
        raise DescriptionError(str(error), "--extent") from None
    if not 0 < threshold <= 1:
        raise DescriptionError(f"expected more than 0, at most 1; got {threshold:g}", "--threshold")
    sizes = extent_sizes(device.memory, int(size))
    return Racm(device, int(size), threshold, curves(name, overrides, extents=sizes))


def alpha_of(point: Point) -> Interval:
    """Mean alpha of a point with its interval over the replications."""
    return interval(point.alpha)


def size_text(size: int) -> str:
    """`16 KiB`, `48 B`."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def condition_text(condition: Condition) -> str:
    """All of a condition, in words."""
    parts = [f"read share {condition.read_share:.0%}", f"queues {_queues(condition)}"]
    if condition.window_bytes is not None:
        parts.append(f"window {size_text(condition.window_bytes)}")
    return _spaced(", ".join(parts))


def difference_text(condition: Condition, described: Condition) -> str:
    """What distinguishes a condition from the described one, in words."""
    if condition == described:
        return "as described"
    if condition.read_share != described.read_share:
        return _spaced(f"read share {condition.read_share:.0%}")
    if condition.window_bytes != described.window_bytes:
        return f"window {size_text(condition.window_bytes or 0)}"
    return f"queues {_queues(condition)}"


def _queues(condition: Condition) -> str:
    if condition.read_queue == condition.write_queue:
        return str(condition.read_queue)
    return f"{condition.read_queue} and {condition.write_queue}"


def _spaced(text: str) -> str:
    return text.replace("%", " %")


def alpha_text(alpha: Interval) -> str:
    """`0.86 (0.85 to 0.87)`."""
    return f"{alpha.mean:.2f} ({alpha.low:.2f} to {alpha.high:.2f})"


def sentences(racm: Racm, level: Level) -> list[str]:
    """The verdict of a level in plain words: the answer, what flips it, where alpha reaches the
    threshold, what else binds."""
    found = racm.verdict(level)
    described = found.curve.condition
    place = racm.device.name if level == "device" else f"one channel of {racm.device.name}"
    lines = [
        f"Random extents of {size_text(racm.extent)} reach {alpha_text(found.alpha)} of sequential "
        f"on {place} ({condition_text(described)}): {found.answer}{_reason(racm, found)}."
    ]
    if found.reached_at is None:
        longest = size_text(found.curve.points[-1].extent_bytes)
        lines.append(f"No extent up to {longest} reaches {racm.threshold:g}.")
    else:
        reached = size_text(found.reached_at)
        lines.append(f"The smallest extent that reaches {racm.threshold:g} is {reached}.")
    return lines + _descriptor_text(racm, found)


def _reason(racm: Racm, found: Verdict) -> str:
    """Why it is undecided, where it is."""
    if found.flipping:
        described = found.curve.condition
        texts = [
            f"{alpha_text(alpha)} with {difference_text(condition, described)}"
            for condition, alpha in found.flipping
        ]
        listed = texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
        return f" against {racm.threshold:g}, for it is {listed}"
    if found.answer == "undecided":
        return f", for the interval straddles {racm.threshold:g}"
    return ""


def _descriptor_text(racm: Racm, found: Verdict) -> list[str]:
    """The extents at which the engines' descriptors, and not the memory, are the limit."""
    if found.curve.condition.level == "channel":
        return []
    bound = [p.extent_bytes for p in found.curve.points if _near_descriptors(racm.device, p)]
    if not bound:
        return []
    assert racm.device.accelerator is not None
    cost = racm.device.accelerator.dma.descriptor_cost
    return [
        f"Up to {size_text(max(bound))} the DMA engines are the limit, not the memory: "
        f"{cost:g} ns a descriptor."
    ]


_NEAR = 0.95
"""Share of the engines' own limit from which on they are called the limit (assumed)."""


def _near_descriptors(device: Device, point: Point) -> bool:
    limit = min(descriptor_gbps(device, point.extent_bytes), device.peak_gbps)
    mean = interval(point.gbps).mean
    return limit < device.peak_gbps and mean >= _NEAR * limit


def record(racm: Racm) -> dict[str, Any]:
    """The result as JSON has it."""
    return {
        "device": racm.device.name,
        "version": version(),
        "digest": racm.device.digest,
        "peak_gbps": racm.device.peak_gbps,
        "extent_bytes": racm.extent,
        "threshold": racm.threshold,
        "seeds": [[SEED, replication] for replication in range(REPLICATIONS)],
        "confidence": LEVEL,
        "verdicts": [_verdict_record(racm, level) for level in racm.levels()],
        "curves": [_curve_record(curve, racm) for curve in racm.curves],
    }


def _verdict_record(racm: Racm, level: Level) -> dict[str, Any]:
    found = racm.verdict(level)
    return {
        "level": level,
        "answer": found.answer,
        "alpha": found.alpha.mean,
        "low": found.alpha.low,
        "high": found.alpha.high,
        "reached_at_bytes": found.reached_at,
        "flipped_by": [
            {**_condition_record(condition), "alpha": a.mean, "low": a.low, "high": a.high}
            for condition, a in found.flipping
        ],
        "text": " ".join(sentences(racm, level)),
    }


def _condition_record(condition: Condition) -> dict[str, Any]:
    return {
        "level": condition.level,
        "read_share": condition.read_share,
        "read_queue": condition.read_queue,
        "write_queue": condition.write_queue,
        "window_bytes": condition.window_bytes,
    }


def _curve_record(curve: Curve, racm: Racm) -> dict[str, Any]:
    points = []
    for point in curve.points:
        alpha = alpha_of(point)
        points.append(
            {
                "extent_bytes": point.extent_bytes,
                "gbps": interval(point.gbps).mean,
                "alpha": alpha.mean,
                "low": alpha.low,
                "high": alpha.high,
                "row_hit_rate": point.row_hit_rate,
            }
        )
    return {
        **_condition_record(curve.condition),
        "described": curve == racm.of(curve.condition.level)[0],
        "sequential_gbps": interval(curve.sequential_gbps).mean,
        "points": points,
    }


def show_racm(racm: Racm) -> None:
    """A table of alpha a level, then the verdicts."""
    for level in racm.levels():
        found = racm.of(level)
        described = found[0].condition
        heads = [difference_text(curve.condition, described) for curve in found]
        rows = [
            [size_text(p.extent_bytes), *(f"{alpha_of(q).mean:.3f}" for q in same)]
            for p, *same in zip(found[0].points, *(curve.points for curve in found), strict=True)
        ]
        base = [f"{interval(curve.sequential_gbps).mean:,.1f}" for curve in found]
        place = "all channels" if level == "device" else "one channel"
        print(f"{racm.device.name}, {place}: alpha by extent; {condition_text(described)}\n")
        print_table(["extent", *heads], [*rows, ["GB/s seq.", *base]], "<>")
        print()
    for level in racm.levels():
        for line in sentences(racm, level):
            print(line)
