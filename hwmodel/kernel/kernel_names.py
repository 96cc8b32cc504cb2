"""Names that the kernels share: commands as numbers, classes, outcomes, the type of a record."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.limits import N_COMMANDS
from hwmodel.specs.commands import COMMANDS, PERIODIC_COMMANDS

(
    ACT, ACT1, ACT2, RD, RDA, WR, WRA, MWR, MWRA, PRE, PREA, REFPB, REFAB, CAS, RFM, RFMAB,
) = range(N_COMMANDS)  # fmt: skip
PDE, PDX, SRE, SRX, PERIODIC = range(N_COMMANDS, N_COMMANDS + 5)
assert (
    "ACT", "ACT1", "ACT2", "RD", "RDA", "WR", "WRA", "MWR", "MWRA",
    "PRE", "PREA", "REFPB", "REFAB", "CAS", "RFM", "RFMAB",
    "PDE", "PDX", "SRE", "SRX", *PERIODIC_COMMANDS,
) == COMMANDS  # fmt: skip
# classes of candidates, the first before the others at the same tick (rules.md: choice)
EAGER_ACT2, BUFFERED, URGENT_REFRESH, COLUMN, ROW, LAZY_ACT2, OWED_REFRESH, TIMEOUT = range(8)
CLASS_BITS = 3
"""Of a class in the key of a candidate, tick << CLASS_BITS | class: keys compare as (tick, class)
do, in one comparison."""
FLAG_ACTIVATED, FLAG_PRECHARGED, FLAG_MASKED, FLAG_RMW = 1, 2, 4, 8
"""Marks of a request; MASKED: a write of less than a burst, RMW: the read before one."""
READ, WRITE, PARTIAL_WRITE = 0, 1, 2
"""Kinds of requests in a stream."""
# outcomes of `advance`
REACHED, WANTS_INPUT, LOG_FULL, DRAINED = 0, 1, 2, 3
Record = Any
"""A numpy record inside a kernel."""
