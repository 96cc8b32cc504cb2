"""The models' figures beside measured ones: the tables of `bankwise validate`, and what their
release run has (`tools.release`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, get_args

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.description.yaml_reader import load
from policies.memory.measured import MeasurementSpec, compare, load_measurements
from policies.memory.measured_cells import ComparedCell, Quantity, Settings, Verdict
from policies.serving.measured_server import (
    MeasuredServer,
    ServerSpec,
    compare_server,
    load_server,
)
from policies.serving.server_timeseries import read_timeseries, running_and_waiting
from policies.transfers.measured_transfers import (
    TransferSpec,
    compare_transfers,
    load_transfers,
)
from sweeps.analyse.statistics import nine_in_ten
from sweeps.sections.chart import Axis, Dot, Lines, Points, Series
from sweeps.sections.section import Block, Grid, Listing, Say, Section

Found = dict[str, list[ComparedCell]]
"""Name of the measurements -> its cells."""


Source = MeasurementSpec | MeasuredServer | TransferSpec
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
    return source.spec if isinstance(source, MeasuredServer) else source


def compared(
    source: Source, candidate: str | None = None, overrides: list[str] | None = None
) -> list[ComparedCell]:
    """Every cell beside the model; under a candidate's or counterfactual's settings where given.
    Raises DescriptionError; Skipped where a data file is absent."""
    if isinstance(source, MeasuredServer):
        return compare_server(source, candidate, overrides or ())
    if isinstance(source, TransferSpec):
        return compare_transfers(source)
    return compare(source, candidate, overrides)


def summary(cells: Iterable[ComparedCell]) -> str:
    """How many cells have which verdict, and how many are within that set a mechanism."""
    listed = list(cells)
    counts = Counter(item.verdict for item in listed)
    apart = sum(bool(item.cell.sets) and item.verdict == "within" for item in listed)
    verdicts = [each for each in get_args(Verdict) if each != "open" or counts["open"]]
    parts = [f"{counts[verdict]} {verdict}" for verdict in verdicts]
    parts[0] += f" ({apart} of which set a mechanism)" if apart else ""
    return f"{counts.total()} cells: " + ", ".join(parts)


def errors_by_class(cells: Iterable[ComparedCell]) -> dict[str, dict[str, float]]:
    """Errors by kind of a cell, of step times by class of kernels too: the device as shipped beside
    what was measured. Inputs and limits are left out."""
    groups: dict[str, list[float]] = {}
    for item in cells:
        if item.verdict in ("within", "refuted") and item.cell.stands == "measured":
            name = ", ".join(filter(None, (item.cell.kind, item.by and item.by.kernels)))
            groups.setdefault(name, []).append(abs(item.error))
    return {
        name: {
            "cells": len(errors), "median error": median(errors),
            "nine in ten within": nine_in_ten(errors),
        }
        for name, errors in sorted(groups.items())
    }  # fmt: skip


def by_class(cells: Iterable[ComparedCell]) -> Grid:
    """`errors_by_class` as a table."""
    rows = [
        [
            name,
            f"{each['cells']}",
            f"{each['median error']:.1%}",
            f"{each['nine in ten within']:.1%}",
        ]
        for name, each in errors_by_class(cells).items()
    ]
    columns = ["kind, kernels", "cells", "median error", "nine in ten within"]
    return Grid("By kind and class", columns, rows)


def grid(cells: list[ComparedCell]) -> Grid:
    """A row a cell."""
    columns = ["cell", "predicted", "measured", "model", "error", "tolerance", "verdict", "source"]
    rows = [
        [
            item.cell.what, str(item.cell.prediction or "–"), str(item.cell.measured or "–"),
            _model(item), f"{item.error:+.1%}", f"±{item.tolerance / item.cell.stated.value:.1%}",
            item.verdict + " (sets the mechanism)" * bool(item.cell.sets) + ", LOST" * item.lost,
            f"{item.cell.source} ({item.cell.confidence})",
        ]
        for item in cells
    ]  # fmt: skip
    if any(item.share is not None for item in cells):
        columns.append("of peak")
        for row, item in zip(rows, cells, strict=True):
            row.append("–" if item.share is None else f"{item.share:.0%}")
    if any(item.derate < 1 for item in cells):
        columns.append("without derate")
        for row, item in zip(rows, cells, strict=True):
            pure = item.model / item.derate
            error = pure / item.cell.stated.value - 1
            text = f"{Quantity(pure, item.cell.stated.unit)} ({error:+.1%})"
            row.append(text if item.derate < 1 else "–")
    return Grid("", columns, rows)


def sheet(
    every: list[ComparedCell], each: Iterable[tuple[Spec, list[ComparedCell] | None, str]]
) -> Section:
    """What `bankwise validate` shows of descriptions with their cells, or why they are skipped."""
    classes = by_class(every)
    blocks: list[Block] = [
        Say(f"{classes.title}: devices as shipped beside what was measured"),
        replace(classes, title=""),
    ]
    for spec, cells, why in each:
        if cells is None:
            blocks.append(Say(f"{spec.name}: skipped: {why}"))
            continue
        blocks += [Say(f"{spec.name}: {spec.summary}"), grid(cells)]
        for title, items in (("tolerance", tolerances(spec)), ("cause", causes(cells))):
            blocks += [Say(f"{title}: {key}: {text}") for key, text in items.items()]
    return Section("Validation", [*blocks, Say(summary(every))])


def under_others(
    name: str, shipped: list[ComparedCell], others: Mapping[str, list[ComparedCell]]
) -> Grid:
    """A row a cell: as shipped, and under each candidate."""
    columns = {"as shipped": shipped, **others}
    rows = [
        [cells[0].cell.what, str(cells[0].cell.measured or "–"), *map(_model, cells)]
        for cells in zip(*columns.values(), strict=True)
    ]
    return Grid(f"{name}: candidates", ["cell", "measured", *columns], rows)


def causes(cells: list[ComparedCell]) -> dict[str, str]:
    """The likely causes of what is refuted, where one is given, by cell."""
    refuted = [item.cell for item in cells if item.verdict == "refuted" and item.cell.cause]
    return {cell.what: cell.cause for cell in refuted}


def tolerances(spec: Spec) -> dict[str, str]:
    """Name -> how much, and why."""
    return {name: f"{item.within}: {item.reason}" for name, item in spec.tolerances.items()}


def alternatives(spec: Spec) -> dict[str, Settings]:
    """Other descriptions that are held against the same cells, by name."""
    if isinstance(spec, MeasurementSpec):
        return spec.candidates
    return spec.counterfactuals if isinstance(spec, ServerSpec) else {}


def record(
    spec: Spec, compared: list[ComparedCell], others: Mapping[str, list[ComparedCell]] | None = None
) -> dict[str, Any]:
    """The same in JSON's types; figures in each cell's `unit`. Of candidates the settings, and
    with `others` each cell's figure under them."""
    cells = [
        {
            "what": item.cell.what, "kind": item.cell.kind, "unit": item.cell.stated.unit,
            "measured": item.cell.measured and item.cell.measured.value, "model": item.model,
            "prediction": item.cell.prediction and item.cell.prediction.value,
            "derate": item.derate, "error": item.error, "tolerance": item.tolerance,
            "verdict": item.verdict,
            "agrees": item.cell.agrees, "sets": item.cell.sets, "share_of_peak": item.share,
            "source": item.cell.source,
            "confidence": item.cell.confidence, "group": item.cell.group, "cause": item.cell.cause,
            "note": item.cell.note,
        }
        for item in compared
    ]  # fmt: skip
    candidates: dict[str, Any] = {}
    for name, settings in alternatives(spec).items():
        candidates[name] = {"set": settings}
        if others is not None:
            candidates[name]["cells"] = [
                {"what": item.cell.what, "model": item.model, "error": item.error,
                 "verdict": item.verdict}
                for item in others[name]
            ]  # fmt: skip
    return {
        "name": spec.name, "device": spec.device, "sources": spec.sources, "cells": cells,
        "candidates": candidates,
    }  # fmt: skip


def picture(compared: Found) -> Points:
    """Relative errors of what is two-sided: agreements in a row a kind, the rest by name, under
    the group of their causes, the widest first."""
    agree: dict[str, list[Dot]] = {}
    refuted: dict[str, dict[str, list[Dot]]] = {}
    for name, item in _two_sided(compared):
        tolerance = item.tolerance / item.cell.stated.value
        dot = Dot(item.error, item.cell.kind, tolerance)
        if item.verdict == "within":
            agree.setdefault(item.cell.kind, []).append(dot)
        else:
            rows = refuted.setdefault(item.cell.group or "no cause known", {})
            rows.setdefault(f"{name}: {item.cell.what}", []).append(dot)
    inside = {f"{kind} ({len(dots)})": dots for kind, dots in agree.items()}
    groups = {"within tolerance": inside} if inside else {}
    for group, rows in sorted(refuted.items(), key=lambda pair: -len(pair[1])):
        groups[group] = dict(sorted(rows.items(), key=lambda row: -max(map(_far, row[1]))))
    note = (
        "Grey: tolerance. Lower limits and inputs are not drawn. Below, what is refuted by cause."
    )
    return Points("Model over measured, less 1, %", groups, note)


def left(compared: Found) -> dict[str, dict[str, Any]]:
    """What to doubt first: group of causes -> how much of what is refuted lies there."""
    groups: dict[str, list[tuple[str, ComparedCell]]] = {}
    for name, item in _two_sided(compared):
        if item.verdict == "refuted":
            groups.setdefault(item.cell.group or "no cause known", []).append((name, item))
    table = {}
    for group, items in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        gaps = [abs(math.log1p(item.error)) for _, item in items]
        name, worst = items[gaps.index(max(gaps))]
        table[group] = {
            "refuted": len(items),
            "median error": round(1 + math.expm1(median(gaps)), 4),
            "widest": f"{name}: {worst.cell.what} ({worst.error:+.0%})",
        }
    return table


def figures(compared: Found) -> dict[str, Any]:
    """What the release run takes of them: of cells that somebody has measured."""
    found = {
        name: told for name, items in compared.items()
        if (told := [item for item in items if item.verdict != "open"])
    }  # fmt: skip
    sided = [item for _, item in _two_sided(found)]
    within = [item for item in sided if item.verdict == "within"]
    by_source = {
        name: {"cells": len(items), "agree": counts["within"], "refuted": counts["refuted"],
               "lower limit": counts["lower limit"], "input": counts["input"]}
        for name, items in found.items()
        for counts in [Counter(item.verdict for item in items)]
    }  # fmt: skip
    return {
        "cells": sum(map(len, found.values())), "two-sided": len(sided), "agree": len(within),
        "set a mechanism": sum(bool(item.cell.sets) for item in within),
        "left": left(found), "sources": by_source,
        "classes": errors_by_class(item for items in found.values() for item in items),
    }  # fmt: skip


def _two_sided(found: Found) -> Iterable[tuple[str, ComparedCell]]:
    """What agrees or is refuted, with the name of its measurements."""
    pairs = ((name, item) for name, items in found.items() for item in items)
    return [pair for pair in pairs if pair[1].verdict in ("within", "refuted")]


def _far(dot: Dot) -> float:
    return abs(math.log1p(dot.value))


def over_time(server: MeasuredServer) -> Lines:
    """Running and waiting requests, simulated and measured. Raises Skipped."""
    model, measured = running_and_waiting(server), read_timeseries(server)
    series = [
        Series(f"{what}, {who}", list(columns["t"]), list(columns[what]))
        for what in ("running", "waiting")
        for who, columns in (("measured", measured), ("model", model))
    ]
    title = f"{server.spec.name}: requests in the server"
    return Lines(title, Axis("time since the first request, s"), Axis("requests"), series)


def _model(item: ComparedCell) -> str:
    return str(Quantity(item.model, item.cell.stated.unit))


def section(source: Source, cells: list[ComparedCell]) -> Section:
    spec = spec_of(source)
    blocks: list[Block] = [Say(f"{spec.summary}. Device: {spec.device}. {summary(cells)}.")]
    if not cells:
        return Section(spec.name, [*blocks, Say("Skipped: its log was not here.", "problem")])
    blocks.append(grid(cells))
    if isinstance(source, MeasuredServer) and source.spec.timeseries:
        blocks.append(Say(f"![Running and waiting requests](validation-{spec.name}.svg)"))
    listed = {
        "Likely causes of what is refuted": causes(cells),
        "Notes": {item.cell.what: item.cell.note for item in cells if item.cell.note},
        "Tolerances": tolerances(spec),
        "Sources": spec.sources,
    }
    blocks += [Listing(title, items) for title, items in listed.items() if items]
    title, why = "Candidates", "Chosen after the comparison: what could explain it, not a test."
    if isinstance(spec, ServerSpec):
        title, why = "Counterfactuals", "What an error may be due to: one input changed at a time."
    if others := alternatives(spec):
        blocks.append(_candidates(title, why, source, others, cells))
    return Section(spec.name, blocks)


def _candidates(
    title: str, why: str, source: Source, others: dict[str, Settings], shipped: list[ComparedCell]
) -> Section:
    """The same cells under other settings."""
    columns = {"as shipped": shipped, **{name: compared(source, name) for name in others}}
    rows = [
        [cells[0].cell.what, str(cells[0].cell.measured or "–")]
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
