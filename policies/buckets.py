"""Bucket bounds that follow the realised lengths: quantiles of a sliding window."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from policies.requests import IntArray


def align_up(tokens: int, align: int) -> int:
    """The next multiple of `align` that is not below `tokens`."""
    return -(-tokens // align) * align


class Buckets:
    """B bounds in tokens, ascending: the i-th is the quantile i/B of the last `window` lengths.

    The quantile is the smallest length that i/B of the window do not exceed, rounded up to `align`
    and held below `longest`. Bounds change after every `refresh` lengths. Until the first refresh
    they part [0, longest] evenly (assumed: the paper does not say).
    """

    def __init__(
        self, count: int, longest: int, window: int = 10_000, refresh: int = 1_000, align: int = 64
    ) -> None:
        self.count = count
        self.refresh = refresh
        self.align = align
        self.refreshes = 0
        self._longest = align_up(longest, align)
        self._seen = 0
        self._window: IntArray = np.zeros(window, np.int64)
        self.bounds = self._rounded([longest * i / count for i in range(1, count + 1)])

    def observe(self, length: int) -> bool:
        """Take in one realised length; True if the bounds were set anew."""
        self._window[self._seen % len(self._window)] = length
        self._seen += 1
        if self._seen % self.refresh:
            return False
        shares = np.arange(1, self.count + 1) / self.count
        lengths = self._window[: min(self._seen, len(self._window))]
        self.bounds = self._rounded(np.quantile(lengths, shares, method="inverted_cdf").tolist())
        self.refreshes += 1
        return True

    def find(self, length: float) -> int:
        """Index of the smallest bucket whose bound covers `length`; `count` if none does."""
        return bisect_left(self.bounds, length)

    def _rounded(self, lengths: list[float]) -> tuple[int, ...]:
        return tuple(
            min(max(align_up(int(np.ceil(length)), self.align), self.align), self._longest)
            for length in lengths
        )
