"""`bankwise fit`. Imports stay inside, as in `cli`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sweeps.cli.options import Html, Json, Kv, Plugin, Set, Weights, mistake

if TYPE_CHECKING:
    from hwmodel.specs.device import Device
    from hwmodel.specs.transformer import TransformerSpec
    from sweeps.ask.fit import Fit, Misfit, Question


def fit(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DEVICE] [MODEL]", help="Shipped names or YAML files; or all."),
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
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulate the memory, some seconds; kept after.")
    ] = False,
    html: Html = None,
    json: Json = False,
    overrides: Set = None,
    plugin: Plugin = None,
) -> None:
    """Say whether a model fits a device, for how many requests, and how fast.

    With a device or a model alone: a line for each of the library; with neither: all pairs.
    """
    from sweeps.ask.fit import fit as answer
    from sweeps.report.fit_sheet import listing, matrix, record, sheet
    from sweeps.report.screen import print_json, print_section
    from sweeps.report.shown import save

    question = _question(
        tokens, limit=limit, weights=weights, kv=kv, cards=cards, expert_parallel=expert_parallel
    )
    devices, models = _of_library(names or [], overrides or [])
    pair = len(devices) == len(models) == 1
    if simulate:
        if not pair:
            raise mistake("needs a DEVICE and a MODEL", "--simulate")
        devices[0].memory  # noqa: B018 - raises where it is given
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
        if not json:
            print(f"wrote {html}")


def pair(device: str, model: str, overrides: list[str], given: dict[str, Any]) -> Fit | Misfit:
    """The answer about one device and one model. Raises DescriptionError."""
    from sweeps.ask.fit import fit as answer

    devices, models = _of_library([device, model], overrides)
    return answer(devices[0], models[0], _question(None, **given))


def _question(tokens: str | None, **given: Any) -> Question:
    from hwmodel.description.description import Document
    from sweeps.ask.fit import LIMIT, Question

    data = {key: value for key, value in given.items() if value is not None}
    if tokens is not None:
        parts = tokens.split(":")
        if len(parts) != 2 or not all(part.isdecimal() for part in parts):
            raise mistake(f"expected PROMPT:OUTPUT, such as 1000:300; got {tokens!r}", "--tokens")
        data |= {"prompt": int(parts[0]), "output": int(parts[1])}
    data.setdefault("limit", max(LIMIT, data.get("output", 0)))
    return Document(data, "fit").build(Question)


def _of_library(
    named: list[str], overrides: list[str]
) -> tuple[list[Device], list[TransformerSpec]]:
    """The devices and the models that are named, in any order; all of the kind that is not."""
    from hwmodel.description.description import nearest
    from hwmodel.description.library import names
    from hwmodel.description.yaml_reader import load
    from hwmodel.specs.device import device_names, load_device
    from hwmodel.specs.transformer import load_model

    shipped = dict.fromkeys(names("models"), "model")
    shipped |= dict.fromkeys(device_names(), "device")
    given: dict[str, str] = {}
    for name in named:
        kind = shipped.get(name)
        if kind is None and not name.endswith((".yaml", ".yml")):
            hint = nearest(name, list(shipped))
            hint += "" if hint.endswith("?") else "; bankwise devices lists them"
            raise mistake(f"no shipped device or model; {hint}", name)
        kind = kind or ("model" if load(name).data.get("kind") == "model" else "device")
        if kind in given:
            raise mistake(f"a second {kind}, beside {given[kind]}", name)
        given[kind] = name
    if overrides and "device" not in given:
        raise mistake("needs a DEVICE, whose description it overrides", "--set")
    chosen = [given["device"]] if "device" in given else names("accelerators")
    devices = [load_device(name, overrides) for name in chosen]
    if devices[0].accelerator is None:
        raise mistake("is a memory; a model needs an accelerator", devices[0].name)
    models = [given["model"]] if "model" in given else names("models")
    return devices, [load_model(name) for name in models]
