"""`bankwise states`. Imports stay inside, as in `cli`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from sweeps.cli.options import Json, Set

WORKLOADS = ["alpaca", "azure-conv", "azure-code", "r1-reasoning", "mooncake-conversation"]


class Mode(StrEnum):
    """See `policies.allocators.hybrid.Mode`."""

    none = "none"
    align = "align"
    all = "all"


def states(
    device: Annotated[str, typer.Argument(help="A shipped device or a YAML file.")],
    model: Annotated[str, typer.Argument(help="A shipped hybrid model or a YAML file.")],
    workloads: Annotated[
        list[str] | None, typer.Option("--workload", help="Whose lengths; several times.")
    ] = None,
    mode: Annotated[Mode, typer.Option(help="States that vLLM keeps for prefixes.")] = Mode.none,
    drafts: Annotated[int, typer.Option(min=0, max=16, help="Speculative tokens.")] = 0,
    ratio: Annotated[float, typer.Option(help="Of SGLang: bytes of states over KV.")] = 0.9,
    slots: Annotated[int, typer.Option(min=1, help="Of SGLang: states a running request.")] = 1,
    sequences: Annotated[int, typer.Option(min=1, help="Compact slots.")] = 256,
    kv: Annotated[str | None, typer.Option(metavar="FORMAT", help="Of the KV.")] = None,
    cards: Annotated[int, typer.Option(min=1, help="Cards that share the model.")] = 1,
    json: Json = False,
    overrides: Set = None,
) -> None:  # fmt: skip
    """Compare three allocators for models with states: requests held, and memory wasted."""
    from hwmodel.description.description import DescriptionError, Document
    from hwmodel.specs.device import load_device
    from hwmodel.specs.transformer import load_model
    from sweeps.ask.fit import Question
    from sweeps.ask.states import Options
    from sweeps.ask.states import states as answer
    from sweeps.report.screen import print_json
    from sweeps.report.states_sheet import record, show

    if not 0 < ratio < float("inf"):
        raise DescriptionError(f"expected a number above 0; got {ratio:g}", "--ratio")
    asked = {"cards": cards} | ({} if kv is None else {"kv": kv})
    found = answer(
        load_device(device, overrides or []), load_model(model), workloads or WORKLOADS,
        Document(asked, "states").build(Question),
        Options(mode.value, drafts, ratio, slots, sequences),
    )  # fmt: skip
    print_json(record(found)) if json else show(found)
