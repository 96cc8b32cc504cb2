"""Measured times of kernels by shape: what was measured, and what lies between.

A table has rows of one kind of kernel. Some columns must be met exactly (formats, heads); along the
others, its axes, times are interpolated, logarithms in proportion to logarithms, as times are close
to powers of sizes. Outside the measured range there is no answer (NaN).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
_SAME = 1e-9
"""Logarithms that differ by less are of one value."""


class KernelKind(NamedTuple):
    """Columns of a kind of kernel. Names of formats are those of `yaml/formats`, `bf16` for all of
    16 bits; sizes are of one card."""

    exact: tuple[str, ...]
    axes: tuple[str, ...]
    what: str


_ATTENTION = ("kv", "heads", "kv_heads", "head_dim", "window")
_LATENT = ("format", "kv", "hidden", "kept", "heads")
_STATE = ("state", "heads", "head_dim", "key_heads", "width")
KINDS = {
    "product": KernelKind(
        ("format",), ("rows", "columns", "inner"),
        "a matrix product of `rows` tokens: `inner` numbers in, `columns` out",
    ),
    "decode_attention": KernelKind(
        (*_ATTENTION, "block"), ("sequences", "tokens"),
        "decode attention of a layer over `tokens` of KV a sequence, in shuffled blocks of `block`"
        " tokens (0: contiguous); `window` 0: full attention",
    ),
    "prefill_attention": KernelKind(
        _ATTENTION, ("sequences", "tokens"), "causal attention of whole prompts in a layer",
    ),
    "latent_decode": KernelKind(
        _LATENT, ("sequences", "tokens"),
        "latent attention of a layer with its projections (`format`), `kept` numbers a token",
    ),
    "latent_prefill": KernelKind(_LATENT, ("sequences", "tokens"), "the same of whole prompts"),
    "experts": KernelKind(
        ("format", "hidden", "width", "per_token", "experts", "cards"), ("rows",),
        "the routed experts of a layer, each `width` wide in the model and split over `cards`",
    ),
    "all_reduce": KernelKind(("cards",), ("bytes",), "an all-reduce of `bytes`"),
    "all_to_all": KernelKind(
        ("cards", "hidden", "per_token", "experts"), ("rows",),
        "`rows` tokens of each card to the cards of their experts, and back",
    ),
    "state_decode": KernelKind(
        _STATE, ("sequences",),
        "the kernels of a state layer beside its projections: `state` is its kind, `width` the"
        " keys' or the state's",
    ),
    "state_prefill": KernelKind(_STATE, ("sequences", "tokens"), "the same of whole prompts"),
}  # fmt: skip
Columns = Mapping[str, Iterable[Any]]
"""A column a name of `KINDS`, and `us`, microseconds."""


class TimeGrid(NamedTuple):
    """Times on a grid. `axes`: natural logarithms of the values along each, rising; `log_us`:
    logarithms of microseconds, float64 (one axis each), NaN where nothing was measured."""

    axes: tuple[FloatArray, ...]
    log_us: FloatArray

    @classmethod
    def of(cls, points: list[tuple[tuple[float, ...], float]]) -> TimeGrid:
        """Out of (values along the axes, microseconds); of one point the shortest time."""
        places = list(zip(*(place for place, _ in points), strict=True))
        values = [sorted(set(column)) for column in places]
        at = [{value: n for n, value in enumerate(column)} for column in values]
        grid = np.full([len(column) for column in values], np.nan)
        for place, us in points:
            cell = tuple(index[value] for index, value in zip(at, place, strict=True))
            grid[cell] = np.fmin(grid[cell], np.log(us))
        return cls(tuple(np.log(np.array(column, np.float64)) for column in values), grid)

    def us(self, *values: Any) -> Any:
        """Microseconds; the last value may be an array. NaN outside what was measured."""
        block = self.log_us
        for axis, value in zip(self.axes[:-1], values[:-1], strict=True):
            block = _between(axis, block, float(np.log(value)))
        known = np.isfinite(block)
        if not known.any():
            return np.full(np.shape(values[-1]), np.nan)[()]
        axis = self.axes[-1][known]
        wanted = np.log(values[-1])
        wanted = np.where(np.abs(wanted - axis[0]) < _SAME, axis[0], wanted)
        wanted = np.where(np.abs(wanted - axis[-1]) < _SAME, axis[-1], wanted)
        return np.exp(np.interp(wanted, axis, block[known], np.nan, np.nan))


def _between(axis: FloatArray, block: FloatArray, value: float) -> FloatArray:
    """The block at a value along its first axis."""
    high = int(np.searchsorted(axis, value - _SAME))
    if high == len(axis) or (high == 0 and axis[0] > value + _SAME):
        return np.full(block.shape[1:], np.nan)
    if abs(axis[high] - value) < _SAME:
        return np.asarray(block[high])
    share = (value - axis[high - 1]) / (axis[high] - axis[high - 1])
    return np.asarray((1 - share) * block[high - 1] + share * block[high])


class KernelTables:
    """Tables of one card and runtime. Each kind is read when it is first asked for.

    sources: reads the rows of a kind, in parts; kinds that are not there have none."""

    def __init__(self, name: str, sources: Mapping[str, Callable[[], Iterable[Columns]]]) -> None:
        self.name = name
        self._sources = sources
        self._grids: dict[str, dict[tuple[Any, ...], TimeGrid]] = {}

    def us(self, kind: str, exact: tuple[Any, ...], *values: Any) -> Any:
        """Microseconds of a kernel, NaN where it is not in the range measured; `exact` and `values`
        in the order of `KINDS`, the last value a number or an array."""
        grid = self.grids(kind).get(exact)
        if grid is None:
            return np.full(np.shape(values[-1]), np.nan)[()]
        return grid.us(*values)

    def grids(self, kind: str) -> dict[tuple[Any, ...], TimeGrid]:
        """All of a kind, by what must be met exactly."""
        if kind not in self._grids:
            exact, axes, _ = KINDS[kind]
            points: dict[tuple[Any, ...], list[tuple[tuple[float, ...], float]]] = {}
            for columns in self._sources[kind]() if kind in self._sources else ():
                keys = zip(*(columns[name] for name in exact), strict=True)
                places = zip(*(columns[name] for name in axes), strict=True)
                for key, place, us in zip(keys, places, columns["us"], strict=True):
                    points.setdefault(key, []).append((place, us))
            self._grids[kind] = {key: TimeGrid.of(each) for key, each in points.items()}
        return self._grids[kind]
