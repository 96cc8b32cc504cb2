"""`bankwise fit`. Imports stay inside, as in `main`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from sweeps.cli.options import Html, Json, Kv, Plugin, Set, Weights, mistake, refuse, shipped, wrote

WORKLOADS = ["alpaca", "azure-conv", "azure-code", "r1-reasoning", "mooncake-conversation"]
"""Whose lengths --states compares."""
TOKENS = 2048
"""Of a sequence that --formats counts."""


class Mode(StrEnum):
    """See `policies.allocators.hybrid.Mode`."""

    none = "none"
    align = "align"
    all = "all"


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DEVICE|MODEL",
            help="Shipped names or YAML files; or all.",
            autocompletion=shipped("accelerators", "models"),
        ),
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(metavar="PROMPT:OUTPUT", help="Of a request; 1000:300.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="TOKENS", help="Longest answer allowed; 1024.")
    ] = None,
    weights: Weights = None,
    kv: Kv = None,
    cards: Annotated[int, typer.Option(help="Cards that share the model.")] = 1,
    expert_parallel: Annotated[
        str | None, typer.Option(metavar="PLACEMENT", help="Whole experts: linear or balanced.")
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like", metavar="VERSION", help="Of vLLM: its defaults, and what it keeps beside KV."
        ),
    ] = None,
    utilization: Annotated[
        float | None,
        typer.Option(
            "--gpu-memory-utilization", metavar="SHARE", help="Of the memory; 0.9, or --like's."
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("--max-num-seqs", metavar="N", help="Sequences at once; 256, or --like's."),
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulate the memory, some seconds; kept after.")
    ] = False,
    formats: Annotated[
        bool,
        typer.Option(
            "--formats", help="Instead: KV formats, and the sequences that fit DEVICE... in each."
        ),
    ] = False,
    states: Annotated[
        bool,
        typer.Option(
            "--states", help="Instead: three allocators for a model with states: what each wastes."
        ),
    ] = False,
    workloads: Annotated[
        list[str] | None,
        typer.Option("--workload", help="With --states: whose lengths; repeatable."),
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="With --states: what vLLM keeps for prefixes.")
    ] = None,
    drafts: Annotated[
        int | None, typer.Option(min=0, max=16, help="With --states: speculative tokens.")
    ] = None,
    ratio: Annotated[
        float | None, typer.Option(help="With --states: of SGLang, bytes of states over KV; 0.9.")
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(min=1, help="With --states: of SGLang, states a running request; 1."),
    ] = None,
    sequences: Annotated[
        int | None, typer.Option(min=1, help="With --states: compact slots; 256.")
    ] = None,
    html: Html = None,
    json: Json = False,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Say whether a model fits a device, and how fast it is.

    For how many requests, too. With a device or a model alone: a line for each of the library; with
    neither: all pairs.
    """
    of_states = {"--workload": workloads, "--mode": mode, "--drafts": drafts, "--ratio": ratio,
                 "--slots": slots, "--sequences": sequences}  # fmt: skip
    server = {"like": like, "gpu_memory_utilization": utilization, "max_num_seqs": most}
    of_fit = {"--limit": limit, "--weights": weights, "--expert-parallel": expert_parallel,
              "--simulate": simulate, "--html": html,
              **{f"--{key.replace('_', '-')}": value for key, value in server.items()}}  # fmt: skip
    if not states:
        refuse("needs --states", of_states)
    if formats:
        alone = {"--states": states, "--kv": kv, "--cards": None if cards == 1 else cards}
        refuse("does not go with --formats", of_fit | alone)
        _formats(names or [], tokens, overrides or [], json)
        return
    asked = {"limit": limit, "weights": weights, "kv": kv, "cards": cards,
             "expert_parallel": expert_parallel, **server}  # fmt: skip
    if states:
        refuse("does not go with --states", of_fit | {"--tokens": tokens})
        given = {"mode": mode and mode.value, "drafts": drafts, "ratio": ratio, "slots": slots,
                 "sequences": sequences}  # fmt: skip
        options = {key: value for key, value in given.items() if value is not None}
        _states(names or [], workloads or WORKLOADS, asked, options, overrides or [], json)
        return
    from sweeps.ask.fit import fit as answer
    from sweeps.ask.fit_question import of_library, question_of
    from sweeps.report.fit_sheet import listing, matrix, record, sheet
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.shown import save

    question = question_of(asked if tokens is None else asked | _lengths(tokens))
    devices, models = of_library(names or [], overrides or [])
    pair = len(devices) == len(models) == 1
    if simulate:
        if not pair:
            raise mistake("needs a DEVICE and a MODEL", "--simulate")
        (devices[0].described_as or devices[0]).memory  # noqa: B018 - raises where it is given
    found = [answer(d, m, question, simulate if pair else None) for d in devices for m in models]
    if pair:
        section = sheet(found[0])
    elif len(devices) > 1 < len(models):
        section = matrix(found)
    else:
        section = listing(found, "models" if len(devices) == 1 else "devices")
    if json:
        records = [record(each, pair) for each in found]
        print_json(records[0] if pair else records)
    else:
        print_section(section)
    if html is not None:
        save([section], html)
        wrote([html], json)


def _formats(names: list[str], tokens: str | None, overrides: list[str], json: bool) -> None:
    """KV formats of one model, and what fits devices in each."""
    from sweeps.cli.kv_table import facts, sheet
    from sweeps.report.screen import print_json, print_section

    models, devices = _kinds(names)
    if len(models) != 1:
        raise mistake(f"needs one MODEL; got {len(models)}", "--formats")
    held = TOKENS if tokens is None else sum(_lengths(tokens).values())
    found = facts(models[0], devices, held, overrides)
    print_json(found) if json else print_section(sheet(found))


def _states(
    names: list[str], workloads: list[str], asked: dict[str, Any], options: dict[str, Any],
    overrides: list[str], json: bool,
) -> None:  # fmt: skip
    """Allocators for a model with states, on one device."""
    from sweeps.ask.fit_question import of_library, question_of
    from sweeps.ask.states import Options, states
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.states_sheet import record, sheet

    if not 0 < (ratio := options.get("ratio", 1.0)) < float("inf"):
        raise mistake(f"expected a number above 0; got {ratio:g}", "--ratio")
    models, given = _kinds(names)
    if len(models) != 1 or len(given) != 1:
        raise mistake("needs a DEVICE and a MODEL", "--states")
    (device,), (model,) = of_library(names, overrides)
    found = states(device, model, workloads, question_of(asked), Options(**options))
    print_json(record(found)) if json else print_section(sheet(found))


def _kinds(names: list[str]) -> tuple[list[str], list[str]]:
    """Those that are models, and the others."""
    from hwmodel.description.library import names as shipped
    from hwmodel.description.yaml_reader import load

    known, files = shipped("models"), (".yaml", ".yml")
    models = [
        name for name in names
        if name in known or (name.endswith(files) and load(name).data.get("kind") == "model")
    ]  # fmt: skip
    return models, [name for name in names if name not in models]


def _lengths(tokens: str) -> dict[str, int]:
    """Of `PROMPT:OUTPUT`. Raises DescriptionError."""
    parts = tokens.split(":")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise mistake(f"expected PROMPT:OUTPUT, such as 1000:300; got {tokens!r}", "--tokens")
    return {"prompt": int(parts[0]), "output": int(parts[1])}
