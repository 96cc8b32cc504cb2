"""One search: where a yes turns into a no over a range, by halving what is left of it.

A search is a generator. It yields the positions that it asks about, is sent the answers, and
returns the bracket: the last position on either side. The decision rule is the caller's: a
simulation at once (`settled`: goodput, size), or results that are there so far (`pending`:
break-evens, ties), so that a search that was interrupted goes on as if it had not been.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

Bracket = tuple[float, float]
Search = Generator[float, bool, Bracket]


class NoRate(Exception):
    """No rate attains the objective, or every one does."""


def halvings(count: int) -> Search:
    """Positions from 0 to 1: both ends, then `count` times the middle of what is left. (0, 1) where
    the answers at both ends agree."""
    first = yield 0.0
    last = yield 1.0
    low, high = 0.0, 1.0
    for _ in range(count if first != last else 0):
        middle = (low + high) / 2
        if (yield middle) == last:
            high = middle
        else:
            low = middle
    return low, high


def largest(guess: float, tolerance: float, doublings: int) -> Search:
    """The largest rate that attains something: the guess is doubled or halved, at most `doublings`
    times, then the logarithm bisected within the relative tolerance. Raises NoRate."""
    low, high = guess, guess
    if (yield guess):
        while (yield (high := 2 * high)):
            low = high
            if high >= guess * 2**doublings:
                raise NoRate(
                    f"the objective is attained even at {high:.3g} requests/s, {high / guess:.0f} "
                    "times the capacity: ask for more requests"
                )
    else:
        while not (yield (low := low / 2)):
            high = low
            if low <= guess / 2**doublings:
                raise NoRate(f"no rate attains the objective, not even {low:.3g} requests/s")
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        if (yield middle):
            low = middle
        else:
            high = middle
    return low, high


def least(meets: Callable[[int], bool], lowest: int, most: int, guess: int) -> int | None:
    """The least whole number from `lowest` to `most` that meets something which all larger ones
    do; None where `most` does not. Tried first is the guess, then what lies 1, 2, 4, ... from
    it."""
    low, high, at, step = lowest - 1, most + 1, min(max(guess, lowest), most), 1
    while high - low > 1:
        low, high = (low, at) if meets(at) else (at, high)
        if low < lowest:
            at = max(high - step, lowest)
        else:
            at = min(low + step, most) if high > most else (low + high) // 2
        step *= 2
    return high if high <= most else None


def settled(search: Search, decide: Callable[[float], bool]) -> Bracket:
    """The bracket, each answer as it is asked for. Raises what the search and `decide` raise."""
    try:
        position = next(search)
        while True:
            position = search.send(decide(position))
    except StopIteration as done:
        bracket: Bracket = done.value
        return bracket


def pending(search: Search, known: Callable[[float], bool | None]) -> float | Bracket:
    """The first position whose answer is not known (None); the bracket where all are."""
    try:
        position = next(search)
        while (answer := known(position)) is not None:
            position = search.send(answer)
        return position
    except StopIteration as done:
        bracket: Bracket = done.value
        return bracket
