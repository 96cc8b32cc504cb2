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
NEAR = 0.02
"""Two bandwidths that differ by less are alike (assumed)."""


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
        " put it (`docs/experiments.md`); `oracle` is one contiguous run per sequence. Rebuilt by"
        " `make physics`."
    )
    yield ""
    yield from _answer(runs)
    for run in runs:
        yield from _table(run)


def _answer(runs: list[Cells]) -> Iterator[str]:
    """Where paging costs bandwidth, and how much."""
    gains = {
        run.config["name"]: sorted(
            (gain.mean, place) for place in run.rows if (gain := run.gain(place)) is not None
        )
        for run in runs
    }
    means = [mean for found in gains.values() for mean, _ in found]
    slower, faster = sum(mean < -NEAR for mean in means), sum(mean > NEAR for mean in means)
    yield (
        f"In {slower} of {len(means)} conditions paged reads more than {NEAR:.0%} slower than one"
        f" run per sequence, in {faster} more than {NEAR:.0%} faster. Bandwidth of paged over that"
        " of one run per sequence:"
    )
    yield ""
    for run in runs:
        if found := gains[run.config["name"]]:
            (least, place), (most, _) = found[0], found[-1]
            where = ", ".join(
                f"{axis.split('.')[-1]} {value}"
                for axis, value in zip(run.axes, place, strict=True)
            )
            conditions = f"{len(found)} conditions" if len(found) > 1 else "1 condition"
            yield (
                f"- `{run.config['name']}`: {1 + least:.2f} to {1 + most:.2f} over {conditions}, "
                f"lowest with {where}"
            )
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
        lowest = min(item[0] for item in limits)
        yield ""
        yield (
            "Layout cannot change the time of a step by more than the share of the KV read x (1 /"
            f" efficiency - 1), here {lowest:.1%} to {limit:.1%}"
            f" (the most at {', '.join(place)}, where KV is {share:.0%} of the step)."
        )
    yield ""


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
