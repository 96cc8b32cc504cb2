"""What reading the KV costs under which conditions: the page of the `kv-*` sweeps.

    python -m sweeps.reports.physics RUN_DIR... > docs/physics.md

Every number on the page is computed from the results in the run directories.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweeps.experiments.sweep import label
from sweeps.results.statistics import Interval, grown, interval, log_ratios
from sweeps.results.store import Record, RunDirectory

PAGED, CONTIGUOUS = "paged", "oracle"
KV, LIMIT, SHARE = "kv_gbps", "layout_limit", "kv_share"
LPDDR5, MODEL = "mlu370-x4", "deepseek-r1-distill-qwen-7b"
AS_DESCRIBED = "16KiB", "100ns"
"""Window and descriptor cost of mlu370-x4."""
TENTH = 0.1
NEAR = 0.02
"""Two bandwidths are told apart from this relative difference on (assumed)."""


class Cells:
    """One run: metrics by the values of all axes but the policy, then by policy."""

    def __init__(self, directory: Path) -> None:
        run = RunDirectory(directory)
        self.config = run.config()
        self.axes = [axis for axis in self.config["axes"] if axis != self.config["compare"]]
        self.rows: dict[tuple[str, ...], dict[str, list[Record]]] = {}
        for record in sorted(run.records(), key=lambda r: (r["point"], r["replication"])):
            place = tuple(_text(record["overrides"][axis]) for axis in self.axes)
            policy = _text(record["overrides"][self.config["compare"]])
            self.rows.setdefault(place, {}).setdefault(policy, []).append(record["metrics"])

    def policies(self) -> list[str]:
        """In the sweep's order."""
        return [_text(value) for value in self.config["axes"][self.config["compare"]]]

    def mean(self, place: tuple[str, ...], policy: str, metric: str = KV) -> Interval:
        """A metric over the replications."""
        return interval([metrics[metric] for metrics in self.rows[place][policy]])

    def gain(self, place: tuple[str, ...]) -> Interval | None:
        """Paged over contiguous bandwidth, less 1, paired; None where one is missing."""
        row = self.rows[place]
        paged = next((name for name in row if name.startswith(PAGED)), None)
        if paged is None or CONTIGUOUS not in row:
            return None
        ours, theirs = ([m[KV] for m in row[name]] for name in (paged, CONTIGUOUS))
        return interval(log_ratios(ours, theirs)).mapped(grown)


def page(directories: list[Path]) -> Iterator[str]:
    """The page's lines, in Markdown. Raises DescriptionError for what is no run directory."""
    runs = [Cells(directory) for directory in directories]
    yield "# What reading the KV costs"
    yield ""
    yield (
        "One layer's KV read of one decode batch, simulated whole, where an allocator in use has"
        " put it (`docs/experiments.md`). `paged` has blocks of 16 tokens unless it says otherwise,"
        " `oracle` is one run a sequence. Rebuilt by `make physics`."
    )
    yield ""
    yield from _answer(runs)
    for run in runs:
        yield from _table(run)


def _answer(runs: list[Cells]) -> Iterator[str]:
    """Where paging costs bandwidth, and how much."""
    gains = [
        (gain.mean, run, place)
        for run in runs
        for place in run.rows
        if (gain := run.gain(place)) is not None
    ]
    worse = sorted(item for item in gains if item[0] < -NEAR)
    yield (
        f"Of {len(gains)} conditions paged reads {len(worse)} more than {NEAR:.0%} slower than one"
        f" run a sequence, {sum(item[0] > NEAR for item in gains)} more than {NEAR:.0%} faster, and"
        " the rest alike. The slowest of each sweep:"
    )
    yield ""
    firsts = {run.config["name"]: (mean, run, place) for mean, run, place in reversed(worse)}
    for mean, run, place in firsts.values():
        where = ", ".join(
            f"{axis.split('.')[-1]} {value}" for axis, value in zip(run.axes, place, strict=True)
        )
        yield f"- {mean:+.0%}: {where} (`{run.config['name']}`)"
    limits = [
        (metrics[LIMIT], metrics[SHARE], run, place)
        for run in runs
        for place, row in run.rows.items()
        for name, records in row.items()
        if name.startswith(PAGED)
        for metrics in records[:1]
        if run.config["name"] == "kv-share"
    ]
    if limits:
        limit, share, _, place = max(limits, key=lambda item: item[0])
        least = min(limits, key=lambda item: item[0])
        yield ""
        yield (
            "A step is not all KV: no layout can gain or cost more than share x (1 / efficiency"
            f" - 1) of the step's time, {least[0]:.1%} to {limit:.1%} over batch and context here"
            f" (the most at {', '.join(place)}, where KV is {share:.0%} of the step)."
        )
    yield ""
    yield from _conclusion({run.config["name"]: run for run in runs})


def _conclusion(runs: dict[str, Cells]) -> Iterator[str]:
    """Under which conditions paging costs throughput on LPDDR5, as far as the runs tell."""
    if not {"kv-dma", "kv-interleave", "kv-memory", "kv-share"} <= set(runs):
        return
    dma, spread, memory = runs["kv-dma"], runs["kv-interleave"], runs["kv-memory"]
    plain, heads = dma.gain(("slice", *AS_DESCRIBED)), dma.gain(("head", *AS_DESCRIBED))
    if plain is None or heads is None:
        return
    kv = runs["kv-share"].rows[LPDDR5, MODEL, "16", "2048"]["paged"][0][SHARE]
    yield (
        "**When does paging cost throughput on LPDDR5?** As `mlu370-x4` is described, paged reads"
        f" KV at {_times(plain)} of the rate of contiguous runs, and at {_times(heads)} where every"
        " core reads one head (extents of 4 KiB). It costs bandwidth where setting up a copy takes"
        f" long: {_first_cost(dma, 'slice')} with extents of 16 KiB,"
        f" {_first_cost(dma, 'head')} with extents of 4 KiB."
        " Interleaves from 256 B to 4 KiB, with and without rotation and bank hashes,"
        f" give {_range(spread)}, bank modes, burst lengths and all refresh choices"
        f" {_range(memory)}. Of a decode step of 16 sequences of 2,048 tokens reading KV is"
        f" {kv:.0%}, so that even half the KV bandwidth costs {kv / (1 + kv):.0%} of the throughput"
        " there; with more context it can cost more (`kv-share`). What could turn the answer is"
        " assumed: the descriptor cost (100 ns), the DMA window below 8 KiB, whether cores read"
        " single heads, and an interleave of 4 KiB without rotation."
    )
    yield ""


def _first_cost(run: Cells, spread: str) -> str:
    """From which descriptor cost on paging loses a tenth, at the window that is described."""
    window = AS_DESCRIBED[0]
    costs = [place for place in run.rows if place[:2] == (spread, window)]
    for place in costs:
        gain = run.gain(place)
        if gain is not None and gain.mean < -TENTH:
            return f"{_times(gain)} at {place[2]}"
    return f"none lost a tenth up to {costs[-1][2]}"


def _range(run: Cells) -> str:
    means = [1 + gain.mean for place in run.rows if (gain := run.gain(place)) is not None]
    return f"{min(means):.2f} to {max(means):.2f}"


def _times(gain: Interval) -> str:
    return f"{1 + gain.mean:.2f} (± {gain.half:.2f})"


def _table(run: Cells) -> Iterator[str]:
    policies = run.policies()
    yield f"## {run.config['name']}"
    yield ""
    yield f"{run.config['question']} `bankwise run {run.config['name']}`; mean GB/s."
    yield ""
    shared = run.config["name"] == "kv-share"
    extra = ["KV share of the step", "limit of layout"] if shared else ["paged / oracle"]
    yield "| " + " | ".join([*(axis.split(".")[-1] for axis in run.axes), *policies, *extra]) + " |"
    yield "|" + "---|" * (len(run.axes) + len(policies) + len(extra))
    for place, row in run.rows.items():
        cells = [f"{run.mean(place, name).mean:,.1f}" if name in row else "–" for name in policies]
        if shared:
            name = next(iter(row))
            cells += [f"{run.mean(place, name, metric).mean:.1%}" for metric in (SHARE, LIMIT)]
        else:
            gain = run.gain(place)
            cells.append("–" if gain is None else f"{1 + gain.mean:.3f} ± {gain.half:.3f}")
        yield "| " + " | ".join([*place, *cells]) + " |"
    yield ""


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(map(_text, value)) or "none"
    if isinstance(value, dict) and "name" not in value:
        return " ".join(f"{key}={item}" for key, item in value.items())
    return label(value) if not isinstance(value, (bool, float)) else json.dumps(value)


def main() -> None:
    """Print the page of the run directories named."""
    for line in page([Path(name) for name in sys.argv[1:]]):
        print(line)


if __name__ == "__main__":
    main()
