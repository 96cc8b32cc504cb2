"""A whole server that was measured, held against a simulation of it (`yaml/servers`).

The simulation serves the requests of the server's own log (`policies.requests.request_log`), or of
a workload, under the server's settings. A cell is one figure of one `run`; `runs` and
`counterfactuals` change the settings, the latter to find what an error is due to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hwmodel.description.description import (
    DescriptionError,
    Document,
    Strict,
    checked,
    key_path,
    nearest,
)
from hwmodel.description.library import find
from hwmodel.description.yaml_reader import load
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import load_model
from policies.memory.measured import assignments
from policies.memory.measured_cells import (
    ComparedCell,
    MeasuredCell,
    Quantity,
    Settings,
    Skipped,
    Tolerance,
)
from policies.requests.request_log import LoggedTimes, read_request_log
from policies.requests.request_stream import generate
from policies.requests.requests import Requests
from policies.requests.workload import TRACE_SUFFIXES, WorkloadSpec, workload_document
from policies.serving.serving import ServingResult, serve
from policies.serving.serving_spec import ServingSpec

DATA = "BANKWISE_DATA"
"""Environment variable: the folder of data files that do not ship."""
_SHARES = ("mean", "p50", "p90", "p99")
FIGURES = {
    **{f"ttft_{share}": ("s", ("ttft_s", share)) for share in _SHARES},
    **{f"tpot_{share}": ("ms", ("tpot_s", share)) for share in _SHARES},
    **{f"latency_{share}": ("s", ("latency_s", share)) for share in _SHARES},
    "output_tokens_per_s": ("tokens/s", ("makespan_output_tokens_per_s",)),
    "preemptions": ("preemptions", ("preemptions",)),
}
"""Figure of a server -> its unit and its place in the metrics of a run."""
_OF_A_LOG = ("ttft_mean", "ttft_p50", "ttft_p99", "tpot_mean", "tpot_p50", "tpot_p99",
             "latency_mean", "output_tokens_per_s")  # fmt: skip
"""Figures compared where a file has no cells."""
_STATED = Tolerance(within=Quantity(15.0, "%"), reason="assumed: the file states none")


class ServerCell(MeasuredCell):
    """A figure of a run."""

    figure: Literal[tuple(FIGURES)]  # type: ignore[valid-type]
    """Which one of a run."""
    run: str | None = None
    """One of `runs`; None: as described."""

    @property
    def kind(self) -> str:
        return "server"

    @checked
    def _its_unit(self) -> None:
        self.in_units((FIGURES[self.figure][0], "x"))


class ServerSpec(Strict):
    """A measured server."""

    kind: Literal["server"]
    name: str
    summary: str
    sources: dict[str, str] = {}
    device: str
    set: Settings = {}
    """Overrides of the device."""
    serving: ServingSpec
    log: str | None = None
    """The server's request log: beside the description, or in the folder `BANKWISE_DATA`."""
    timeseries: str | None = None
    """CSV with the columns t (seconds), running and waiting, found likewise."""
    workload: str | None = None
    """A shipped workload, or a file, where there is no log."""
    requests: int | None = None
    """Of the workload; its own times or closed loop say when they come."""
    seed: int = 0
    runs: dict[str, Settings] = {}
    """Name -> what is other than described: `serving.` and its key, or a key of the device."""
    counterfactuals: dict[str, Settings] = {}
    """Name -> what is other than described, in runs that find what an error is due to."""
    tolerances: dict[str, Tolerance] = {}
    """By name."""
    cells: list[ServerCell] = []
    """None: the figures of the log."""

    @checked
    def _requests_from_one_place(self) -> None:
        if (self.log is None) == (self.workload is None):
            raise ValueError("expected either log or workload")
        if (self.workload is None) != (self.requests is None):
            raise ValueError("requests: how many, with a workload and only there")
        if not self.cells and self.log is None:
            raise ValueError("cells: expected some where there is no log to take them from")


class ServedServer(NamedTuple):
    """A run of the simulation, and what it was given."""

    requests: Requests
    result: ServingResult


@dataclass(frozen=True)
class MeasuredServer:
    """A description and what it was read from."""

    spec: ServerSpec
    document: Document

    def case(self, settings: Settings, overrides: Iterable[str] = ()) -> tuple[Device, ServingSpec]:
        """Device and serving under `settings`. Raises DescriptionError."""
        document, of_device = deepcopy(self.document), dict(self.spec.set)
        for path, value in settings.items():
            if path.startswith("serving."):
                document.put(key_path(path), value, self.document.mark(("serving",)))
            else:
                of_device[path] = value
        serving = document.build(ServerSpec).serving
        return load_device(self.spec.device, [*assignments(of_device), *overrides]), serving

    def times(self) -> LoggedTimes | None:
        """The log; None where there is a workload instead. Raises Skipped if it is not here."""
        return None if (file := self.log()) is None else read_request_log(file)

    def log(self) -> Path | None:
        """The file of the log, where there is one. Raises Skipped if it is not here."""
        return None if self.spec.log is None else self._file("log")

    def timeseries(self) -> Path | None:
        """The file, where there is one. Raises Skipped if it is not here."""
        return None if self.spec.timeseries is None else self._file("timeseries")

    def stream(self) -> Requests:
        """The requests. Raises DescriptionError; Skipped where their file is not here."""
        if (times := self.times()) is not None:
            return times.requests
        name = str(self.spec.workload)
        if name.endswith((*TRACE_SUFFIXES, ".yaml", ".yml")):
            name = str(self._file("workload"))
        spec = workload_document(name).build(WorkloadSpec)
        return generate(spec, int(self.spec.requests or 0), None, self.spec.seed)

    def serve(self, settings: Settings, overrides: Iterable[str] = ()) -> ServedServer:
        """Simulate the run under `settings`. Raises DescriptionError."""
        device, serving = self.case(settings, overrides)
        requests = self.stream()
        model = load_model(serving.model)
        return ServedServer(requests, serve(device, model, serving, requests, seed=self.spec.seed))

    def cells(self) -> list[ServerCell]:
        """The cells, or those of the log. Raises Skipped."""
        if self.spec.cells:
            return self.spec.cells
        times = self.times()
        assert times is not None
        measured = times.figures()
        return [
            ServerCell.model_validate(
                {"what": name, "figure": name, "measured": f"{_figure(measured, name).value:.6f}"
                 f"{FIGURES[name][0]}", "tolerance": "stated", "source": "log", "confidence": "A"}
            )
            for name in _OF_A_LOG
        ]  # fmt: skip

    def tolerance(self, cell: ServerCell) -> Tolerance:
        """How far the model may be from a cell."""
        return self.spec.tolerances.get(cell.tolerance, _STATED)

    def _file(self, key: str) -> Path:
        name = str(getattr(self.spec, key))
        folders = [Path(self.document.file).parent, Path(os.environ.get(DATA, "."))]
        for folder in folders:
            if (folder / name).is_file():
                return (folder / name).absolute()
        mark = self.document.mark((key,))
        message = f"{name} is not beside this file, nor in the folder that {DATA} names"
        raise Skipped(message, mark.file, mark.line, key)


def load_server(name_or_path: str) -> MeasuredServer:
    """A shipped server by name, or a YAML file. Raises DescriptionError, also for names that are
    not in the file and for settings that are no device or no serving."""
    document = load(find("servers", name_or_path))
    spec = document.build(ServerSpec)
    server = MeasuredServer(spec, document)
    for i, cell in enumerate(spec.cells):
        known: dict[str, Any] = {
            "tolerance": spec.tolerances,
            "source": spec.sources,
            "run": spec.runs,
            "over": spec.runs,
        }
        for key, names in known.items():
            if (given := getattr(cell, key)) is not None and given not in names:
                hint = nearest(given, list(names))
                raise document.error(f"no {key} {given!r}; {hint}", ("cells", i, key))
    for key in ("runs", "counterfactuals"):
        for name, settings in {"": {}, **getattr(spec, key)}.items():
            try:
                server.case(settings)
            except DescriptionError as error:
                where = f"{error.path}: " if error.path else ""
                place = (key, name) if name else ("device",)
                raise document.error(where + error.message, place) from None
    return server


def compare_server(
    server: MeasuredServer, counterfactual: str | None = None, overrides: Iterable[str] = ()
) -> list[ComparedCell]:
    """Every cell beside the model, each run simulated once; Skipped where a data file is absent.
    Raises DescriptionError."""
    spec = server.spec
    last = spec.counterfactuals[counterfactual] if counterfactual else {}
    cells = server.cells()
    needed = {cell.run for cell in cells} | {cell.over for cell in cells if cell.over}
    served = {
        run: server.serve((spec.runs[run] if run else {}) | last, overrides).result.metrics
        for run in needed
    }
    compared = []
    for cell in cells:
        model = _figure(served[cell.run], cell.figure).value
        if cell.over is not None:
            model /= max(_figure(served[cell.over], cell.figure).value, 1e-300)
        compared.append(ComparedCell(cell, model, server.tolerance(cell).around(cell.stated)))
    return compared


def _figure(metrics: dict[str, Any], name: str) -> Quantity:
    unit, place = FIGURES[name]
    value: Any = metrics
    for key in place:
        value = value[key]
    return Quantity(float(value) * (1e3 if unit == "ms" else 1.0), unit)
