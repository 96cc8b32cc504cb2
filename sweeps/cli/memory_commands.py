"""The commands about memory alone, where nothing is served. Imports stay inside, as in `cli`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import FOUND, Device, Json, Set

Timeline = Annotated[
    Path | None,
    typer.Option(
        "--timeline", metavar="FILE",
        help="Draw the commands by bank over time: .svg, .png, .pdf or .html.",
    ),
]  # fmt: skip
Window = Annotated[
    str | None,
    typer.Option(
        "--clocks", metavar="A:B",
        help="With --timeline: from clock A to B; a few hundred after warm-up by default.",
    ),
]  # fmt: skip


def devices(
    names: Annotated[
        list[str] | None, typer.Argument(help="Devices to show, with remarks; all by default.")
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate/--no-simulate", help="Simulate each memory's bounds.")
    ] = False,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """List devices with peak, capacity and bounds; --simulate adds what memories reach."""
    from sweeps.cli.catalogue import add_simulated, catalogue, show_simulated
    from sweeps.report.screen import print_json, show_devices

    found = catalogue(overrides or [], names)
    if simulate:
        add_simulated(found, overrides or [])
    if json:
        print_json(found)
        return
    show_devices(found, details=bool(names))
    if simulate:
        show_simulated(found)


def bandwidth(
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
        bool, typer.Option("--racm", help="Compare random extents with sequential access instead.")
    ] = False,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Compare all refresh policies on one channel, instead."),
    ] = False,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate", help="Random extents by a closed form, at once, instead of simulating."
        ),
    ] = False,
    latency: Annotated[
        bool,
        typer.Option("--latency", help="Read latency against bandwidth over offered loads."),
    ] = False,
    extent: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Contiguous bytes at a random multiple of their number: a pattern more. With "
            "--racm, --estimate, --latency: these alone.",
        ),
    ] = None,
    writes: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT", help="With --extent or --latency: of the extents, how many write."
        ),
    ] = None,
    align: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="With --estimate: extents begin at multiples of it; else packed."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="With --racm: the share of sequential to reach; 0.7 by default."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="With --racm: that extent as described, nothing else.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="With --racm or --latency: write its page."),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(
            "--chart", metavar="FILE", help="With --latency: draw it as .svg, .png or .pdf."
        ),
    ] = None,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """Simulated bandwidth and closed-form bound of a device, by access pattern."""
    from hwmodel.measure.bandwidth import measure_patterns
    from hwmodel.measure.refresh_cost import refresh_table
    from hwmodel.specs.device import load_device
    from sweeps.cli import bandwidth_tables as tables
    from sweeps.report.racm_report import extent_bytes
    from sweeps.report.screen import print_json, show_bandwidth

    kinds = {
        "--pattern": bool(pattern), "--racm": racm, "--refresh": refresh, "--estimate": estimate,
        "--latency": latency,
    }  # fmt: skip
    asked = {
        "--plausible": plausible, "--align": align, "--quick": quick, "--extent": extent,
        "--writes": writes, "--threshold": threshold, "--html": html, "--chart": chart,
    }  # fmt: skip
    tables.check_options(
        [option for option, on in kinds.items() if on],
        [option for option, value in asked.items() if value not in (None, False)],
    )
    share = None if writes is None else tables.write_share(writes)
    if racm:
        _racm(device, overrides or [], extent, threshold, quick, html, json)
        return
    if latency:
        _latency(device, overrides or [], extent, share, html, chart, json)
        return
    loaded = load_device(device, overrides or [])
    if estimate:
        estimates = tables.estimated(loaded, extent, align)
        print_json(estimates) if json else tables.show_estimates(estimates)
    elif refresh:
        costs = refresh_table(loaded.memory)
        if json:
            print_json(tables.refresh_costs(loaded, costs))
        else:
            tables.show_refresh(loaded, costs)
    elif plausible:
        ranges = tables.ranges(device, overrides or [], pattern or ())
        print_json(ranges) if json else tables.show_ranges(ranges)
    else:
        size = None if extent is None else extent_bytes(loaded, extent)
        found = measure_patterns(loaded, pattern or (), size, share or 0.0)
        print_json(found) if json else show_bandwidth(loaded, found)


def _latency(
    device: str, overrides: list[str], extent: str | None, writes: float | None,
    html: Path | None, chart: Path | None, json: bool,
) -> None:  # fmt: skip
    from sweeps.cli.bandwidth_tables import check_picture, draw
    from sweeps.report.latency_report import charts, latency, page_section, record
    from sweeps.report.page import page
    from sweeps.report.screen import print_json, print_section

    check_picture(chart)
    found = latency(device, overrides, extent, writes)
    print_json(record(found)) if json else print_section(page_section(found))
    if html is not None:
        html.write_text(page([page_section(found, drawn=True)]), encoding="utf-8")
    if chart is not None:
        draw(charts(found), chart)
    for file in (html, chart):
        if file is not None and not json:
            print(f"wrote {file}")


def _racm(
    device: str, overrides: list[str], extent: str | None, threshold: float | None, quick: bool,
    html: Path | None, json: bool,
) -> None:  # fmt: skip
    from sweeps.report.racm_page import page
    from sweeps.report.racm_report import EXTENT, THRESHOLD, racm, record, show_racm
    from sweeps.report.screen import print_json

    judged = THRESHOLD if threshold is None else threshold
    found = racm(device, overrides, extent or EXTENT, judged, quick)
    print_json(record(found)) if json else show_racm(found)
    if html is not None:
        html.write_text(page(found), encoding="utf-8")
        if not json:
            print(f"wrote {html}")


def replay(
    device: Device,
    trace: Annotated[
        Path,
        typer.Argument(
            help="Lines `R 0x1f40`, or of Ramulator, DRAMsim3 or gem5 (docs/export.md), also gzip; "
            "or .npz with address, write; they arrive at its times, if it has any."
        ),
    ],
    channel: Annotated[
        bool,
        typer.Option(
            "--channel", help="Addresses are those of one channel; simulate that channel only."
        ),
    ] = False,
    commands: Annotated[
        Path | None,
        typer.Option("--commands", metavar="FILE", help="Write every DRAM command as CSV."),
    ] = None,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Leave out the times of the trace, if it has any.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Why it is below the peak, and the change that helps most."),
    ] = False,
    timeline: Timeline = None,
    clocks: Window = None,
    json: Json = False,
    overrides: Set = None,
) -> None:
    """Simulate an address trace on a device.

    --explain takes causes of low bandwidth away, one after another, and simulates again
    (docs/low-bandwidth.md).
    """
    from hwmodel.measure.replay import replay as play
    from hwmodel.specs.device import load_device
    from sweeps.ask.low_bandwidth import explain as causes
    from sweeps.cli import low_bandwidth_table, timeline_file
    from sweeps.report.command_timeline import Kept
    from sweeps.report.screen import print_json, show_replay

    window = timeline_file.asked(timeline, clocks)
    loaded = load_device(device, overrides or [])
    kept = None if timeline is None else Kept(loaded.memory, window)
    found = play(
        loaded, trace, single_channel=channel, commands=commands, at_once=at_once, log=kept
    )
    if timeline is not None and kept is not None:
        timeline_file.write(timeline, loaded, kept.logs(), window)
    if explain:
        count = found["requests"]
        found["explanation"] = causes(
            loaded, device, overrides or [], trace, count, single_channel=channel, at_once=at_once
        )
    if json:
        print_json(found)
        return
    show_replay(loaded, found)
    if found["timed"]:
        print("accesses arrive at the times of the trace; without them: --at-once")
    if timeline is not None:
        print(f"wrote {timeline}")
    if explain:
        low_bandwidth_table.show_low_bandwidth(found["explanation"])


def kv_read(
    device: Device,
    log: Annotated[
        Path, typer.Argument(help="Block tables of a server, JSON lines (docs/block-tables.md).")
    ],
    model: Annotated[
        str | None, typer.Option("--model", help="Overrides the model in the log's header.")
    ] = None,
    every: Annotated[int, typer.Option("--every", help="Simulate every N-th step only.")] = 1,
    whole: Annotated[
        str,
        typer.Option(
            "--whole", metavar="SIZE", help="Largest layer simulated in full; larger: a window."
        ),
    ] = "64MiB",
    json: Json = False,
    overrides: Set = None,
) -> None:
    """Simulate the KV reads of decode steps that a server logged.

    Each step is read at its blocks' addresses, and again with each request in contiguous memory.
    """
    from hwmodel.specs.device import load_device
    from sweeps.ask.logged_kv_read import replay_blocks
    from sweeps.cli.kv_read_table import print_steps

    loaded = load_device(device, overrides or [])
    print_steps(*replay_blocks(loaded, log, model, every, whole), json)


def audit(
    device: Device,
    commands: Annotated[
        Path, typer.Argument(metavar="COMMANDS.csv", help="A log written by `replay --commands`.")
    ],
    timeline: Timeline = None,
    clocks: Window = None,
    overrides: Set = None,
) -> None:
    """Check a DRAM command log against every timing rule.

    Exit code 0: no violation; 1: violations found; 2: the input cannot be read.
    """
    from hwmodel.oracle.command_log import read_csv
    from hwmodel.specs.device import load_device
    from sweeps.cli import timeline_file
    from sweeps.report.screen import show_audit

    window = timeline_file.asked(timeline, clocks)
    loaded = load_device(device, overrides or [])
    if timeline is not None:
        timeline_file.write(timeline, loaded, read_csv(loaded.memory, commands), window)
    violations = show_audit(loaded, commands)
    if timeline is not None:
        print(f"wrote {timeline}")
    if violations:
        raise typer.Exit(FOUND)
