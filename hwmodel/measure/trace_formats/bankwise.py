"""`R 0x1f40` or `W 0x1f40`."""

from __future__ import annotations

from hwmodel.measure.trace_format import LETTERS, Format, lines_of_words, two_words

FORMAT = Format(
    "bankwise", "R 0x1f40", "times; writes of less than a burst become whole ones",
    two_words(LETTERS), lines_of_words("R", "W"),
)  # fmt: skip
