"""`LD 0x1f40` or `ST 0x1f40`: the LoadStoreTrace of Ramulator 2.0 and 2.1, which maps the address
itself (src/ramulator/frontend/impl/memory_trace/loadstore_trace.cpp)."""

from __future__ import annotations

from hwmodel.kernel.kernel_names import READ, WRITE
from hwmodel.measure.trace_format import Format, lines_of_words, two_words

FORMAT = Format(
    "ramulator", "LD 0x1f40", "times; writes of less than a burst become whole ones",
    two_words({b"LD": READ, b"ST": WRITE}), lines_of_words("LD", "ST"),
)  # fmt: skip
