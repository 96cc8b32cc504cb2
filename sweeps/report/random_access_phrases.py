"""The sentences of a random-access verdict (`bankwise bandwidth --racm`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweeps.analyse.random_access import RandomAccess
from sweeps.analyse.statistics import Interval
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.report.formats import between, counted, listed, said, share

if TYPE_CHECKING:
    from hwmodel.measure.racm import Condition


def random_access(found: RandomAccess) -> list[str]:
    """The answer, what changes it, where alpha reaches the threshold, what else limits."""
    lines = [
        f"Random extents of {size_text(found.extent)} reach {alpha_text(found.alpha)} of sequential"
        f" bandwidth on {found.place} ({condition_text(found.condition)}){_range(found)}:"
        f" {found.answer}"
        f"{_reason(found)}."
    ]
    if found.reached_at is None:
        lines.append(f"No extent up to {size_text(found.longest)} reaches {found.threshold:g}.")
    else:
        reached = size_text(found.reached_at)
        lines.append(f"The smallest extent that reaches {found.threshold:g} is {reached}.")
    if found.descriptors is not None:
        size, cost = found.descriptors
        lines.append(
            f"Up to {size_text(size)} the DMA engines are the limit, not the memory: "
            f"{cost:g} ns per descriptor."
        )
    return list(map(said, lines))


def _range(found: RandomAccess) -> str:
    """Least to most over the plausible variants and the device as described, and which they are."""
    if not found.plausible:
        return ""
    every = {AS_DESCRIBED: found.alpha.mean}
    every |= {name: alpha.mean for name, alpha in found.plausible.items()}
    least, most = min(every, key=every.__getitem__), max(every, key=every.__getitem__)
    return (
        f", {every[least]:.2f} ({least}) to {every[most]:.2f} ({most}) over"
        f" {counted(len(found.plausible), 'plausible variant')}"
    )


def _reason(found: RandomAccess) -> str:
    """Why it is undecided, where it is."""
    texts = [
        f"{alpha_text(alpha)} with {difference_text(condition, found.condition)}"
        for condition, alpha in found.flipping
    ]
    texts += [f"{alpha_text(found.plausible[name])} with {name}" for name in found.turning]
    if texts:
        return f" at a threshold of {found.threshold:g}, because it is {listed(texts)}"
    if found.answer == "undecided":
        return f", because the interval contains the threshold of {found.threshold:g}"
    return ""


def alpha_text(alpha: Interval) -> str:
    """`0.86 (95 % CI 0.85 to 0.87)`."""
    return between(f"{alpha.mean:.2f}", alpha, lambda value: f"{value:.2f}")


def size_text(size: int) -> str:
    """`16 KiB`, `48 B`."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def condition_text(condition: Condition) -> str:
    """All of a condition, in words."""
    window = condition.window_bytes
    parts = [f"read share {share(condition.read_share)}", f"queues {_queues(condition)}"]
    return ", ".join([*parts, *([] if window is None else [f"window {size_text(window)}"])])


def difference_text(condition: Condition, described: Condition) -> str:
    """What distinguishes a condition from the described one, in words."""
    if condition == described:
        return AS_DESCRIBED
    if condition.read_share != described.read_share:
        return f"read share {share(condition.read_share)}"
    if condition.window_bytes != described.window_bytes:
        return f"window {size_text(condition.window_bytes or 0)}"
    return f"queues {_queues(condition)}"


def _queues(condition: Condition) -> str:
    reads, writes = condition.read_queue, condition.write_queue
    return str(reads) if reads == writes else f"{reads} and {writes}"
