"""`bankwise memory --plausible` (least to most over plausible variants) and `--refresh`: as JSON
and as sections. Which options go together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError
from hwmodel.description.units import parse_quantity
from hwmodel.measure.bandwidth import measure_patterns
from hwmodel.measure.refresh_cost import RefreshChoice, RefreshCost
from hwmodel.specs.device import Device, load_device, load_variants
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.report.drawing import FORMS
from sweeps.run.progress import Progress
from sweeps.run.store import write_atomically
from sweeps.run.version import version
from sweeps.sections.chart import Chart
from sweeps.sections.section import Grid, Say, Section

_PATTERNS = "--pattern"
"""What is measured where nothing else is asked for."""
_WITH = {
    "--plausible": (_PATTERNS,), "--align": (_PATTERNS,), "--quick": ("--racm",),
    "--extent": (_PATTERNS, "--racm", "--latency"),
    "--writes": (_PATTERNS, "--latency"), "--threshold": ("--racm",),
    "--html": ("--racm", "--latency"), "--chart": ("--latency", "--layouts"),
    "--pad": ("--layouts",),
}  # fmt: skip
"""Option -> what it goes with."""


def check_options(kinds: Sequence[str], asked: Sequence[str]) -> None:
    """Raise DescriptionError where options of `memory` do not go together: `kinds`, which say
    what is measured, and `asked`, which say how."""
    if len(kinds) > 1:
        raise DescriptionError(f"does not go with {kinds[0]}", kinds[1])
    kind = kinds[0] if kinds else _PATTERNS
    for option in asked:
        if kind not in (goes := _WITH[option]):
            needs = f"needs {' or '.join(goes)}"
            raise DescriptionError(
                f"does not go with {kind}" if _PATTERNS in goes else needs, option
            )
    if kind == _PATTERNS and "--extent" not in asked:
        for option, needs in (("--writes", "--extent or --latency"), ("--align", "--extent")):
            if option in asked:
                raise DescriptionError(f"needs {needs}", option)
    for one, other in (("--extent", "--plausible"), ("--html", "--quick")):
        if one in asked and other in asked:
            raise DescriptionError(f"does not go with {other}", one)


def write_share(text: str) -> float:
    """The share of a percentage, `25` or `25%`. Raises DescriptionError for what is none."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise DescriptionError(f"expected a percentage, 0 to 100; got {text}", "--writes")
    return percent / 100


def check_picture(file: Path | None) -> None:
    """Raise DescriptionError for a name that no picture has."""
    if file is not None and file.suffix not in FORMS:
        raise DescriptionError(f"expected a name that ends in {', '.join(FORMS)}", file)


def draw(charts: Sequence[Chart], file: Path) -> None:
    """Write charts under one another as a picture, by the ending of its name."""
    write_atomically(file, FORMS[file.suffix](charts, ()))


def one_extent(extents: Sequence[str], kind: str) -> str | None:
    """Of what simulates one. Raises DescriptionError for several."""
    if len(extents) > 1:
        raise DescriptionError(f"{kind} takes one; got {' and '.join(extents)}", "--extent")
    return extents[0] if extents else None


def grid_bytes(align: str | None) -> int:
    """What extents begin at multiples of. Raises DescriptionError for no power of two."""
    try:
        grid = 1 if align is None else parse_quantity(align, "size")
        if grid not in [1 << i for i in range(22)]:
            raise ValueError(f"expected a power of two up to 2 MiB; got {align}")
    except ValueError as error:
        raise DescriptionError(str(error), "--align") from None
    return int(grid)


def size_bytes(text: str, option: str) -> int:
    """Bytes of a size. Raises DescriptionError, with the option."""
    try:
        return int(parse_quantity(text, "size"))
    except ValueError as error:
        raise DescriptionError(str(error), option) from None


def ranges(name: str, overrides: list[str], patterns: Iterable[str]) -> dict[str, Any]:
    """GB/s that reach the engines in each pattern, as described and of every variant. Raises
    DescriptionError where the device lists no variant."""
    device, asked = load_device(name, overrides), list(patterns)
    variants = load_variants(name, overrides)
    if not device.plausible:
        raise DescriptionError(
            f"{device.name} lists no plausible variants; docs/your-device.md shows how to list"
            " them",
            "--plausible",
        )
    every = {AS_DESCRIBED: device, **variants.devices}
    through = Progress().through("variants")(every.items(), len(every))
    found = {variant: measure_patterns(each, asked) for variant, each in through}
    rows = []
    for items in zip(*found.values(), strict=True):
        gbps = {
            name: item.get("delivered_gbps", item["bandwidth_gbps"])
            for name, item in zip(found, items, strict=True)
        }
        least, most = min(gbps, key=gbps.__getitem__), max(gbps, key=gbps.__getitem__)
        rows.append({
            "pattern": items[0]["pattern"], "gbps": gbps,
            "least": {"variant": least, "gbps": gbps[least]},
            "most": {"variant": most, "gbps": gbps[most]},
        })  # fmt: skip
    varied = {
        name: {"set": device.plausible[name].set, "why": device.plausible[name].why}
        for name in variants.devices
    }
    return {
        "device": device.name, "digest": device.digest, "peak_gbps": device.peak_gbps,
        "variants": varied, "left_out": variants.left_out, "patterns": rows,
    }  # fmt: skip


def ranges_sheet(found: dict[str, Any]) -> Section:
    """A line a pattern."""
    count = len(found["variants"])
    title = f"{found['device']}: GB/s delivered as described, and over {count} plausible variants"
    rows = [
        [
            row["pattern"],
            f"{row['gbps'][AS_DESCRIBED]:,.2f}",
            *(cell for end in ("least", "most")
              for cell in (f"{row[end]['gbps']:,.2f}", row[end]["variant"])),
        ]
        for row in found["patterns"]
    ]  # fmt: skip
    grid = Grid("", ["pattern", AS_DESCRIBED, "least", "with", "most", "with"], rows)
    left = [Say(f"left out: {name}, {why}") for name, why in found["left_out"].items()]
    return Section(title, [Say(title), grid, *left])


def refresh_costs(device: Device, found: list[RefreshCost]) -> dict[str, Any]:
    """The table as JSON."""
    rows = [asdict(cost) | asdict(cost.choice) for cost in found]
    for row in rows:
        del row["choice"]
    return {"device": device.name, "version": version(), "rows": rows}


def refresh_sheet(device: Device, found: list[RefreshCost]) -> Section:
    """A line a choice, a column a pattern; then what per-bank refresh gains or loses, and why."""
    patterns = list(dict.fromkeys(cost.pattern for cost in found))
    by = {(cost.choice, cost.pattern): cost for cost in found}
    title = f"{device.memory.name}, one channel, reads: share of the bandwidth without refresh"
    rows = []
    for choice in dict.fromkeys(cost.choice for cost in found):
        costs = [by[choice, pattern] for pattern in patterns]
        shares = [
            f"{cost.gbps:.2f} GB/s" if choice.refresh == "none" else f"{cost.relative:.1%}"
            for cost in costs
        ]
        order = choice.order.replace("_", " ") if choice.refresh == "per_bank" else ""
        postpone = "" if choice.refresh == "none" else str(choice.postpone)
        name = [choice.refresh.replace("_", " "), order, postpone]
        rows.append([*name, *shares, f"{costs[0].refreshing:.1%}"])
    grid = Grid("", ["refresh", "order", "postpone", *patterns, "bank refreshing"], rows)
    return Section(title, [Say(title), grid, *map(Say, _why(by, patterns))])


def _why(by: dict[tuple[RefreshChoice, str], RefreshCost], patterns: list[str]) -> list[str]:
    """Sentences: for each pattern, the best of each policy and what made the difference."""
    lines = []
    for pattern in patterns:
        best: dict[str, RefreshCost] = {}
        for (choice, of), cost in by.items():
            kept = best.get(choice.refresh)
            if of == pattern and (kept is None or cost.gbps > kept.gbps):
                best[choice.refresh] = cost
        if not {"all_bank", "per_bank"} <= set(best):
            continue
        every, single = best["all_bank"], best["per_bank"]
        gain = single.gbps / every.gbps - 1
        verb = "wins" if gain > 0.001 else "loses" if gain < -0.001 else "makes no difference"
        lines.append(
            f"{pattern}: per-bank {verb} ({gain:+.1%}). All-bank stops the rank for"
            f" {every.refreshing:.1%} of the time and reopens"
            f" {every.conflicts_per_refresh:.1f} rows a refresh; per-bank keeps each bank busy"
            f" for {single.refreshing:.1%} and reopens"
            f" {single.conflicts_per_refresh:.1f}."
        )
    return lines
