"""The figures a report shows: for each, the metric it is, its heading, and how it is written."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sweeps.analyse.statistics import Interval

THROUGHPUT = "output_tokens_per_s"
"""Of the steady part of a run: after the warm-up, while a request waits or is still to arrive."""
CAPACITY = "kv_capacity_tokens"
"""Tokens that there is room for."""
KV_SLOTS = "kv_slots.binding"
"""Metric: state -> share of all token slots while KV memory limits the batch; they sum to 1."""
SLOT_WORDS = {
    "used": "used", "unfilled": "reserved, token not yet generated",
    "unneeded": "reserved, never needed", "holes": "holes",
    "head_of_line": "head-of-line blocking",
}  # fmt: skip
BACKLOG = "backlog_share"
"""Metric: counted requests that had no token when the last one arrived."""
OVERLOADED = 0.1
"""Backlog from which the load is above capacity (assumed)."""
GOODPUT, ATTAINMENT = "goodput_per_s", "slo.attainment"
"""Metrics: the load that attains the objective, where one was searched; the share of requests that
keeps it."""
CAPACITY_RATE = "capacity_per_s"
"""Metric: requests a second at which what waits does not grow (`sweeps.plan.saturation`)."""
GROWING = ("ttft_s", "latency_s", "slo")
"""Metrics that grow with the length of a run whose load is above capacity."""
REFERENCE = "reference"
"""The control that a sweep's references are, which do not compete."""
LIMITS = "limit_share"
"""Metric: limit -> share of the time it bound; the shares sum to 1."""
KV_MEMORY = "kv_memory"
KV_RATE, KV_SHARE, KV_EXTENT = "kv_gbps", "kv_share", "extent_bytes"
"""Metrics of the KV read of one batch: GB/s, share of the step, mean extent."""


ENERGY, ENERGY_CONFIDENCE = "energy.mj_per_token", "energy.confidence"
"""Metrics: DRAM energy of an output token, and the worst confidence of a constant in it."""
TOKENS_PER_JOULE = "tokens_per_joule.dram"
PER_KUSD, PER_WATT = "tokens_per_s_per_kusd", "tokens_per_s_per_watt"
PER_MM2 = "tokens_per_s_per_mm2"
TOKENS_PER_JOULE_ENDS = "tokens_per_joule.dram_low", "tokens_per_joule.dram_high"
"""Metrics: output tokens for a joule of DRAM, and the ends of what its constants may make it."""
PREEMPTIONS_EACH = "preemptions_per_request"
"""Derived when results are read: preemptions after the warm-up over requests that were counted."""
PREFILL = "phase_share.prefill"
COMPUTE = "compute_share"
"""Metric: share of step time in phases whose FLOPs take longer than their bytes."""
LIMIT_WORDS = {
    KV_MEMORY: "KV memory",
    "sequence_cap": "sequence cap",
    "token_budget": "token budget",
    "offered_load": "empty queue",
}
ENOUGH = 10
"""Replications that are advised where an interval says nothing (assumed)."""
_PLENTY = 1000
"""From here on figures are written without decimals."""


@dataclass(frozen=True)
class Figure:
    """One column; `scale` is applied before writing with `digits` decimals."""

    metric: str
    heading: str
    digits: int = 1
    scale: float = 1.0
    first: bool = True
    """Whether it is among the columns that are read first; the others stand behind them."""
    ends: tuple[str, str] | None = None
    """Metrics: the ends of what it may be, written instead of it."""

    def range_text(self, low: float | None, high: float | None) -> str:
        """What it may be."""
        return "–" if low is None or high is None else f"{self.text(low)}–{self.text(high)}"

    def text(self, mean: float | None) -> str:
        """`mean`; a dash where there is none."""
        if mean is None:
            return "–"
        return f"{mean * self.scale:,.{self._places(mean)}f}"

    def interval_text(self, interval: Interval) -> str:
        """The mean of what cannot be negative, with its half-width where that says something."""
        body = self.text(interval.mean)
        if not math.isfinite(interval.half):
            return body
        if not interval.is_known:
            return f"{body} ({unknown_ends(interval)})"
        return f"{body} ± {interval.half * self.scale:,.{self._places(interval.mean)}f}"

    def _places(self, mean: float) -> int:
        return self.digits if abs(mean * self.scale) < _PLENTY else 0


def unknown_ends(interval: Interval) -> str:
    """What stands instead of an interval that says nothing."""
    return f"n = {interval.count}, no interval"


FIGURES = (
    Figure(THROUGHPUT, "output tokens/s"), Figure("ttft_s.p50", "TTFT p50 s", 2, first=False),
    Figure("ttft_s.p99", "TTFT p99 s", 2), Figure("tpot_s.mean", "TPOT ms", 1, 1000),
    Figure(GOODPUT, "goodput requests/s", 3), Figure(ATTAINMENT, "SLO kept %", 1, 100),
    Figure("at_share.ttft_s.p50", "TTFT p50 s below capacity", 2, first=False),
    Figure("at_share.ttft_s.p99", "TTFT p99 s below capacity", 2, first=False),
    Figure("at_share.tpot_s.mean", "TPOT ms below capacity", 1, 1000, first=False),
    Figure("at_share.goodput_per_s", "goodput requests/s below capacity", 3, first=False),
    Figure(f"{KV_SLOTS}.used", "KV used %", 1, 100, first=False),
    Figure(f"{KV_SLOTS}.holes", "KV in holes %", 1, 100, first=False),
    Figure(f"{KV_SLOTS}.head_of_line", "head-of-line blocking %", 1, 100, first=False),
    Figure("cached_share", "cached %", 1, 100, first=False),
    Figure("batch", "mean batch", 1, first=False),
    Figure("utilization", "utilisation %", 1, 100), Figure("preemptions", "preemptions", 0),
    Figure("migrations", "migrations", 0, first=False), Figure("kv_gbps", "KV GB/s"),
    Figure("memory.phases.attention.row_hit_rate", "row hits %", 1, 100),
    Figure("mean_run_tokens", "mean run of tokens", 0, first=False),
    Figure("memory.phases.attention.descriptors", "descriptors of a step's KV", 0, first=False),
    Figure("memory.phases.attention.descriptor_bytes", "KiB a descriptor", 1, 1 / 1024, False),
    Figure("copied_tokens", "tokens copied", 0, first=False),
    Figure("memory.throughput_ci95", "sampling ± %", 1, 100),
    Figure(ENERGY, "DRAM mJ/token", 2, first=False),
    Figure(TOKENS_PER_JOULE, "tokens/J of DRAM", 2, ends=TOKENS_PER_JOULE_ENDS),
    Figure("tokens_per_joule.board", "tokens/J of the board at least", 2, first=False),
    Figure(PER_KUSD, "output tokens/s a thousand dollars", 1),
    Figure(PER_WATT, "tokens/J of the draw given", 2),
    Figure(PER_MM2, "output tokens/s a mm²", 3),
    Figure("memory.writes_a_day", "times the flash is written a day", 2),
    Figure("memory.years", "years until it is worn out", 1),
)  # fmt: skip

Shares = dict[str, float]


def limit_shares(metrics: dict[str, float]) -> Shares:
    """Limit -> share of the time, out of flat metrics."""
    prefix = LIMITS + "."
    return {
        name.removeprefix(prefix): value
        for name, value in metrics.items()
        if name.startswith(prefix) and isinstance(value, (int, float))
    }


def limit_texts(shares: Shares) -> list[str]:
    """The limits that bound, largest first, with their shares."""
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    return [f"{limit_word(name)} {share:.0%}" for name, share in ranked if share >= 0.005]


def limit_word(name: str) -> str:
    return LIMIT_WORDS.get(name, name.replace("_", " "))
