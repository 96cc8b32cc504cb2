"""What is measured: the access patterns, in the order of the report, and the bytes that count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WORD = 8
"""Bytes of a word: extents are multiples of it."""
LINE = 64
"""Bytes of a cache line, which dependent reads step by."""
RUN = 4096
"""Bytes of an extent of a run, as a kernel reads a tile."""
SIZES = (
    32, 64, 80, 128, 256, 512, 576, 1024, 1088, 2048, 4096, 16 << 10, 64 << 10, 256 << 10, 2 << 20,
)  # fmt: skip
"""Bytes of random extents: powers of two, and some of compressed or padded KV between them."""
STRIDES = (128, 256, 1024, 4096, 4096 + LINE)
ROWS = (256, 1024, 4096)
"""Bytes of rows gathered by a list: a head of a token, its K, a row of an embedding."""
BLOCKS = (4 << 10, 16 << 10, 64 << 10)
"""Bytes of K (or V) of one layer in a block: a head's, or all heads', of 16 tokens."""
QUICK = (64, 256, 1024, 4096, 64 << 10)
"""Those of all the sizes above that a quick measurement keeps."""
MIXES = {(0, 1): "writes", (1, 1): "copy (1R:1W)", (2, 1): "two reads, a write (2R:1W)"}
"""Arrays read and written -> what it is called."""
Kind = Literal["walk", "random", "list", "blocks", "run"]


@dataclass(frozen=True)
class AccessPoint:
    """Extents of `size` bytes. blocks: K and V of blocks in turn, anywhere in two planes; run: the
    same, one after another."""

    kind: Kind
    size: int
    stride: int | None = None
    mix: tuple[int, int] = (1, 0)
    """Arrays read and written."""

    @property
    def name(self) -> str:
        size = told(self.size)
        if self.mix != (1, 0):
            return MIXES[self.mix]
        if self.kind == "walk":
            apart = f"{size} every {told(self.stride or 0)}"
            return "reads in order" if self.stride is None else apart
        words = {
            "random": f"random {size}", "list": f"rows of {size} by a list",
            "blocks": f"K and V in blocks of {size}", "run": f"K and V of {size} in one run",
        }  # fmt: skip
        return words[self.kind]

    @property
    def random(self) -> bool:
        """Whether extents are anywhere in memory."""
        return self.kind in ("random", "list", "blocks")

    def moved(self, extents: int) -> int:
        """Bytes read and written of so many extents; entries of a list do not count."""
        return extents * self.size * sum(self.mix)


def told(size: int) -> str:
    """1536 -> 1.5 KiB."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % (unit // 2) == 0:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def access_points(quick: bool = False) -> list[AccessPoint]:
    """All that is measured but latencies; `quick`: about half of it."""
    points = [AccessPoint("walk", RUN), *(AccessPoint("walk", RUN, mix=mix) for mix in MIXES)]
    points += [AccessPoint("random", size) for size in SIZES if not quick or size in QUICK]
    points += [AccessPoint("walk", LINE, each) for each in STRIDES if not quick or each in QUICK]
    points += [AccessPoint("list", size) for size in ROWS if not quick or size in QUICK]
    kinds: tuple[Kind, Kind] = ("blocks", "run")
    return points + [
        AccessPoint(kind, size) for size in BLOCKS if not quick or size in QUICK for kind in kinds
    ]
