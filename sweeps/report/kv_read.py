"""What reading the KV of a decode batch costs on a device: one layer, every byte, no serving.

The batch lies where an allocator in use has put it (`policies.memory.batch`). One layer's attention
of one decode step (its KV read, a token a sequence written) is simulated from the first request to
the last data beat on all channels. With it come the times of the whole step, whose other phases are
`analytic`, and the first-order limit of what layout can cost there: the KV's share of the step
times (1 / efficiency - 1).
"""

from __future__ import annotations

from sweeps.plan.kv_read import KvReadSpec
from sweeps.report.kind import Kind


class KvRead(Kind):
    """Which allocator's KV of one batch is read fastest."""

    experiment = KvReadSpec
