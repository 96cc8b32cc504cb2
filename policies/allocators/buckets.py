"""Bucket bounds that follow the realised lengths: quantiles of a sliding window."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from policies.allocators.partition import best_partition
from policies.requests.requests import IntArray


def align_up(tokens: int, align: int) -> int:
    """The next multiple of `align` that is not below `tokens`."""
    return -(-tokens // align) * align


@dataclass
class _Fresh:
    """Bounds that are computed and not yet in force; `due_s` is known from the next clock on."""

    bounds: tuple[int, ...]
    due_s: float | None = None


Balance = Literal["requests", "residents", "slots", "least_unused"]
BALANCES: tuple[Balance, ...] = get_args(Balance)


class Buckets:
    """B bounds in tokens, ascending: the i-th is the quantile p_i of the last `window` lengths.

    The quantile is the smallest length that a share p_i of the window does not exceed, rounded up
    to `align` and held below `longest`. `levels` are the p_i. Where none are given the buckets have
    equally many requests (p_i = i/B), or equally many at a time, or equally many slots in use at a
    time: a request stays for about as many steps as it has tokens, so these are quantiles of the
    lengths weighted by themselves, or by their squares; or `least_unused`, the bounds that would
    have left the least unused of what the window's lengths reserve (`partition.py`). Bounds are
    computed anew after every `refresh` lengths (0: never), `most` times at most (None: no limit),
    and are in force `delay_s` later, in the order they were computed in. Before that they are
    `first`, or part [0, longest] evenly, or are what `begin` made them (assumed: the paper does not
    say).
    """

    def __init__(
        self, count: int, longest: int, window: int = 10_000, refresh: int = 1_000, align: int = 64,
        *, levels: Sequence[float] = (), balance: Balance = "requests",
        first: Sequence[float] = (), delay_s: float = 0.0, most: int | None = None,
    ) -> None:  # fmt: skip
        self.count = count
        self.refresh = refresh
        self.align = align
        self.delay_s = delay_s
        self.refreshes = 0
        """Refreshes that are in force."""
        self._longest = align_up(longest, align)
        self._levels = list(levels)
        self._balance = balance
        self._left = math.inf if most is None else most
        self._seen = 0
        self._window: IntArray = np.zeros(window, np.int64)
        self._fresh: deque[_Fresh] = deque()
        self.bounds = self._rounded(first or [longest * i / count for i in range(1, count + 1)])

    @property
    def due_s(self) -> float:
        """When `clock` sets bounds anew, inf where nothing is under way. Known after a clock."""
        due = self._fresh[0].due_s if self._fresh else None
        return math.inf if due is None else due

    def begin(self, lengths: IntArray) -> None:
        """The first bounds are quantiles of these lengths, which are not in the window."""
        self.bounds = self._quantiles(lengths)

    def observe(self, length: int) -> bool:
        """Take in one realised length; True if the bounds were set anew."""
        self._window[self._seen % len(self._window)] = length
        self._seen += 1
        if not self.refresh or self._seen % self.refresh or not self._left:
            return False
        self._left -= 1
        lengths = self._window[: min(self._seen, len(self._window))]
        self._fresh.append(_Fresh(self._quantiles(lengths)))
        if self.delay_s:
            return False
        self._adopt()
        return True

    def clock(self, now_s: float) -> bool:
        """It is `now_s` seconds; True if the bounds were set anew.

        A refresh counts its delay from the first clock after the length that set it off, which is
        the end of the step that the length was realised in.
        """
        before = self.refreshes
        for fresh in self._fresh:
            if fresh.due_s is None:
                fresh.due_s = now_s + self.delay_s
        while self.due_s <= now_s:
            self._adopt()
        return self.refreshes > before

    def find(self, length: float) -> int:
        """Index of the smallest bucket whose bound covers `length`; `count` if none does."""
        return bisect_left(self.bounds, length)

    def _adopt(self) -> None:
        self.bounds = self._fresh.popleft().bounds
        self.refreshes += 1

    def _quantiles(self, lengths: IntArray) -> tuple[int, ...]:
        if self._levels:
            return self._rounded(np.quantile(lengths, self._levels, method="inverted_cdf").tolist())
        if self._balance == "least_unused":
            bounds = best_partition(lengths, self.count, self.align).bounds
            return self._rounded([*bounds, *bounds[-1:] * (self.count - len(bounds))])
        rising = np.sort(lengths)
        held = np.cumsum(rising ** BALANCES.index(self._balance))
        parts = -(-held[-1] * np.arange(1, self.count + 1) // self.count)
        return self._rounded(rising[np.searchsorted(held, parts)].tolist())

    def _rounded(self, lengths: Sequence[float]) -> tuple[int, ...]:
        return tuple(
            min(max(align_up(int(np.ceil(length)), self.align), self.align), self._longest)
            for length in lengths
        )


def equal_classes(longest: int, classes: int) -> tuple[int, ...]:
    """Longest length of each of the classes that part [1, longest] into equal widths, as far as
    whole tokens allow."""
    return tuple(-(-longest * nth // classes) for nth in range(1, classes + 1))
