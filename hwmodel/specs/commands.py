"""Names of commands and of the levels of a channel; how large a channel the kernel holds."""

from __future__ import annotations

LEVELS = ("channel", "pseudochannel", "rank", "stack", "bankgroup", "bank")
"""Levels of a channel, outermost first."""
MAX_REQUESTS = 4096
"""Queued requests of a pseudo-channel that the kernel's fixed arrays hold."""
MAX_WINDOW, MAX_WINDOWS, MAX_WINDOW_INSTANCES = 32, 4, 32
"""Largest activation windows that the kernel's fixed arrays hold."""
MAX_TICKS, MAX_CAPACITY = 2**40, 2**44
"""Longest delay in ticks, and largest channel in bytes: sums of many stay within 64 bits."""
LEAST_BELOW_ODD = 8
"""Bits of a burst index that a table decodes: below a part whose values are no power of two."""
PERIODIC_COMMANDS = ("PERIODIC", *(f"PERIODIC#{n}" for n in range(2, 13)))
"""Of kind PERIODIC the first that a memory describes, the second and so on: as many as fit where it
needs only ACT, RD, WR and PRE."""
COMMANDS = (
    "ACT", "ACT1", "ACT2", "RD", "RDA", "WR", "WRA", "MWR", "MWRA",
    "PRE", "PREA", "REFPB", "REFAB", "CAS", "RFM", "RFMAB",
    "PDE", "PDX", "SRE", "SRX", *PERIODIC_COMMANDS,
)  # fmt: skip
"""Commands by their kinds; a description may call them otherwise."""
KINDS = COMMANDS[: COMMANDS.index("PERIODIC") + 1]
POWER_COMMANDS = ("PDE", "PDX", "SRE", "SRX")
"""Entry to and exit from power-down and self-refresh, of a channel."""
RANK_COMMANDS = ("PREA", "REFAB", "CAS", "RFMAB", *PERIODIC_COMMANDS, *POWER_COMMANDS)
SET_COMMANDS = ("REFPB", "RFM")
"""To the banks of a rank that a REFPB refreshes together."""
READ_COMMANDS = ("RD", "RDA")
MASKED_WRITES = {"WR": "MWR", "WRA": "MWRA"}
"""The form of each write that masks some of its bytes."""
WRITE_COMMANDS = (*MASKED_WRITES, *MASKED_WRITES.values())
COLUMN_COMMANDS = READ_COMMANDS + WRITE_COMMANDS
