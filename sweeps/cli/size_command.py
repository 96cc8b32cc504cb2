"""`bankwise size`. Imports stay inside, as in `cli`."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeps.cli.options import Jobs, Json, Plugin, Set, mistake


def size(
    model: Annotated[str, typer.Option(help="A shipped model, or a YAML file.")],
    workload: Annotated[str, typer.Option(help="A shipped workload, a YAML file, or a trace.")],
    slo: Annotated[
        str | None, typer.Option(metavar="ttft=2s,tpot=100ms", help="What 9 of 10 requests attain.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second, with --slo; 1 by default.")
    ] = None,
    tokens_per_s: Annotated[
        float | None, typer.Option("--tokens-per-s", help="Output tokens a second, instead.")
    ] = None,
    users: Annotated[
        int | None, typer.Option(help="Users who each wait for an answer, instead; with --slo.")
    ] = None,
    think: Annotated[
        float, typer.Option(help="Seconds from an answer to the user's next request.")
    ] = 0.0,
    device: Annotated[
        str | None, typer.Option(help="Whose memory is varied; the cheapest that meets it.")
    ] = None,
    cards: Annotated[int, typer.Option(help="Cards that share the model.")] = 1,
    devices: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these; all by default.")
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Only this format of the weights.")] = None,
    kv: Annotated[str | None, typer.Option(help="Format of the KV; the model's own.")] = None,
    policy: Annotated[
        str, typer.Option(help="A KV policy, or {name: paged, block: 64}.")
    ] = "paged",
    price: Annotated[
        list[str] | None, typer.Option(metavar="NAME=AMOUNT", help="Of a card; repeatable.")
    ] = None,
    watts: Annotated[
        list[str] | None, typer.Option(metavar="NAME=AMOUNT", help="Of a card; repeatable.")
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Run a sweep at the load that was found.")
    ] = False,
    pools: Annotated[
        str | None,
        typer.Option(metavar="LINK", help="Instead: replicas of --device, prefill apart."),
    ] = None,
    overrides: Set = None,
    plugin: Plugin = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Find which device, bandwidth, capacity and weights meet an objective.

    Each described device, then the least bandwidth of one by capacity and format of the weights.
    With --pools the fewest replicas of one, prefill and decode apart over a link, and together.
    """
    from sweeps.ask.sized import SizeQuestion, pooled, sized
    from sweeps.report.pool_size_sheet import pool_record, pool_sheet
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.size_sheet import record, sheet
    from sweeps.run.executor import worker_count

    asked = SizeQuestion(
        model, workload, slo, rate, tokens_per_s, users, think, device, cards,
        tuple(devices.split(",")) if devices else (), weights, kv, policy, tuple(price or ()),
        tuple(watts or ()), tuple(overrides or ()),
    )  # fmt: skip
    if pools is not None:
        for option, given in (("--devices", devices), ("--price", price), ("--watts", watts),
                              ("--confirm", confirm)):  # fmt: skip
            if given:
                raise mistake("not with --pools", option)
        apart = pooled(asked, pools, worker_count(jobs))
        print_json(pool_record(apart)) if json else print_section(pool_sheet(apart))
        return
    found = sized(asked, worker_count(jobs), confirm)
    print_json(record(found)) if json else print_section(sheet(found))
