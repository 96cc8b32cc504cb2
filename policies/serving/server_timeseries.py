"""Running and waiting requests over time: of a measured server, and of the simulation of it."""

from __future__ import annotations

import csv
import io

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.requests.requests import FloatArray
from policies.requests.trace_formats import read_text
from policies.serving.measured_server import MeasuredServer

_COLUMNS = ("t", "running", "waiting")


def read_timeseries(server: MeasuredServer) -> dict[str, FloatArray]:
    """The measured columns t (seconds), running and waiting, float64 (n,). Raises DescriptionError
    with file and line."""
    path = server.timeseries()
    if path is None:
        raise DescriptionError("no timeseries", server.document.file)
    reader = csv.DictReader(io.StringIO(read_text(path)))
    rows = []
    for row in reader:
        try:
            rows.append([float(row[name]) for name in _COLUMNS])
        except (KeyError, TypeError, ValueError):
            raise DescriptionError(
                f"expected numbers in columns {', '.join(_COLUMNS)}", path, reader.line_num
            ) from None
    return dict(zip(_COLUMNS, np.array(rows, np.float64).reshape(-1, 3).T, strict=True))


def running_and_waiting(server: MeasuredServer) -> dict[str, FloatArray]:
    """The same of the simulation as described, at the middle of the bins of its timeline: those
    that have come and not ended wait unless they run. Raises DescriptionError."""
    served = server.serve({})
    over, result = served.result.metrics["over_time"], served.result
    running = np.array([value or 0.0 for value in over["running"]])
    t = (np.arange(len(running)) + 0.5) * over["width_s"]
    arrived = np.searchsorted(np.sort(result.arrival_s), t, side="right")
    ended = np.searchsorted(np.sort(result.finish_s), t, side="right")
    return {"t": t, "running": running, "waiting": np.maximum(arrived - ended - running, 0.0)}
