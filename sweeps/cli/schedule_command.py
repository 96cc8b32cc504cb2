"""`bankwise schedule-check`: our scheduler beside vLLM's, step for step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sweeps.cli.options import FOUND, Json


def schedule_check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Schedules of vLLM, JSON or gzip.")],
    json: Json = False,
) -> None:
    """Compare the v1 engine with schedules of the real vLLM scheduler, step for step.

    Exit code 0: all agree; 1: one differs; 2: the file is at fault.
    """
    from policies.engines.schedule_check import check, read_cases
    from sweeps.report.screen import print_json, print_table

    found = [check(case) for case in read_cases(file)]
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
        print_table(["case", "vLLM", "steps", "agreeing steps", "first difference"], rows, "<<>><")
        print(f"\n{len(found) - differ} of {len(found)} cases agree in every step")
    if differ:
        raise typer.Exit(FOUND)
