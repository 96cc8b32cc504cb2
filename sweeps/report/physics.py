"""What reading the KV costs under which conditions: the page of the `kv-*` sweeps.

    python -m sweeps.report.physics RUN_DIR... > docs/results/physics.md

Every number on the page is computed from the results in the run directories.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hwmodel.description.library import names
from sweeps.analyse.label import label
from sweeps.analyse.rows import Record
from sweeps.analyse.statistics import Interval, grown, interval, log_ratios
from sweeps.run.store import RunDirectory

PAGED, CAMPING = "paged", "kv-camping"
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
        paged = next((name for name in self.rows[place] if name.startswith(PAGED)), None)
        return None if paged is None else self.ratio(place, paged, self.contiguous)

    @property
    def contiguous(self) -> str:
        """The first policy with one run a sequence."""
        return next((name for name in self.policies() if not name.startswith(PAGED)), "")

    def ratio(self, place: tuple[str, ...], ours: str, theirs: str) -> Interval | None:
        """Bandwidth of one policy over that of another, less 1, paired; None where one is
        missing."""
        row = self.rows[place]
        if ours not in row or theirs not in row:
            return None
        values = ([m[KV] for m in row[name]] for name in (ours, theirs))
        return interval(log_ratios(*values)).mapped(grown)


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
        for run in runs if run.config["name"] != CAMPING
    }  # fmt: skip
    means = [mean for found in gains.values() for mean, _ in found]
    slower, faster = sum(mean < -NEAR for mean in means), sum(mean > NEAR for mean in means)
    yield (
        f"In {slower} of {len(means)} conditions paged reads more than {NEAR:.0%} slower than one"
        f" run per sequence, in {faster} more than {NEAR:.0%} faster. Bandwidth of paged over that"
        " of one run per sequence:"
    )
    yield ""
    for run in runs:
        if found := gains.get(run.config["name"]):
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


def _camping(run: Cells) -> Iterator[str]:
    """What equal runs lose to shuffled blocks, on memories and on one whose rows cost nothing, and
    what staggering them gives back."""
    staggered = run.policies()[-1]
    found = {place: gain for place in run.rows if (gain := run.gain(place)) is not None}
    free = [gain.mean for place, gain in found.items() if _no_memory(place)]
    real = {place: gain for place, gain in found.items() if not _no_memory(place)}
    lost = [p for p, gain in real.items() if gain.sign > 0 and gain.mean > NEAR]
    yield (
        f"Equal runs of a power of two read significantly slower than shuffled blocks, by more "
        f"than {NEAR:.0%}, in {len(lost)} of {len(real)} conditions. Of each where they do, "
        "bandwidth over that of the equal runs, of shuffled blocks and of the same runs staggered:"
    )
    yield ""
    for place in sorted(lost, key=lambda place: -real[place].mean):
        back = run.ratio(place, staggered, run.contiguous)
        moved = "–" if back is None else f"{1 + back.mean:.2f}"
        yield f"- {', '.join(place)}: {1 + real[place].mean:.2f} and {moved}"
    if free:
        yield ""
        yield (
            "On a memory that replaces rows at once shuffled blocks have "
            f"{1 + min(free):.2f} to {1 + max(free):.2f} of the bandwidth of equal runs."
        )
    yield ""


def _no_memory(place: tuple[str, ...]) -> bool:
    """Whether rows cost no time there."""
    return any("tRC=" in value for value in place)


def _table(run: Cells) -> Iterator[str]:
    policies = run.policies()
    yield f"## {run.config['name']}"
    yield ""
    name = run.config["name"]
    file = name if name in names("sweeps") else f"research/sweeps/{name}.yaml"
    yield f"{run.config['question']} `bankwise run {file}`; mean GB/s."
    yield ""
    if run.config["name"] == CAMPING:
        yield from _camping(run)
    shared = run.config["name"] == "kv-share"
    extra = (
        ["KV share of the step", "limit of layout"]
        if shared
        else [f"paged / {run.contiguous.split()[0]}"]
    )
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
        return " ".join(f"{key}={_text(item)}" for key, item in value.items())
    return label(value) if not isinstance(value, (bool, float)) else json.dumps(value)


def main() -> None:
    """Print the page of the run directories named."""
    for line in page([Path(name) for name in sys.argv[1:]]):
        print(line)


if __name__ == "__main__":
    main()
