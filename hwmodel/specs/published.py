"""What is published of a device beside what is simulated: it is held against the description, or
remarked on, and changes no result and no hash."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hwmodel.description.description import Strict, checked
from hwmodel.description.units import BytesPerSecond, PositiveBytes, TransfersPerSecond

PEAK_WITHIN = 0.03
"""A published peak may be so far from rate x width: Apple sells 819.2 GB/s as 800."""
DESCRIBED_WITHIN = 0.005
"""What is described may be so far from rate x width, for the rounding of a clock."""
TRAFFIC = 0.05
"""On-chip memory that could keep less of a step's weights than this counts as none (assumed)."""


class PublishedBus(Strict):
    """The memory interface as it is published."""

    rate: TransfersPerSecond
    """Of a data pin."""
    width: Annotated[int, Field(ge=1)]
    """Data pins, bits."""
    peak: Annotated[BytesPerSecond, Field(gt=0)]
    """As it is sold."""

    @property
    def computed(self) -> float:
        """Rate x width, bytes a second."""
        return self.rate * self.width / 8

    @checked
    def _peak_is_rate_times_width(self) -> None:
        if abs(self.computed / self.peak - 1) > PEAK_WITHIN:
            raise ValueError(
                f"peak: {self.peak / 1e9:,.6g} GB/s is published, rate x width is"
                f" {self.computed / 1e9:,.6g} GB/s; expected within {PEAK_WITHIN:.0%}"
            )


class OnChip(Strict):
    """The largest memory on the chip that all its units share, or what their own come to."""

    size: PositiveBytes
    """Of all of it."""
    managed_by: Literal["hardware", "software"]
    """A cache, or a scratchpad that software may keep weights in."""

    @property
    def matters_below(self) -> float:
        """Bytes of weights a step below which it changes what DRAM reads. A cache keeps nothing of
        what is read in turn and does not fit (LRU); a scratchpad may keep size / bytes of it."""
        return self.size / (TRAFFIC if self.managed_by == "software" else 1)

    def remark(self, model: str, step_bytes: int) -> str:
        """When it changes the traffic, and what a step of this model reads."""
        kind = "a cache" if self.managed_by == "hardware" else "a scratchpad"
        return (
            f"{self.size / 1e6:,.0f} MB on chip, {kind}: changes what DRAM reads where a step reads"
            f" less than {self.matters_below / 1e9:,.2f} GB (not simulated); {model} reads"
            f" {step_bytes / 1e9:.2f} GB, {step_bytes / self.size:,.0f} times what it holds"
        )
