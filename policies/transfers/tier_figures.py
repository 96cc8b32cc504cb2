"""What a run counts of its tiers."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from policies.requests.percentiles import summary
from policies.transfers.kv_link import Transfer

Kind = Literal["load", "store", "read", "write"]
"""From the host, to it, from the drive, to it."""


class TierFigures:
    """`tokens`: of requests that were admitted, all (`asked`) and where they were found."""

    def __init__(self) -> None:
        self.tokens = dict.fromkeys(("asked", "device", "host", "ssd"), 0)
        self.recomputed = 0
        """Tokens that a tier had and that were sooner computed."""
        self.dropped = 0
        """Transfers that were taken back."""
        self.stalled_s = 0.0
        """By which steps were longer."""
        self._moved: dict[Kind, list[tuple[int, int, float, float]]] = {}

    def arrived(self, kind: Kind, job: Transfer, now_s: float) -> None:
        """A transfer is over."""
        times = (job.began_s - job.put_s) * 1e3, (now_s - job.began_s) * 1e3
        self._moved.setdefault(kind, []).append((job.descriptors, job.bytes, *times))

    def figures(self) -> dict[str, Any]:
        """Tokens, and shares of them; of each kind of transfer the mean descriptors and bytes, time
        in line and time to move (ms), and GB/s over all."""
        asked = max(self.tokens["asked"], 1)
        shares = {f"{name}_share": self.tokens[name] / asked for name in ("device", "host", "ssd")}
        found: dict[str, Any] = {
            "looked_up_tokens": self.tokens["asked"], **shares,
            "recomputed_tokens": self.recomputed, "dropped": self.dropped,
            "stalled_s": self.stalled_s,
        }  # fmt: skip
        for name, rows in self._moved.items():
            descriptors, size, waited, moving = np.array(rows).T
            found[name] = {
                "transfers": len(rows),
                "descriptors": float(descriptors.mean()),
                "bytes": float(size.mean()),
                "wait_ms": summary(waited),
                "ms": summary(moving),
                "gbps": float(size.sum() / moving.sum() / 1e6),
            }
        return found
