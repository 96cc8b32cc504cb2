"""What drives channels: a record of numbers and of addresses of arrays, so that Python, jitted code
and C call the same functions. Each source of requests has a type of it, with fields of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.np.arrayobj import make_array, populate_array
from numpy.typing import NDArray

DONE, WANTS_ROOM, LOG_KEPT, MORE = range(4)
"""Why a driver returns: it is through; tables of the source are too small; a log is full. After the
last two who called it makes room and calls again. MORE, of a part: it goes on."""

SCALARS = {
    "channels": "channels",
    "now": "tick up to which the source has run",
    "lead": "ticks by which channels run ahead of it",
    "log_rows": "rows of `log`; 0: commands are not logged",
    "log_fields": "their length: `hwmodel.kernel.channel.advance` says of what",
    "completion_rows": "rows of `completions`",
    "completion_ticks": "their length, a power of two; 1: nobody waits",
}
"""Of every host: unit and meaning."""
ARRAYS = {
    "advance": "function that runs a channel (`hwmodel.kernel.channel.runner`)",
    "constants": "a CONSTANTS record",
    "states": "a CHANNEL record a channel",
    "log": "commands of the channel that runs",
    "completions": "bytes returned, by who waits and tick",
}
"""Addresses of every host."""


def host_type(scalars: Mapping[str, str], arrays: Mapping[str, str]) -> np.dtype[np.void]:
    """A type of hosts whose source has these fields too; all are 64 bits, addresses last."""
    return np.dtype([(name, np.int64) for name in (*SCALARS, *scalars, *ARRAYS, *arrays)])


def address_of(array: NDArray[Any]) -> int:
    """Where an array's first element lies."""
    return int(array.__array_interface__["data"][0])


intrinsic = cast(Any, extending.intrinsic)


@intrinsic
def array_at(typingctx: Any, address: Any, shape: Any, dtype: Any) -> Any:
    """The array of `shape` that lies at an address (`numba.carray` counts references)."""
    kind = types.Array(dtype.dtype, len(shape), "C")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = make_array(kind)(context, builder)
        number = context.get_value_type(types.intp)
        size = ir.Constant(number, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        lengths = cgutils.unpack_tuple(builder, args[1])
        strides = [size]
        for length in lengths[:0:-1]:
            strides.insert(0, builder.mul(strides[0], length))
        data = builder.inttoptr(args[0], array.data.type)
        populate_array(array, data, lengths, strides, size, None)
        return array._getvalue()

    return kind(types.int64, shape, dtype), generate


@intrinsic
def call_at(typingctx: Any, address: Any, arguments: Any) -> Any:
    """Call the C function at an address, of int64 arguments and result."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = context.get_value_type(types.int64)
        values = cgutils.unpack_tuple(builder, args[1])
        kind = ir.FunctionType(number, [number] * len(values))
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)

    return types.int64(types.int64, types.UniTuple(types.int64, len(arguments))), generate
