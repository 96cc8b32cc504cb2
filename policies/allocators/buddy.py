"""A buddy system over token slots: blocks of powers of two, halved and rejoined.

Knowlton 1965; Knuth, The Art of Computer Programming vol. 1, 2.5. Any number of slots will do: it
is cut into the blocks of its binary digits, the largest first, which never join one another.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from policies.allocators.places import Place


def power_of_two(tokens: int) -> int:
    """The smallest power of two that is not below `tokens` (at least 1)."""
    return 1 << (tokens - 1).bit_length()


class Buddy:
    """Slots [0, size). A block of n slots starts at a multiple of n; its buddy is at start XOR
    n."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError("a buddy system has at least one slot")
        self.size = size
        self.free = size
        """Free slots."""
        self._held: dict[int, int] = {}
        self._free: dict[int, list[int]] = {1 << bit: [] for bit in range(size.bit_length())}
        start = 0
        for block in reversed(self._free):
            if size & block:
                self._free[block].append(start)
                start += block

    @property
    def largest_hole(self) -> int:
        """Slots of the largest free block."""
        return max((block for block, starts in self._free.items() if starts), default=0)

    @property
    def largest_block(self) -> int:
        """Slots of the largest block there can ever be."""
        return max(self._free)

    def take(self, size: int) -> int | None:
        """Allocate a block of `size` slots; its start, or None (nothing changes) if none is free.

        The smallest free block that suffices is halved, the lowest of its size. Raises ValueError
        if `size` is no power of two.
        """
        if size < 1 or size & (size - 1):
            raise ValueError(f"a block has a power of two of slots, not {size}")
        block = size
        while block in self._free and not self._free[block]:
            block *= 2
        if block not in self._free:
            return None
        start = self._free[block].pop(0)
        while block > size:
            block //= 2
            insort(self._free[block], start + block)
        self._held[start] = size
        self.free -= size
        return start

    def place(self, slots: int) -> Place | None:
        """As `take`, as a place."""
        start = self.take(slots)
        return None if start is None else Place(start, slots)

    def give_back(self, start: int, size: int) -> None:
        """Free the block of `size` slots at `start`, and join it with its buddy as far as that
        goes.

        Raises ValueError if it is not held.
        """
        if self._held.get(start) != size:
            raise ValueError(f"slots [{start}, {start + size}) are no block that is held")
        del self._held[start]
        self.free += size
        while self._remove(start ^ size, size):
            start &= ~size
            size *= 2
        insort(self._free[size], start)

    def _remove(self, start: int, size: int) -> bool:
        """Take a block off its free list; whether it was there."""
        starts = self._free[size]
        at = bisect_left(starts, start)
        if at == len(starts) or starts[at] != start:
            return False
        del starts[at]
        return True
