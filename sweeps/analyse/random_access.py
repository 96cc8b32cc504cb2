"""Whether a level of a device is bound by random access, as a record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from sweeps.analyse.statistics import Interval

if TYPE_CHECKING:
    from hwmodel.measure.racm import Condition


RandomAccessAnswer = Literal["not random-access bound", "random-access bound", "undecided"]


@dataclass(frozen=True)
class RandomAccess:
    """Whether a level of a device is bound by random access, and what that rests on."""

    place: str
    extent: int
    """Bytes."""
    threshold: float
    """Least alpha that is not called bound."""
    condition: Condition
    """As described."""
    alpha: Interval
    answer: RandomAccessAnswer
    flipping: list[tuple[Condition, Interval]]
    """Conditions that do not give the answer of the described one, where that has one."""
    reached_at: int | None
    """The smallest simulated extent whose mean alpha is at least the threshold."""
    longest: int
    """The largest simulated extent."""
    descriptors: tuple[int, float] | None
    """The largest extent at which the DMA engines are the limit, and ns per descriptor."""
    plausible: dict[str, Interval] = field(default_factory=dict)
    """alpha of each plausible variant."""
    turning: list[str] = field(default_factory=list)
    """Variants that do not give the answer of the described device, where that has one."""
    quick: bool = False
    """Whether nothing else was simulated."""
