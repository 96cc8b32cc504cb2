"""A host's port to channels: a record of numbers and of addresses of arrays, so that Python, jitted
code and C call the same function (`hwmodel.kernel.completion.run`)."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils
from numba.np.arrayobj import make_array, populate_array

LOG_LINES = 256
"""Commands of a channel between two looks at which accesses they serve."""
AT_ONCE = 256
"""Runs that a channel's inbox is given at once, and a channel's share of those staged at once."""
TO_TICK, TO_COMPLETION, TO_END, TO_INPUT = range(4)
"""How far a call runs: to a tick; to the first completion before it; until all is served; as far as
is known before more accesses are given (`now` stays)."""
DONE, WANTS_ROOM, LOG_KEPT, MORE = range(4)
"""Why a call returns: it is through; `accesses` or `runs` are too few; `kept` is full. After the
last two the host makes room and calls again."""

SCALARS = {
    "channels": "channels",
    "interleave": "bytes of a block that lies in one channel",
    "hash": "HASH_NONE, HASH_ROTATE or HASH_XOR",
    "burst": "bytes of a burst, a power of two",
    "burst_bits": "its binary logarithm",
    "capacity": "bytes of the memory",
    "lookahead": "ticks from a command to the end of its data, at least",
    "window": "accesses under way at most; 0: no limit",
    "now": "tick up to which the channels have run",
    "waiting": "accesses in the arrays that wait",
    "staged": "of these, those that were cut into runs",
    "untaken": "runs that no queue has taken",
    "accesses_held": "accesses staged whose data have not passed",
    "writes": "of these, writes; and writes of checks under way",
    "access_rows": "rows of `accesses` and `marks`",
    "access_used": "of these, those ever used",
    "access_free": "first free row, or -1",
    "runs_held": "runs staged that no inbox holds",
    "run_rows": "rows of `runs`",
    "run_used": "of these, those ever used",
    "run_free": "first free row, or -1",
    "done": "completions written",
    "settled": "of these, those up to `now`, where a call goes step by step",
    "ordered": "1: completions are written by tick",
    "keeps": "rows of `kept`; 0: commands are not kept",
    "kept_lines": "rows of `kept` in use",
}
ARRAYS = {
    "constants": "a CONSTANTS record",
    "states": "a CHANNEL record a channel",
    "lanes": "a channel's first and last run, reads it forwarded, whether a run is half taken",
    "accesses": "rows by the A_ names",
    "marks": "two a row of `accesses`: bytes of reads that were answered",
    "runs": "rows by the R_ names",
    "log": "LOG_LINES lines, whose last field is a row of `accesses`",
    "kept": "lines of the log, with the channel in place of the access",
    "tick": "of waiting accesses: tick of arrival, rising",
    "address": "of waiting accesses: byte address",
    "size": "of waiting accesses: bytes",
    "write": "of waiting accesses: 0 or 1, a byte each",
    "tag": "of waiting accesses: the host's name",
    "done_tick": "of completions: tick",
    "done_tag": "of completions: the host's name",
}
PORT = np.dtype([(name, np.int64) for name in (*SCALARS, *ARRAYS)])
"""Scalars with their meaning, then addresses of arrays; all 64 bits."""
A_TAG, A_LEFT, A_END, A_SEEN, A_WRITE, A_NEXT = range(6)
"""Tag; bursts left; latest end of those served; reads answered; 1 for a write; next free row."""
ACCESS_FIELDS = 6
CHECK_READS, CHECK_WRITES = 0, 1
"""Rows of the accesses to checks of in-line ECC, where there is any: of each one burst more is left
than are under way."""
R_TICK, R_FIRST, R_BURSTS, R_KIND, R_ACCESS, R_NEXT = range(6)
"""A run: arrival, first burst in its channel, bursts, kind, row of its access, next run."""
RUN_FIELDS = 6
L_FIRST, L_LAST, L_FORWARDED, L_HALF = range(4)
LANE_FIELDS = 4
LINE, SERVED_LINE = 6, 3
"""Fields of a line of `kept`, and of `log` where commands are kept; of `log` otherwise."""
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
