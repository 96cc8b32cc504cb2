"""What every contiguous space of token slots offers: places, taken and given back.

Spaces are in `policies.allocators.arena`, `slabs` and `buddy`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

SpaceKind = Literal["arena", "slabs"]
"""One arena with holes of any size, or slabs of equal blocks cut on demand."""


class Place(NamedTuple):
    """A run of slots."""

    start: int
    size: int


class SlotSpace(Protocol):
    """Contiguous slots to take places from."""

    free: int

    @property
    def largest_hole(self) -> int: ...

    def place(self, slots: int) -> Place | None:
        """A place of `slots` slots or more; None (nothing changes) if there is none."""

    def give_back(self, start: int, size: int) -> None: ...
