"""What a KV format has beside the numbers of each head: outliers, scales of whole vectors, scales
along tokens; and what quantising costs.

Numbers of a head with the scales of their blocks lie inline (`NumberFormat.vector_bytes`). What is
here lies apart: a sparse list of entries for each head, whose length varies from token to token,
and scales for K (or V) of all heads of a token.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hwmodel.description.description import Strict, checked

Count = Annotated[int, Field(ge=1)]
Bits = Annotated[int, Field(ge=0, le=4096)]
Ops = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Place = Literal["apart", "behind"]


class Outliers(Strict):
    """Numbers that take more bits than the others."""

    share: Annotated[float, Field(gt=0, lt=1)]
    """Of all numbers."""
    entry_bits: Annotated[int, Field(ge=8, le=256, multiple_of=8)]
    """Of an entry in the sparse list: what identifies the number, and what of it is not in the
    dense part. Whole bytes, as entries of one token follow those of the one before."""


class TokenChunk(Strict):
    """What each channel has for so many tokens in common, such as scales of K a channel."""

    tokens: Count
    """Of a chunk."""
    bits: Annotated[int, Field(ge=1)]
    """Of each channel in a chunk."""


class KvStructure(Strict):
    """What lies beside the numbers of a head."""

    outliers: Outliers | None = None
    sparse: Place = "apart"
    """Where a unit's sparse entries lie: in a region of their own, or behind its dense numbers."""
    vector_bits: Bits = 0
    """Of K (or V) of all heads of a token: scales, and channels that are kept wider. A tensor-
    parallel card has its own for the heads it holds."""
    chunk: TokenChunk | None = None

    @checked
    def _says_something(self) -> None:
        if self.outliers is None and not self.vector_bits and self.chunk is None:
            raise ValueError("expected outliers, vector_bits or chunk")
        if self.sparse == "behind" and self.outliers is None:
            raise ValueError("sparse: of outliers, and this has none")

    def scale_bits(self, width: int) -> float:
        """Mean bits that are not sparse entries of K (or V) of a token, `width` numbers."""
        along = 0.0 if self.chunk is None else self.chunk.bits / self.chunk.tokens
        return width * along + self.vector_bits

    def sparse_bits(self, width: int) -> float:
        """Mean bits of the sparse entries of so many numbers."""
        return (
            0.0 if self.outliers is None else width * self.outliers.share * self.outliers.entry_bits
        )


class Quantising(Strict):
    """Operations of vector units to store a number and to load one, where the cores do it."""

    store_ops: Ops = 0.0
    """To store a number."""
    load_ops: Ops = 0.0
    """To load one."""
