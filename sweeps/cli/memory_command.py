"""`bankwise memory`. Imports stay inside, as in `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import Device, Html, Json, Plugin, Set, mistake, wrote


def command(
    device: Device,
    pattern: Annotated[
        list[str] | None,
        typer.Option("--pattern", help="An access pattern; repeatable. All by default."),
    ] = None,
    plausible: Annotated[
        bool,
        typer.Option(
            "--plausible", help="Add least and most over the device's plausible variants."
        ),
    ] = False,
    racm: Annotated[
        bool,
        typer.Option(
            "--racm",
            help="Instead: is random access so slow that KV should be contiguous (a RACM, as ODMA "
            "calls it)?",
        ),
    ] = False,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Instead: all refresh policies, on one channel."),
    ] = False,
    latency: Annotated[
        bool,
        typer.Option("--latency", help="Instead: read latency against bandwidth over loads."),
    ] = False,
    layouts: Annotated[
        bool,
        typer.Option(
            "--layouts", help="Instead: what the order of KV costs, by its shape and the map."
        ),
    ] = False,
    pad: Annotated[
        str | None, typer.Option(metavar="SIZE", help="With --layouts: behind each row; 16B.")
    ] = None,
    extent: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIZE",
            help="Contiguous bytes at a random multiple of their number: a pattern more; "
            "repeatable; with --racm or --latency: one.",
        ),
    ] = None,
    writes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PERCENT",
            help="With --extent or --latency: of the extents, how many write; repeatable with "
            "--extent, each of them then.",
        ),
    ] = None,
    align: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="With --extent: extents begin at multiples of it; else packed."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="With --racm: the share of sequential to reach; 0.7 by default."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="With --racm: that extent as described, nothing else.")
    ] = False,
    html: Html = None,
    chart: Annotated[
        Path | None,
        typer.Option(
            "--chart",
            metavar="FILE",
            help="With --latency or --layouts: draw it as .svg, .png or .pdf.",
        ),
    ] = None,
    json: Json = False,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Simulate what a device's memory reaches, by pattern.

    Beside it stands its closed-form bound. --html goes with --racm and --latency.
    """
    from hwmodel.measure.bandwidth import measure_patterns
    from hwmodel.measure.refresh_cost import refresh_table
    from hwmodel.specs.device import load_device
    from sweeps.cli import memory_tables as tables
    from sweeps.report.racm_report import extent_bytes
    from sweeps.report.screen import print_json, print_section, show_bandwidth
    from sweeps.run.progress import Progress

    kinds = {
        "--pattern": bool(pattern), "--racm": racm, "--refresh": refresh, "--latency": latency,
        "--layouts": layouts,
    }  # fmt: skip
    asked = {
        "--plausible": plausible, "--align": align, "--quick": quick, "--extent": extent,
        "--writes": writes, "--threshold": threshold, "--html": html, "--chart": chart,
        "--pad": pad,
    }  # fmt: skip
    tables.check_options(
        [option for option, on in kinds.items() if on],
        [option for option, value in asked.items() if value is not None and value is not False],
    )
    grid = tables.grid_bytes(align)
    shares = [tables.write_share(each) for each in writes or []]
    if (racm or latency) and len(shares) > 1:
        raise mistake(f"one with --latency; got {', '.join(writes or [])}", "--writes")
    share = shares[0] if shares else None
    extents = extent or []
    if racm:
        one = tables.one_extent(extents, "--racm")
        _racm(device, overrides or [], one, threshold, quick, html, json)
        return
    if latency:
        one = tables.one_extent(extents, "--latency")
        _latency(device, overrides or [], one, share, html, chart, json)
        return
    if layouts:
        _layouts(device, overrides or [], pad, chart, json)
        return
    loaded = load_device(device, overrides or [])
    if refresh:
        costs = refresh_table(loaded.memory)
        if json:
            print_json(tables.refresh_costs(loaded, costs))
        else:
            print_section(tables.refresh_sheet(loaded, costs))
    elif plausible:
        ranges = tables.ranges(device, overrides or [], pattern or ())
        print_json(ranges) if json else print_section(tables.ranges_sheet(ranges))
    else:
        sizes = [extent_bytes(loaded, each) for each in extents]
        through = Progress().through("patterns")
        found = measure_patterns(loaded, pattern or (), sizes, share or 0.0, through, grid)
        for more in dict.fromkeys(shares[1:]):  # the same extents, others written
            known = {row["pattern"] for row in found}
            each = measure_patterns(loaded, ["sequential"], sizes, more, through, grid)
            found += [row for row in each[1:] if row["pattern"] not in known]
        print_json(found) if json else show_bandwidth(loaded, found)


def _layouts(
    device: str, overrides: list[str], pad: str | None, chart: Path | None, json: bool
) -> None:
    from sweeps.ask.kv_layouts import kv_layouts
    from sweeps.cli.layout_table import chart as picture
    from sweeps.cli.layout_table import record, sheet
    from sweeps.cli.memory_tables import check_picture, draw, size_bytes
    from sweeps.report.screen import print_json, print_section
    from sweeps.run.progress import Progress

    check_picture(chart)
    behind = 16 if pad is None else size_bytes(pad, "--pad")
    found = kv_layouts(device, overrides, behind, Progress().through("layouts"))
    print_json(record(found)) if json else print_section(sheet(found))
    if chart is not None:
        draw([picture(found)], chart)
        wrote([chart], json)


def _latency(
    device: str, overrides: list[str], extent: str | None, writes: float | None,
    html: Path | None, chart: Path | None, json: bool,
) -> None:  # fmt: skip
    from sweeps.cli.memory_tables import check_picture, draw
    from sweeps.report.latency_report import charts, latency, page_section, record
    from sweeps.report.page import page
    from sweeps.report.screen import print_json, print_section
    from sweeps.run.progress import Progress

    check_picture(chart)
    found = latency(device, overrides, extent, writes, Progress().through("loads"))
    print_json(record(found)) if json else print_section(page_section(found))
    if html is not None:
        html.write_text(page([page_section(found, drawn=True)]), encoding="utf-8")
    if chart is not None:
        draw(charts(found), chart)
    wrote([file for file in (html, chart) if file is not None], json)


def _racm(
    device: str, overrides: list[str], extent: str | None, threshold: float | None, quick: bool,
    html: Path | None, json: bool,
) -> None:  # fmt: skip
    from sweeps.report.page import page
    from sweeps.report.racm_page import section
    from sweeps.report.racm_report import EXTENT, THRESHOLD, racm, record
    from sweeps.report.screen import print_json, print_section
    from sweeps.run.progress import Progress

    judged = THRESHOLD if threshold is None else threshold
    found = racm(
        device, overrides, extent or EXTENT, judged, quick, Progress().through("simulations")
    )
    print_json(record(found)) if json else print_section(section(found))
    if html is not None:
        html.write_text(page([section(found, drawn=True)]), encoding="utf-8")
        wrote([html], json)
