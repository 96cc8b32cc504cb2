"""`bankwise validate`: the models' figures beside measured ones. Imports stay inside, as in
`main`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from sweeps.cli.options import FOUND, Json, Set, mistake, refuse

SCHEDULES = (".json", ".json.gz")
"""Endings of schedules of vLLM's scheduler."""
SERVERS = "servers"
"""The word for published times of whole servers."""


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Shipped measurements or servers, or YAML files; all by default.",
        ),
    ] = None,
    schedules: Annotated[
        list[Path] | None,
        typer.Option(
            "--schedules", metavar="FILE",
            help="Instead: our v1 engine beside schedules of the real vLLM, step for step; "
            "repeatable.",
        ),
    ] = None,
    candidates: Annotated[
        bool, typer.Option(help="With --json: each cell's figure under every candidate too.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="Compare measurements with this device, not with their own.")
    ] = None,
    json: Json = False,
    overrides: Set = None,
) -> None:  # fmt: skip
    """Compare the models with public measurements.

    Each cell is within tolerance, or refuted. `validate servers [MODEL]` shows published times of
    whole servers instead. A measured server whose log is not here is skipped;
    BANKWISE_DATA names the folder of logs.

    Exit code 0: done, also where a cell is refuted; 1: a cell marked `agrees` is refuted, or a
    schedule differs; 2: invalid input.
    """
    if schedules:
        refuse(
            "does not go with --schedules",
            {"--candidates": candidates, "--device": device, "--set": overrides or None},
        )
        more = [name for name in names or [] if not name.endswith(SCHEDULES)]
        if more:
            raise mistake("is no schedule of vLLM, JSON or gzip", more[0])
        _schedules([*schedules, *map(Path, names or [])], json)
        return
    if names and names[0] == SERVERS:
        refuse(
            f"does not go with {SERVERS}",
            {"--candidates": candidates, "--device": device, "--set": overrides or None},
        )
        _servers(names[1:], json)
        return
    from policies.memory.measured_cells import Skipped
    from sweeps.report import validation
    from sweeps.report.screen import print_json, print_section

    if candidates and not json:
        raise mistake("stands with --json", "--candidates")
    if device is not None and not names:
        raise mistake("stands with the FILE of measurements", "--device")
    every, records = [], []
    printed: list[tuple[Any, Any, str]] = []
    sources = [validation.loaded(each, device) for each in names or validation.sources()]
    for source, found in _compared(sources, overrides):
        spec = validation.spec_of(source)
        if isinstance(found, Skipped):
            if json:
                records.append({"name": spec.name, "skipped": str(found), "cells": []})
            else:
                printed.append((spec, None, str(found)))
            continue
        every += found
        if json:
            others = {
                other: validation.compared(source, other, overrides)
                for other in (validation.alternatives(spec) if candidates else ())
            }
            records.append(validation.record(spec, found, others if candidates else None))
            continue
        printed.append((spec, found, ""))
    if json:
        print_json(records)
    else:
        print_section(validation.sheet(every, printed))
    if any(item.lost for item in every):
        raise typer.Exit(FOUND)


def _compared(sources: list[Any], overrides: list[str] | None) -> Iterator[tuple[Any, Any]]:
    """Each source with its cells, or the reason why it is skipped."""
    from policies.memory.measured_cells import Skipped
    from sweeps.report import validation
    from sweeps.run.progress import Progress

    for source in Progress().through("measurements")(sources, len(sources)):
        try:
            yield source, validation.compared(source, overrides=overrides)
        except Skipped as error:
            yield source, error


def _servers(models: list[str], json: bool) -> None:
    """Published whole servers beside our serving, of models whose names contain a word."""
    from sweeps.ask.published_servers import ROWS, each, flops_share, possible, summary
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.servers_sheet import sheet
    from sweeps.run.progress import Progress

    if len(models) > 1:
        raise mistake("expected one word of a model's name", models[1])
    word = models[0] if models else ""
    rows = possible(word)
    if not rows:
        known = ", ".join(dict.fromkeys(row.model for row in ROWS))
        raise mistake(f"no published server of it; expected part of {known}", word)
    shown = Progress().through("servers")(list(rows), len(rows))
    found = list(each(shown))
    out = [row for row in ROWS if word in row.model and row not in rows]
    if json:
        print_json({
            **summary(found),
            "servers": [
                {**one.row._asdict(), "simulated_ttft_ms": one.ttft_ms,
                 "simulated_tpot_ms": one.tpot_ms, "inside": one.inside} for one in found
            ],
            "not_possible": [{**row._asdict(), "flops_share": flops_share(row)} for row in out],
        })  # fmt: skip
    else:
        print_section(sheet(found, out, summary(found)))


def _schedules(files: list[Path], json: bool) -> None:
    """Our scheduler beside vLLM's, step for step. Exit code 1 where one differs."""
    from policies.engines.schedule_cases import read_cases
    from policies.engines.schedule_check import check
    from sweeps.report.screen import print_json, print_section
    from sweeps.run.progress import Progress
    from sweeps.sections.section import Grid, Say, Section

    cases = [case for file in files for case in read_cases(file)]
    found = [check(case) for case in Progress().through("cases")(cases, len(cases))]
    differ = sum(each.difference is not None for each in found)
    if json:
        print_json(
            [
                {**each._asdict(), "difference": each.difference and each.difference._asdict()}
                for each in found
            ]
        )
    else:
        rows = [
            [each.name, each.vllm, f"{each.steps:,}", f"{each.agreeing:,}",
             str(each.difference or "none")[:120]]
            for each in found
        ]  # fmt: skip
        heads = ["case", "vLLM", "steps", "agreeing steps", "first difference"]
        told = f"{len(found) - differ} of {len(found)} cases agree in every step"
        print_section(Section("Schedules", [Grid("", heads, rows), Say(told)]))
    if differ:
        raise typer.Exit(FOUND)
