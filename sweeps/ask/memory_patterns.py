"""What a device's memory reaches, by access pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from hwmodel.description.description import DescriptionError
from hwmodel.description.units import parse_quantity
from hwmodel.measure.bandwidth import measure_patterns
from hwmodel.measure.racm import check_extent
from hwmodel.specs.device import Device, load_device, load_variants
from sweeps.ask.question import DeviceName, Percent, Question, Several, SizeText, Text, Typed
from sweeps.plan.variant import AS_DESCRIBED
from sweeps.run.progress import Progress
from sweeps.sections.formats import NONE, confidence_text
from sweeps.sections.section import Block, Grid, Say, Section


class MemoryQuestion(Question):
    """Simulate what a device's memory reaches, by pattern.

    Beside it stands its closed-form bound.
    """

    former: ClassVar[Mapping[str, str]] = {
        "--racm": "a verb: `bankwise memory curve DEVICE`",
        "--latency": "a verb: `bankwise memory latency DEVICE`",
        "--refresh": "a verb: `bankwise memory refresh DEVICE`",
        "--layouts": "a verb: `bankwise memory layouts DEVICE`",
        "--html": "`--save`", "--chart": "`--save`",
    }  # fmt: skip
    needs: ClassVar[Mapping[str, str]] = {"writes": "extent", "align": "extent"}
    apart: ClassVar[tuple[tuple[str, str], ...]] = (("extent", "plausible"),)
    plugs: ClassVar[bool] = True

    device: DeviceName
    """A shipped accelerator or memory, or a YAML file; of a memory one channel is simulated."""
    pattern: Annotated[tuple[Text, ...], Several, Typed("NAME")] = ()
    """Access patterns to simulate; all by default."""
    extent: Annotated[tuple[Text, ...], Several, Typed("SIZE")] = ()
    """Adds a pattern: reads of SIZE contiguous bytes at random multiples of SIZE."""
    writes: Annotated[tuple[Percent, ...], Several, Typed("PERCENT")] = ()
    """Share of these extents that is written."""
    align: SizeText | None = None
    """Size at whose multiples these extents begin (default: their own size)."""
    plausible: bool = False
    """Adds the least and the most over the plausible variants that the device lists."""

    def answer(self) -> Any:
        """A record a pattern; with `plausible` one of all. Raises DescriptionError."""
        if self.plausible:
            return ranges(self.device, list(self.set), list(self.pattern))
        device, grid = load_device(self.device, list(self.set)), self._grid_bytes()
        sizes = [extent_bytes(device, each) for each in self.extent]
        shares = [each / 100 for each in dict.fromkeys(self.writes)] or [0.0]
        through = Progress().through("patterns")
        rows = measure_patterns(device, self.pattern, sizes, shares[0], through, grid)
        for share in shares[1:]:  # the same extents, others written
            known = {row["pattern"] for row in rows}
            more = measure_patterns(device, ["sequential"], sizes, share, through, grid)
            rows += [row for row in more[1:] if row["pattern"] not in known]
        return rows

    def _grid_bytes(self) -> int:
        """What extents begin at multiples of."""
        try:
            grid = 1 if self.align is None else parse_quantity(self.align, "size")
            if grid not in [1 << i for i in range(22)]:
                raise ValueError(f"expected a power of two up to 2 MiB; got {self.align}")
        except ValueError as error:
            raise DescriptionError(str(error), "--align") from None
        return int(grid)

    def section(self, findings: Any) -> Section:
        if self.plausible:
            return _ranges_section(findings)
        device = load_device(self.device, list(self.set))
        over = f"{device.channels} channel(s)"
        blocks: list[Block] = [
            Say(f"{device.name}: peak {device.peak_gbps:,.1f} GB/s over {over}"),
            Grid("", *_table(findings)),
        ]
        if device.derate < 1:
            blocks.append(Say(f"delivered: {device.derate:g} of it reaches the engines (derate)"))
        letters = [row["energy_confidence"] for row in findings if "energy_confidence" in row]
        if letters:
            blocks.append(Say(f"confidence of pJ/bit: {confidence_text(max(letters))}"))
        return Section(f"{device.name}: bandwidth by pattern", blocks)


def extent_bytes(device: Device, text: str, largest: int | None = None) -> int:
    """Bytes of an extent to simulate, up to `largest`. Raises DescriptionError for what is no size,
    no multiple of a burst, or larger."""
    try:
        size = parse_quantity(text, "size")
        check_extent(device.memory, size, largest)
    except ValueError as error:
        raise DescriptionError(str(error), "--extent") from None
    return int(size)


def ranges(name: str, overrides: list[str], patterns: list[str]) -> dict[str, Any]:
    """GB/s that reach the engines in each pattern, as described and of every variant. Raises
    DescriptionError where the device lists no variant."""
    device = load_device(name, overrides)
    variants = load_variants(name, overrides)
    if not device.plausible:
        raise DescriptionError(
            f"{device.name} lists no plausible variants; docs/your-device.md shows how to list"
            " them",
            "--plausible",
        )
    every = {AS_DESCRIBED: device, **variants.devices}
    through = Progress().through("variants")(every.items(), len(every))
    measured = {variant: measure_patterns(each, patterns) for variant, each in through}
    rows = []
    for items in zip(*measured.values(), strict=True):
        gbps = {
            name: item.get("delivered_gbps", item["bandwidth_gbps"])
            for name, item in zip(measured, items, strict=True)
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


def _ranges_section(findings: dict[str, Any]) -> Section:
    """A line a pattern."""
    count = len(findings["variants"])
    title = (
        f"{findings['device']}: GB/s delivered as described, and over {count} plausible variants"
    )
    rows = [
        [
            row["pattern"],
            f"{row['gbps'][AS_DESCRIBED]:,.2f}",
            *(cell for end in ("least", "most")
              for cell in (f"{row[end]['gbps']:,.2f}", row[end]["variant"])),
        ]
        for row in findings["patterns"]
    ]  # fmt: skip
    grid = Grid("", ["pattern", AS_DESCRIBED, "least", "with", "most", "with"], rows)
    left = [Say(f"left out: {name}, {why}") for name, why in findings["left_out"].items()]
    return Section(title, [Say(title), grid, *left])


def _table(findings: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads, and a row a pattern."""
    heads = [
        "pattern", "GB/s", "of peak", "bound GB/s", "bound by", "row hits", "pJ/bit", "requests"
    ]  # fmt: skip
    rows = []
    for item in findings:
        bound = item.get("bound_gbps")
        rows.append([
            str(item["pattern"]), f"{item['bandwidth_gbps']:,.2f}", f"{item['utilization']:.1%}",
            NONE if bound is None else f"{bound:,.2f}", _binding(item.get("bound_by", [])),
            _hits(item), _pj_per_bit(item), f"{item['requests']:,}",
        ])  # fmt: skip
    delivered = [item.get("delivered_gbps", item["bandwidth_gbps"]) for item in findings]
    if delivered != [item["bandwidth_gbps"] for item in findings]:
        heads.insert(2, "delivered")
        for row, gbps in zip(rows, delivered, strict=True):
            row.insert(2, f"{gbps:,.2f}")
    return heads, rows


def _pj_per_bit(item: dict[str, Any]) -> str:
    """Of what was asked for."""
    size = item["requested_bytes"]
    return f"{1000 * item['energy_nj'] / (8 * size):.2f}" if size else NONE


def _binding(limits: list[str]) -> str:
    """The peak, where it binds, for then all else is as wide by design; else two limits at most."""
    return "data bus" if "data bus" in limits else ", ".join(limits[:2]) or NONE


def _hits(item: dict[str, Any]) -> str:
    served = item["row_hits"] + item["row_misses"] + item["row_conflicts"]
    return f"{item['row_hits'] / served:.1%}" if served else NONE
