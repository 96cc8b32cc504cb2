"""`bankwise replay`. Imports stay inside, as in `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import Clocks, Device, Json, Plugin, Set, Timeline, refuse, wrote


def command(
    device: Device,
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE",
            help="Text, also gzip, of one of these forms: `R 0x1f40`; CSV whose first line names "
            "its columns, `time_ns,op,address,size` (time_ns or time_ps, and size, may lack); "
            "`LD 0x1f40` and `R 0,0,1,2,100,32` (Ramulator); `0x1f40 READ 12` (DRAMsim3); "
            "`r,8000,64,4000` (gem5). Or .npz with address, write and, if it likes, size, "
            "picosecond. Accesses arrive at its times, if it has any, and are a burst without a "
            "size. Or a server's block tables, JSON lines (docs/calibrate.md)."
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
    banks: Annotated[
        bool,
        typer.Option("--banks", help="Add a map of activations and conflicts, channel by bank."),
    ] = False,
    timeline: Timeline = None,
    clocks: Clocks = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Model of block tables (default: that of their header)."),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option("--every", metavar="N", help="Replay every N-th step of block tables only."),
    ] = None,
    whole: Annotated[
        str | None,
        typer.Option(
            "--whole", metavar="SIZE",
            help="Largest layer of block tables simulated in full; of a larger one a window "
            "(default: 64MiB).",
        ),
    ] = None,
    json: Json = False,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:  # fmt: skip
    """Simulate an address trace or a server's block tables.

    --explain takes causes of low bandwidth away, one after another, and simulates again
    (docs/drive-a-memory.md). Of block tables each step's KV is read at its blocks' addresses, and
    again with each request in contiguous memory.
    """
    of_tables = {"--model": model, "--every": every, "--whole": whole}
    of_trace = {"--channel": channel, "--commands": commands, "--at-once": at_once,
                "--explain": explain, "--banks": banks, "--timeline": timeline,
                "--clocks": clocks}  # fmt: skip
    from hwmodel.specs.device import load_device
    from policies.serving.server_log import is_block_log

    if is_block_log(trace):
        from sweeps.ask.logged_kv_read import WHOLE, replay_blocks
        from sweeps.cli.kv_read_table import print_steps

        refuse("does not go with block tables", of_trace)
        loaded = load_device(device, overrides or [])
        one_in = 1 if every is None else every
        print_steps(*replay_blocks(loaded, trace, model, one_in, whole or WHOLE), json)
        return
    refuse("needs block tables (docs/calibrate.md)", of_tables)
    from hwmodel.measure.bank_map import BankMap
    from hwmodel.measure.replay import replay as play
    from sweeps.ask.low_bandwidth import explain as causes
    from sweeps.cli import bank_map_table, low_bandwidth_table
    from sweeps.report import timeline_file
    from sweeps.report.command_timeline import Kept
    from sweeps.report.screen import print_json, print_section, show_replay

    window = timeline_file.asked(timeline, clocks)
    loaded = load_device(device, overrides or [])
    kept = None if timeline is None else Kept(loaded.memory, window)
    counted = BankMap(loaded.memory, 1 if channel else loaded.channels) if banks else None
    found = play(
        loaded, trace, single_channel=channel, commands=commands, at_once=at_once,
        log=bank_map_table.sink(kept, counted),
    )  # fmt: skip
    if counted is not None:
        found["banks"] = bank_map_table.record(counted)
    chart = None if kept is None else timeline_file.drawn(loaded, kept.logs(), window)
    if explain:
        count = found["requests"]
        found["explanation"] = causes(
            loaded, device, overrides or [], trace, count, single_channel=channel, at_once=at_once
        )
    if timeline is not None and chart is not None:
        answer = low_bandwidth_table.answer(trace.name, found)
        timeline_file.write(timeline, loaded, chart, answer)
    if json:
        print_json(found)
        return
    show_replay(loaded, found)
    if counted is not None:
        print_section(bank_map_table.sheet(counted))
    if found["timed"]:
        print("accesses arrive at the times of the trace; without them: --at-once")
    if timeline is not None:
        wrote([timeline], json)
    if explain:
        print()
        print_section(low_bandwidth_table.sheet(found["explanation"]))
