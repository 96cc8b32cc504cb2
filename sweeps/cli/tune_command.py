"""`bankwise tune`. Imports stay inside, as in `cli`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sweeps.cli.options import Device, Jobs, Json, Plugin, Set

if TYPE_CHECKING:
    from sweeps.ask.server_settings import Asked
    from sweeps.ask.tuning import Choice


def tune(
    device: Device,
    model: Annotated[str, typer.Argument(help="A shipped model, or a YAML file.")],
    workload: Annotated[str, typer.Option(help="A shipped workload, a YAML file, or a trace.")],
    slo: Annotated[
        str, typer.Option(metavar="ttft=2s,tpot=100ms", help="What 9 of 10 requests attain.")
    ],
    only: Annotated[
        str | None,
        typer.Option(metavar="block,kv", help="block, kv, chunk, caching, sequences, cards; all."),
    ] = None,
    weights: Annotated[str | None, typer.Option(help="Their format; the model's own.")] = None,
    cards: Annotated[int, typer.Option(min=1, help="Cards of the base.")] = 1,
    replications: Annotated[int | None, typer.Option(min=2, help="Of each setting; 5.")] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="In each replication; 400.")] = None,
    fidelity: Annotated[
        str,
        typer.Option(help="Of simulated memory: sampled, or analytic (blocks cost nothing)."),
    ] = "sampled",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is tried and how long it takes.")
    ] = False,
    jobs: Jobs = None,
    json: Json = False,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Find a server's settings for an objective: what each is worth, and the flags.

    Each setting is changed alone from vLLM's defaults; the best are taken together and tried again.
    """
    from hwmodel.description.description import DescriptionError
    from sweeps.ask import server_settings as settings
    from sweeps.ask import tuning
    from sweeps.ask.sized import slo_of
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.tune_sheet import record, sheet
    from sweeps.run.executor import worker_count
    from sweeps.run.progress import Progress

    workers = worker_count(jobs)
    if fidelity not in ("sampled", "analytic"):
        raise DescriptionError(f"expected sampled or analytic; got {fidelity!r}", "--fidelity")
    asked = settings.Asked(
        device, model, workload, slo_of(slo), weights, cards, only.split(",") if only else (),
        "sampled" if fidelity == "sampled" else "analytic", requests or settings.REQUESTS,
        replications or settings.REPLICATIONS, sets=overrides or (),
    )  # fmt: skip
    found = tuning.choices(asked)
    _refuse_misfit(asked, found[0])
    again = min(len(asked.factors()), 2) + 1
    tries = (len(found) + again) * asked.replications
    seconds = tries * tuning.goodput_s(found[0].experiment)
    names = ", ".join(each.name for each in found[1:])
    print(f"at most {tries} goodputs, about {seconds / 60:.1f} CPU minutes; tried: {names}",
          file=sys.stderr)  # fmt: skip
    if dry_run:
        return
    tuned = tuning.tune(asked, found, workers, Progress())
    print_json(record(tuned)) if json else print_section(sheet(tuned))


def _refuse_misfit(asked: Asked, base: Choice) -> None:
    """Raise DescriptionError, which says with what it would fit, where the weights do not."""
    from hwmodel.description.description import DescriptionError
    from sweeps.ask.fit import Misfit, Question, fit
    from sweeps.plan.experiment import device_of, model_of
    from sweeps.report.fit_sheet import change_text

    question = Question(weights=asked.weights, cards=asked.cards)
    found = fit(device_of(base.experiment), model_of(base.experiment), question)
    if isinstance(found, Misfit):
        hint = f"; it fits with {change_text(found.change)}" if found.change else ""
        raise DescriptionError(
            f"does not fit: {found.why}{hint}", f"{asked.model} on {asked.device}"
        )
