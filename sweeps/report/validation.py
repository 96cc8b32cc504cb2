"""The models' figures beside measured ones: the tables of `bankwise validate`, and the page.

    python -m sweeps.report.validation DIR   # writes validation.md and validation.svg there

Every number on the page is computed by that run, or is a published one with its source.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.description.yaml_reader import load
from policies.memory.measured import (
    Compared,
    Figure,
    MeasurementSpec,
    Settings,
    Verdict,
    compare,
    load_measurements,
)
from policies.serving.measured_server import (
    Server,
    ServerSpec,
    Skipped,
    compare_server,
    load_server,
)
from policies.serving.server_timeseries import read_timeseries, running_and_waiting
from policies.transfers.measured_transfers import (
    TransferSpec,
    compare_transfers,
    load_transfers,
)
from sweeps.analyse.statistics import Interval
from sweeps.report.chart import Axis, Bar, Lines, Series, Tornado
from sweeps.report.drawing import svg
from sweeps.report.markdown import markdown
from sweeps.report.section import Block, Grid, Listing, Say, Section
from sweeps.run.store import write_atomically

Found = dict[str, list[Compared]]
"""Name of the measurements -> its cells."""


Source = MeasurementSpec | Server | TransferSpec
"""What cells are read from."""
Spec = MeasurementSpec | ServerSpec | TransferSpec


def sources() -> list[str]:
    """Names of what ships on devices and servers; transfers are asked for by name."""
    return names("measurements") + names("servers")


def loaded(name_or_path: str, device: str | None = None) -> Source:
    """Measurements, a measured server or transfers, by name or file; measurements of `device` where
    it is given. Raises DescriptionError."""
    path = Path(name_or_path)
    kind = load(path).data.get("kind") if path.is_file() else None
    if name_or_path in names("servers") or kind == "server":
        _no_device(device, name_or_path)
        return load_server(name_or_path)
    if name_or_path in names("transfers") or kind == "transfers":
        _no_device(device, name_or_path)
        return load_transfers(name_or_path)
    return load_measurements(name_or_path, device)


def _no_device(device: str | None, name: str) -> None:
    if device is not None:
        raise DescriptionError(f"{name} states its own; expected measurements", "--device")


def spec_of(source: Source) -> Spec:
    """The description."""
    return source.spec if isinstance(source, Server) else source


def compared(
    source: Source, candidate: str | None = None, overrides: list[str] | None = None
) -> list[Compared]:
    """Every cell beside the model; under a candidate's or counterfactual's settings where given.
    Raises DescriptionError; Skipped where a data file is absent."""
    if isinstance(source, Server):
        return compare_server(source, candidate, overrides or ())
    if isinstance(source, TransferSpec):
        return compare_transfers(source)
    return compare(source, candidate, overrides)


def summary(found: Iterable[Compared]) -> str:
    """How many cells have which verdict."""
    counts = Counter(item.verdict for item in found)
    parts = (f"{counts[verdict]} {verdict}" for verdict in get_args(Verdict))
    return f"{counts.total()} cells: " + ", ".join(parts)


def grid(found: list[Compared]) -> Grid:
    """A row a cell."""
    columns = ["cell", "predicted", "measured", "model", "error", "tolerance", "verdict", "source"]
    rows = [
        [
            item.cell.what, str(item.cell.prediction or "–"), str(item.cell.measured),
            _model(item), f"{item.error:+.1%}", f"±{item.tolerance / item.cell.measured.value:.1%}",
            item.verdict + ", LOST" * item.lost, f"{item.cell.source} ({item.cell.confidence})",
        ]
        for item in found
    ]  # fmt: skip
    if any(item.share is not None for item in found):
        columns.append("of peak")
        for row, item in zip(rows, found, strict=True):
            row.append("–" if item.share is None else f"{item.share:.0%}")
    if any(item.derate < 1 for item in found):
        columns.append("without derate")
        for row, item in zip(rows, found, strict=True):
            pure = item.model / item.derate
            error = pure / item.cell.measured.value - 1
            text = f"{Figure(pure, item.cell.measured.unit)} ({error:+.1%})"
            row.append(text if item.derate < 1 else "–")
    return Grid("", columns, rows)


def causes(found: list[Compared]) -> dict[str, str]:
    """The likely causes of what is refuted, where one is given, by cell."""
    refuted = [item.cell for item in found if item.verdict == "refuted" and item.cell.cause]
    return {cell.what: cell.cause for cell in refuted}


def tolerances(spec: Spec) -> dict[str, str]:
    """Name -> how much, and why."""
    return {name: f"{item.within}: {item.reason}" for name, item in spec.tolerances.items()}


def record(spec: Spec, found: list[Compared]) -> dict[str, Any]:
    """The same in JSON's types; figures in each cell's `unit`."""
    cells = [
        {
            "what": item.cell.what, "kind": item.cell.kind, "unit": item.cell.measured.unit,
            "measured": item.cell.measured.value, "model": item.model,
            "prediction": item.cell.prediction and item.cell.prediction.value,
            "derate": item.derate, "error": item.error, "tolerance": item.tolerance,
            "verdict": item.verdict,
            "agrees": item.cell.agrees, "share_of_peak": item.share, "source": item.cell.source,
            "confidence": item.cell.confidence, "cause": item.cell.cause, "note": item.cell.note,
        }
        for item in found
    ]  # fmt: skip
    return {"name": spec.name, "device": spec.device, "sources": spec.sources, "cells": cells}


def errors(found: Found) -> Tornado:
    """Relative errors; a whisker is the tolerance, and reaches none where the model is within."""
    bars = []
    for name, items in found.items():
        for item in items:
            measured = item.cell.measured.value
            low = item.model / (measured + item.tolerance) - 1
            high = item.model / max(measured - item.tolerance, 1e-9) - 1
            aside = item.verdict in ("lower limit", "input")
            bars.append(Bar(f"{name}: {item.cell.what}", Interval(item.error, low, high, 1), aside))
    title = "Model over measured, less 1; whiskers: tolerance; grey: lower limits and inputs"
    return Tornado(title, bars)


def over_time(server: Server) -> Lines:
    """Running and waiting requests, simulated and measured. Raises Skipped."""
    model, measured = running_and_waiting(server), read_timeseries(server)
    series = [
        Series(f"{what}, {who}", list(columns["t"]), list(columns[what]))
        for what in ("running", "waiting")
        for who, columns in (("measured", measured), ("model", model))
    ]
    title = f"{server.spec.name}: requests in the server"
    return Lines(title, Axis("time since the first request, s"), Axis("requests"), series)


def _model(item: Compared) -> str:
    return str(Figure(item.model, item.cell.measured.unit))


def _section(source: Source, found: list[Compared]) -> Section:
    spec = spec_of(source)
    blocks: list[Block] = [Say(f"{spec.summary}. Device: {spec.device}. {summary(found)}.")]
    if not found:
        return Section(spec.name, [*blocks, Say("Skipped: its log was not here.", "problem")])
    blocks.append(grid(found))
    if isinstance(source, Server) and source.spec.timeseries:
        blocks.append(Say(f"![Running and waiting requests](validation-{spec.name}.svg)"))
    listed = {
        "Likely causes of what is refuted": causes(found),
        "Notes": {item.cell.what: item.cell.note for item in found if item.cell.note},
        "Tolerances": tolerances(spec),
        "Sources": spec.sources,
    }
    blocks += [Listing(title, items) for title, items in listed.items() if items]
    if isinstance(spec, ServerSpec):
        if spec.counterfactuals:
            why = "What an error may be due to: one input is changed at a time."
            blocks.append(_candidates("Counterfactuals", why, source, spec.counterfactuals, found))
    elif isinstance(spec, MeasurementSpec) and spec.candidates:
        why = "Chosen after the comparison: what could explain it, not a test of it."
        blocks.append(_candidates("Candidates", why, source, spec.candidates, found))
    return Section(spec.name, blocks)


def _candidates(
    title: str, why: str, source: Source, others: dict[str, Settings], shipped: list[Compared]
) -> Section:
    """The same cells under other settings."""
    columns = {"as shipped": shipped, **{name: compared(source, name) for name in others}}
    rows = [
        [cells[0].cell.what, str(cells[0].cell.measured)]
        + [_model(item) + "!" * (item.verdict == "refuted") for item in cells]
        for cells in zip(*columns.values(), strict=True)
    ]
    refuted = [sum(item.verdict == "refuted" for item in cells) for cells in columns.values()]
    rows.append(["refuted (!)", "", *map(str, refuted)])
    settings = {
        name: "; ".join(f"{path}: {_text(value)}" for path, value in item.items())
        for name, item in others.items()
    }
    table = Grid("", ["cell", "measured", *columns], rows)
    return Section(title, [Say(why), table, Listing("Settings", settings)])


def _text(value: Any) -> str:
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, list) else str(value)


def main(folder: Path) -> None:
    """Compare all that ships and write the page and its picture."""
    read = {name: loaded(name) for name in sources()}
    found: Found = {}
    for name, source in read.items():
        try:
            found[name] = compared(source)
            if isinstance(source, Server) and source.spec.timeseries:
                write_atomically(folder / f"validation-{name}.svg", svg([over_time(source)]))
        except Skipped:
            found[name] = []
    total = summary(item for items in found.values() for item in items)
    intro = (
        "Rebuilt by `make validation`; `bankwise validate [NAME]` prints the same tables. Every"
        " model figure is of that run; measured ones have their source beside them. Predictions,"
        " where there are any, were committed before the comparison. `within`: inside the"
        " tolerance; `lower limit`: the requester bound the measurement and the model is not"
        " below it; `input`: the description was made of it. `of peak`: the share of the"
        " memory's bandwidth (decode) or of the FLOPs (prefill) that the measured time comes to,"
        " by what the model must move and compute. Bandwidths are what reaches the requester;"
        " `without derate` is what the simulated DRAM gives."
    )
    sections = [_section(source, found[name]) for name, source in read.items()]
    picture = Say("![Errors of all cells](validation.svg)")
    page = Section("Validation", [Say(intro), Say(f"{total}."), picture, *sections])
    write_atomically(folder / "validation.svg", svg([errors(found)]))
    write_atomically(folder / "validation.md", markdown([page]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
