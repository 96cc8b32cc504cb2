"""A host's port to channels: it hands over accesses in arrays, and takes completions in others."""

from __future__ import annotations

from hwmodel.kernel.host import host_type

LOG_LINES = 256
"""Commands of a channel between two looks at which accesses they serve."""
AT_ONCE = 256
"""Runs that a channel's inbox is given at once, and a channel's share of those staged at once."""
TO_TICK, TO_COMPLETION, TO_END, TO_INPUT = range(4)
"""How far a call runs: to a tick; to the first completion before it; until all is served; as far as
is known before more accesses are given (`now` stays)."""
SCALARS = {
    "interleave": "bytes of a block that lies in one channel",
    "hash": "HASH_NONE, HASH_ROTATE or HASH_XOR",
    "burst": "bytes of a burst, a power of two",
    "burst_bits": "its binary logarithm",
    "capacity": "bytes of the memory",
    "lookahead": "ticks from a command to the end of its data, at least",
    "how": "how far a call runs: a TO_ name",
    "window": "accesses under way at most; 0: no limit",
    "waiting": "accesses in the arrays that wait",
    "staged": "of these, those that were cut into runs",
    "untaken": "runs that no queue has taken",
    "accesses_held": "accesses staged whose data have not passed",
    "writes": "of these, writes; and writes of checks under way",
    "access_rows": "rows of `accesses` and `completions`",
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
    "head": "runs that the channel had taken before it ran",
    "kept_lines": "rows of `kept` in use",
}
ARRAYS = {
    "backlog": "a row a channel by the B_ names",
    "accesses": "rows by the A_ names",
    "runs": "rows by the R_ names",
    "kept": "lines of the log, with the channel in place of the access",
    "tick": "of waiting accesses: tick of arrival, rising",
    "address": "of waiting accesses: byte address",
    "size": "of waiting accesses: bytes",
    "write": "of waiting accesses: 0 or 1, a byte each",
    "tag": "of waiting accesses: the host's name",
    "done_tick": "of completions: tick",
    "done_tag": "of completions: the host's name",
}
PORT = host_type(SCALARS, ARRAYS)
"""Of the arrays of every host, `completions` are two a row of `accesses`, bytes of reads that were
answered; `log` has LOG_LINES lines, whose last field is a row of `accesses`."""
A_TAG, A_LEFT, A_END, A_SEEN, A_WRITE, A_NEXT = range(6)
"""Tag; bursts left; latest end of those served; reads answered; 1 for a write; next free row."""
ACCESS_FIELDS = 6
CHECK_READS, CHECK_WRITES = 0, 1
"""Rows of the accesses to checks of in-line ECC, where there is any: of each one burst more is left
than are under way."""
R_TICK, R_FIRST, R_BURSTS, R_KIND, R_ACCESS, R_NEXT = range(6)
"""A run: arrival, first burst in its channel, bursts, kind, row of its access, next run."""
RUN_FIELDS = 6
B_FIRST, B_LAST, B_FORWARDED, B_HALF = range(4)
"""Of a channel: first and last run that its inbox has no room for, or -1; reads that writes had
answered when it last ran; 1 where it had taken a part of a run."""
BACKLOG_FIELDS = 4
LINE, SERVED_LINE = 6, 3
"""Fields of a line of `kept`, and of `log` where commands are kept; of `log` otherwise."""
