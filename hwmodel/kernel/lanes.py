"""Instructions on the banks of a pseudo-channel at once, without branches: sixteen at a time in
vector lanes, which banks by a bit mask.

`values` is a row of a state array with a number for each bank, `start` the pseudo-channel's first
bank in it. Rows are PADDING longer than banks, for the last sixteen may start at the last bank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.np.arrayobj import make_array

from hwmodel.kernel.jit import called, inlined
from hwmodel.kernel.limits import LANES, NEVER, Int

PADDING = LANES
BANKS_OF_PC = 64
"""Banks of a pseudo-channel, at most: a mask of them is one int64."""
AGE_BITS = 49
"""Of the order of entry (below 2 ** 43) and the bank of a request."""
FAR = 1 << 13
"""Ticks of waiting that fit above AGE_BITS."""
NOTHING = (1 << 63) - 1
"""Above every key."""
_UPPER = (1 << (64 - LANES)) - 1
"""Masks are signed, and shifted right keep their sign: `and` with this clears the bits that come
in from the left."""
_INT = ir.IntType(64)
_VECTOR = ir.VectorType(_INT, LANES)
_FOUR = ir.VectorType(_INT, 4)
_BITS = ir.IntType(LANES)

intrinsic = cast(Any, extending.intrinsic)


@intrinsic
def _lowest_bit(typingctx: Any, mask: Any) -> Any:
    """Index of the lowest set bit of a non-zero int64 (LLVM cttz)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


def _load(
    context: Any, builder: Any, kind: Any, array: Any, start: Any, vector: Any = _VECTOR
) -> tuple[Any, Any]:
    """(pointer, LANES values) from element `start` of an array on."""
    data = builder.gep(make_array(kind)(context, builder, array).data, [start])
    pointer = builder.bitcast(data, vector.as_pointer())
    return pointer, builder.load(pointer, align=8)


def _splat(builder: Any, value: Any, vector: Any = _VECTOR) -> Any:
    """`value` in every lane."""
    undefined = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, undefined, order)


def _chosen(builder: Any, mask: Any) -> Any:
    """The lowest LANES bits of `mask`, one a lane."""
    return builder.bitcast(builder.trunc(mask, _BITS), ir.VectorType(ir.IntType(1), LANES))


def _larger(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.icmp_signed(">", one, other), one, other)


def _least(builder: Any, vector: Any) -> Any:
    """The least of LANES values."""
    kind, name = ir.FunctionType(_INT, [_VECTOR]), f"llvm.vector.reduce.smin.v{LANES}i64"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])


@intrinsic
def _first_of_lanes(typingctx: Any, ready: Any, age: Any, start: Any, mask: Any, at: Any) -> Any:
    """The least key (ticks from `at` to readiness, age) of LANES banks."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ticks = _load(context, builder, signature.args[0], args[0], args[2])[1]
        ages = _load(context, builder, signature.args[1], args[1], args[2])[1]
        ticks = builder.sub(ticks, _splat(builder, args[4]))
        far, now = _splat(builder, _INT(FAR)), _splat(builder, _INT(0))
        ticks = _larger(builder, ticks, now)
        ticks = builder.select(builder.icmp_signed("<", ticks, far), ticks, far)
        keys = builder.or_(builder.shl(ticks, _splat(builder, _INT(AGE_BITS))), ages)
        nothing = _splat(builder, _INT(NOTHING))
        return _least(builder, builder.select(_chosen(builder, args[3]), keys, nothing))

    number = types.int64
    return number(ready, age, number, number, number), generate


@intrinsic
def _least_of_lanes(typingctx: Any, values: Any, start: Any, mask: Any) -> Any:
    """The least of the values of LANES banks."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _load(context, builder, signature.args[0], args[0], args[1])[1]
        nothing = _splat(builder, _INT(NOTHING))
        return _least(builder, builder.select(_chosen(builder, args[2]), vector, nothing))

    return types.int64(values, types.int64, types.int64), generate


@intrinsic
def _postpone_lanes(typingctx: Any, values: Any, start: Any, mask: Any, at: Any) -> Any:
    """As `postpone`, of LANES values."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, vector = _load(context, builder, signature.args[0], args[0], args[1])
        never = _splat(builder, _INT(NEVER))
        at = builder.select(_chosen(builder, args[2]), _splat(builder, args[3]), never)
        # a store of all lanes: what a masked one stored would be slow to load
        builder.store(_larger(builder, vector, at), pointer, align=8)
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, types.int64), generate


@intrinsic
def _postpone_four(typingctx: Any, values: Any, start: Any, at: Any) -> Any:
    """Four values from `start` on become at least `at`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, vector = _load(context, builder, signature.args[0], args[0], args[1], _FOUR)
        builder.store(_larger(builder, vector, _splat(builder, args[2], _FOUR)), pointer, align=8)
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64), generate


def _postponing(vector: Any) -> Any:
    """Makes the first values of an array at least their delays after a tick."""

    @intrinsic
    def postponing(typingctx: Any, values: Any, delays: Any, tick: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            zero = _INT(0)
            pointer, now = _load(context, builder, signature.args[0], args[0], zero, vector)
            _, delay = _load(context, builder, signature.args[1], args[1], zero, vector)
            at = builder.add(delay, _splat(builder, args[2], vector))
            builder.store(_larger(builder, now, at), pointer, align=8)
            return context.get_dummy_value()

        return types.void(values, delays, types.int64), generate

    return postponing


lowest_bit: Callable[[int], int] = _lowest_bit
"""Index of the lowest set bit of a non-zero int64; for kernels only."""
postpone_four: Callable[[Int, int, int], None] = _postpone_four
"""Four values from an element on become at least so many ticks; for kernels only."""
postpone_all: Callable[[Int, Int, int], None] = _postponing(_VECTOR)
"""values (LANES,) become at least `tick` + delays (LANES,); for kernels only."""
postpone_half: Callable[[Int, Int, int], None] = _postponing(ir.VectorType(_INT, LANES // 2))
"""The same of the first half of them."""


@inlined
def least(values: Int, start: int, mask: int) -> int:
    """The least of the values of the banks of a mask that is not empty."""
    smallest = NOTHING
    while mask != 0:
        smallest = min(smallest, _least_of_lanes(values, start, mask))
        mask = (mask >> LANES) & _UPPER
        start += LANES
    return smallest


@called
def _far_ready(ready: Int, age: Int, start: int, mask: int) -> tuple[int, int, int]:
    """As `first_ready`, where that is far from now."""
    tick, oldest, bank = NOTHING, NOTHING, -1
    while mask != 0:
        other = start + lowest_bit(mask)
        mask &= mask - 1
        if ready[other] < tick or (ready[other] == tick and age[other] < oldest):
            tick, oldest, bank = ready[other], age[other], other
    return tick, bank, oldest


@inlined
def first_ready(ready: Int, age: Int, start: int, mask: int, at: int) -> tuple[int, int, int]:
    """(tick, bank, age): the earliest of max(ready, `at`) over the banks of a mask that is not
    empty, and of the banks that have it the one of the least age (`packed_age`).

    Each bank has one key, ticks to wait << AGE_BITS | age, so that one minimum finds the tick, the
    oldest and, in the low bits of the age, the bank.
    """
    if mask & (mask - 1) == 0:  # one bank, as where rows are read in order
        bank = start + lowest_bit(mask)
        return max(ready[bank], at), bank, age[bank]
    key, first, rest = NOTHING, start, mask
    while rest != 0:
        key = min(key, _first_of_lanes(ready, age, first, rest, at))
        rest = (rest >> LANES) & _UPPER
        first += LANES
    if key >> AGE_BITS == FAR:
        return _far_ready(ready, age, start, mask)
    oldest = key & ((1 << AGE_BITS) - 1)
    return at + (key >> AGE_BITS), start + (key & (BANKS_OF_PC - 1)), oldest


@inlined
def packed_age(seq: int, bank: int) -> int:
    """Order of entry and bank (in the pseudo-channel) of a request, in AGE_BITS: ages compare as
    orders of entry do, and name their bank."""
    return seq * BANKS_OF_PC + bank


@inlined
def postpone(values: Int, start: int, mask: int, at: int) -> None:
    """The values of the banks of a mask become at least `at`."""
    while mask != 0:
        _postpone_lanes(values, start, mask, at)
        mask = (mask >> LANES) & _UPPER
        start += LANES
