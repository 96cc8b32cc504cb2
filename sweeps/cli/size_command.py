"""`bankwise size`. Imports stay inside, as in `main`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.cli.options import Jobs, Json, Kv, Plugin, Set, Weights, mistake, refuse, shipped

if TYPE_CHECKING:
    from sweeps.ask.server_settings import SettingsQuestion
    from sweeps.ask.tuning import TuningChoice


def command(
    model: Annotated[
        str,
        typer.Option(help="A shipped model, or a YAML file.", autocompletion=shipped("models")),
    ],
    workload: Annotated[
        str,
        typer.Option(
            help="A shipped workload, a YAML file, or a trace.", autocompletion=shipped("workloads")
        ),
    ],
    slo: Annotated[
        str | None, typer.Option(metavar="ttft=2s,tpot=100ms", help="What 9 of 10 requests attain.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Instead: which settings of a server on this device.",
            autocompletion=shipped("accelerators"),
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests a second, with --slo; 1 by default.")
    ] = None,
    tokens_per_s: Annotated[
        float | None, typer.Option("--tokens-per-s", help="Output tokens a second, instead.")
    ] = None,
    users: Annotated[
        int | None,
        typer.Option(help="Users, each of whom waits for an answer, instead; with --slo."),
    ] = None,
    think: Annotated[
        float | None, typer.Option(help="Seconds from an answer to the user's next request; 0.")
    ] = None,
    vary: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="Whose memory is varied; the cheapest that meets it."),
    ] = None,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Instead: how many requests run at once within --slo.")
    ] = False,
    cards: Annotated[
        int | None, typer.Option(min=1, help="Cards that share the model; as few as hold it.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these; all by default.")
    ] = None,
    weights: Weights = None,
    kv: Kv = None,
    policy: Annotated[
        str | None, typer.Option(help="A KV policy, or {name: paged, block: 64}; paged.")
    ] = None,
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
    only: Annotated[
        str | None,
        typer.Option(
            metavar="block,kv",
            help="Settings: block, kv, chunk, caching, sequences, watermark, cards; all.",
        ),
    ] = None,
    replications: Annotated[int | None, typer.Option(min=2, help="Of each setting; 5.")] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Of a setting, in each replication; 400.")
    ] = None,
    fidelity: Annotated[
        str | None,
        typer.Option(help="Of a setting's memory: sampled, or analytic (blocks cost nothing)."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which settings are tried, and CPU minutes.")
    ] = False,
    overrides: Set = None,
    plugin: Plugin = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Say which device meets an objective, or which settings do.

    Each described device, then the least bandwidth of one by capacity and format of the weights.
    With --device each setting of a server is changed alone from vLLM's defaults; the best are taken
    together and tried again. With --pools the fewest replicas of it, prefill and decode apart over
    a link, and together.
    """
    of_settings = {"--only": only, "--replications": replications, "--requests": requests,
                   "--fidelity": fidelity, "--dry-run": dry_run}  # fmt: skip
    of_load = {"--rate": rate, "--tokens-per-s": tokens_per_s, "--users": users, "--think": think,
               "--policy": policy, "--at-once": at_once}  # fmt: skip
    of_cards = {"--devices": devices, "--vary": vary, "--price": price, "--watts": watts,
                "--confirm": confirm}  # fmt: skip
    if pools is not None or device is not None:
        refuse("does not go with --pools" if pools else "does not go with --device", of_cards)
    if device is not None and pools is None:
        refuse("does not go with --device", of_load | {"--kv": kv})
        if slo is None:
            raise mistake("needs --slo; whose memory is varied says --vary", "--device")
        from sweeps.ask.server_settings import REPLICATIONS, REQUESTS, SettingsQuestion
        from sweeps.ask.sized import slo_of

        if fidelity not in (None, "sampled", "analytic"):
            raise mistake(f"expected sampled or analytic; got {fidelity!r}", "--fidelity")
        asked = SettingsQuestion(
            device, model, workload, slo_of(slo), weights, cards or 1,
            only.split(",") if only else (),
            "analytic" if fidelity == "analytic" else "sampled", requests or REQUESTS,
            replications or REPLICATIONS, sets=overrides or (),
        )  # fmt: skip
        _settings(asked, jobs, dry_run, json)
        return
    refuse("needs --device", of_settings)
    from sweeps.ask.sized import SizeQuestion, pooled, sized
    from sweeps.report.pool_size_sheet import pool_record, pool_sheet
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.size_sheet import record, sheet
    from sweeps.run.executor import worker_count

    question = SizeQuestion(
        model, workload, slo, rate, tokens_per_s, users, think or 0.0, at_once, device or vary,
        cards, tuple(devices.split(",")) if devices else (), weights, kv, policy or "paged",
        tuple(price or ()), tuple(watts or ()), tuple(overrides or ()),
    )  # fmt: skip
    if pools is not None:
        apart = pooled(question, pools, worker_count(jobs))
        print_json(pool_record(apart)) if json else print_section(pool_sheet(apart))
        return
    found = sized(question, worker_count(jobs), confirm)
    print_json(record(found)) if json else print_section(sheet(found))


def _settings(asked: SettingsQuestion, jobs: int | None, dry_run: bool, json: bool) -> None:
    """What each setting of a server is worth, and the flags."""
    from sweeps.ask import tuning
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.tune_sheet import record, sheet
    from sweeps.run.executor import worker_count
    from sweeps.run.progress import Progress
    from sweeps.sections.formats import cpu_text

    workers = worker_count(jobs)
    found = tuning.choices(asked)
    _refuse_misfit(asked, found[0])
    again = min(len(asked.factors()), 2) + 1
    tries = (len(found) + again) * asked.replications
    seconds = tries * tuning.goodput_s(found[0].experiment)
    names = ", ".join(each.name for each in found[1:])
    print(f"at most {tries} goodputs, {cpu_text(seconds / 60)}; tried: {names}",
          file=sys.stderr)  # fmt: skip
    if dry_run:
        return
    tuned = tuning.tune(asked, found, workers, Progress())
    print_json(record(tuned)) if json else print_section(sheet(tuned))


def _refuse_misfit(asked: SettingsQuestion, base: TuningChoice) -> None:
    """Raise DescriptionError, which says with what it would fit, where the weights do not."""
    from hwmodel.description.description import DescriptionError
    from sweeps.ask.fit import FitQuestion, Misfit, fit
    from sweeps.ask.fit_section import change_text
    from sweeps.plan.experiment import device_of, model_of

    question = FitQuestion(weights=asked.weights, cards=asked.cards)
    found = fit(device_of(base.experiment), model_of(base.experiment), question)
    if isinstance(found, Misfit):
        hint = f"; it fits with {change_text(found.change)}" if found.change else ""
        raise DescriptionError(
            f"does not fit: {found.why}{hint}", f"{asked.model} on {asked.device}"
        )
