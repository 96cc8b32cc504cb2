"""What a host hands to channels and gets back: accesses, checked; completions; a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodel.kernel.limits import Int
from hwmodel.measure.trace import MOST_TICKS

_NONE = np.zeros(0, np.int64)


class Completions(NamedTuple):
    """Completed accesses by tick, int64 (n,); the order of those of one tick is not defined."""

    tag: Int
    tick: Int


class Waiting(NamedTuple):
    """Accesses that have not begun, (n,): int64, `write` uint8."""

    tick: NDArray[Any]
    address: NDArray[Any]
    size: NDArray[Any]
    write: NDArray[Any]
    tag: NDArray[Any]


NO_WAITING = Waiting(_NONE, _NONE, _NONE, np.zeros(0, np.uint8), _NONE)
NO_COMPLETIONS = Completions(_NONE, _NONE)


class Lent(NamedTuple):
    """A port for jitted code: what `call(address, to, how)` reads and writes."""

    call: Any
    """`hwmodel.kernel.sources.calls.run_calls`; jitted code may call it as a global."""
    address: int
    port: NDArray[np.void]
    """(1,) of `hwmodel.kernel.sources.port.PORT`."""
    waiting: Waiting
    """(n,) each; the host fills rows and sets `waiting`, with `staged`, `done`, `settled` 0."""
    done: Completions
    """(n,) each, of which `done` are written."""


@dataclass(frozen=True)
class Snapshot:
    """All that changes in `Channels`; may be pickled."""

    constants: NDArray[np.void]
    tables: dict[str, NDArray[Any]]
    waiting: Waiting
    held: Completions
    kept: tuple[Int, ...]
    submitted: int


def checked(given: dict[str, ArrayLike], tags: int, now: int, capacity: int) -> Waiting:
    """Accesses from what a host gives: arrays of one length, or one number for all.

    tags: the first tag where none are given; now: the earliest tick; capacity: bytes. Raises
    ValueError with what is wrong, in a line.
    """
    arrays = {name: _whole(name, value) for name, value in given.items()}
    lengths = {name: len(array) for name, array in arrays.items() if array.ndim}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"arrays are of unequal length: {shown}")
    count = max(lengths.values()) if lengths else 1
    if count:
        _check(arrays["tick"], arrays["address"], arrays["size"], now, capacity)
    arrays.setdefault("tag", np.arange(tags, tags + count))
    arrays["write"] = arrays["write"].astype(bool).view(np.uint8)
    return Waiting(
        **{
            name: array.copy() if array.ndim else np.full(count, array)
            for name, array in arrays.items()
        }
    )


def _whole(name: str, value: ArrayLike) -> NDArray[Any]:
    """Numbers as int64 (`write`: of any kind), shape (n,) or ()."""
    array = np.asarray(value)
    if array.size == 0 and array.ndim == 1:
        return _NONE
    if array.ndim > 1 or array.dtype.kind not in "iub":
        raise ValueError(f"{name}: expected whole numbers of 64 bits, one or a row of them")
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name}: {array.max()} does not fit into 64 bits with a sign")
    return array if name == "write" else array.astype(np.int64, copy=False)


def _check(tick: Int, address: Int, size: Int, now: int, capacity: int) -> None:
    if tick.min() < now:
        at, value = _first(tick < now, tick)
        raise ValueError(f"tick {value}{at} is before now, which is {now}")
    if tick.max() > MOST_TICKS:
        at, value = _first(tick > MOST_TICKS, tick)
        raise ValueError(f"tick {value}{at} is beyond {MOST_TICKS}")
    if size.min() < 1:
        at, value = _first(size < 1, size)
        raise ValueError(f"size {value}{at}; expected at least 1 B")
    if address.min() < 0 or address.max() > capacity - size.max():
        outside = (address < 0) | (address > capacity - size)
        if outside.any():
            at, start = _first(outside, address)
            length = _first(outside, size)[1]
            raise ValueError(
                f"{length} B from address {start:#x}{at} lie outside the {capacity} B of the memory"
            )


def _first(wrong: NDArray[np.bool_], values: Int) -> tuple[str, int]:
    """Where the first mistake is, in words, and the value there; one value stands for all."""
    at = int(np.argmax(wrong))
    value = int(values[at] if values.ndim else values)
    return f" at index {at}" if wrong.ndim else "", value
